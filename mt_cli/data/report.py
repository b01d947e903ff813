"""`CorpusReport`: what `prepare` found in a corpus and made of it.

Knows numbers and how to lay them out for people, never files.
"""

from collections.abc import Iterator

import numpy as np
from pydantic import BaseModel, ConfigDict

from mt_cli.data.split import Sentences
from mt_cli.text.symbols import UNK_ID

PERCENTILES = (50, 90, 99, 100)
COUNTED_TOGETHER = 1 << 22
"""Ids read at a time, so that a memory-mapped corpus need not fit into memory."""


class _Frozen(BaseModel):
    """A record of numbers that never change."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class SideReport(_Frozen):
    """One side of a split, as encoded."""

    tokens: int
    unknown: int
    """Tokens that are `<unk>`."""
    unknown_rate: float
    lengths: dict[str, int]
    """Percentiles of tokens per line: half of the lines have at most `lengths["50"]`."""


class SplitReport(_Frozen):
    """One split."""

    lines: int
    """Lines of the input files."""
    pairs: int
    """Pairs kept."""
    dropped: dict[str, int]
    """Pairs left out, by reason; none outside the training data."""
    invalid_utf8: int = 0
    """Lines with a side that is not valid UTF-8; their invalid bytes are left out."""
    duplicates: int
    """Lines whose normalised pair is on an earlier line too."""
    src_in_train: int | None
    """Lines whose source is in the training pairs (for an added part: the corpus's own); None for `train`."""
    pairs_in_train: int | None
    """Lines whose source and target are together in the same training pairs; None for `train`."""
    src: SideReport
    tgt: SideReport


class CorpusReport(_Frozen):
    """The whole corpus."""

    src_vocab_size: int
    tgt_vocab_size: int
    splits: dict[str, SplitReport]

    def as_json(self) -> dict[str, object]:
        """The form that `report.json` and `prepare --json` have."""
        return self.model_dump(mode="json")


def describe_side(sequences: Sentences) -> SideReport:
    """Lengths and unknown tokens of encoded lines."""
    ids = sequences.ids
    begins = range(0, len(ids), COUNTED_TOGETHER)
    unknown = sum(int((ids[i : i + COUNTED_TOGETHER] == UNK_ID).sum()) for i in begins)
    # "higher" gives a length that some line has, never one between two.
    found = np.percentile(sequences.lengths, PERCENTILES, method="higher") if len(sequences) else [0] * 4
    return SideReport(
        tokens=len(ids),
        unknown=unknown,
        unknown_rate=unknown / max(1, len(ids)),
        lengths={str(p): int(length) for p, length in zip(PERCENTILES, found, strict=True)},
    )


def format_report(report: CorpusReport) -> str:
    """The report as an aligned table, one line a split, and what was dropped below it."""
    rows = [_HEADER, *(_row(name, split) for name, split in report.splits.items())]
    first, *widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    table = [
        "  ".join([name.ljust(first), *map(str.rjust, numbers, widths)]).rstrip() for name, *numbers in rows
    ]
    vocabulary = f"vocabulary  src {report.src_vocab_size:,}  tgt {report.tgt_vocab_size:,}"
    shares = "/".join(map(str, PERCENTILES))
    legend = f"(tokens of a line: {shares} % of the lines have at most so many)"
    return "\n".join([*table, legend, vocabulary, *_notes(report)])


_HEADER = (
    "split",
    "lines",
    "pairs",
    "src tokens",
    "tgt tokens",
    "<unk> src",
    "tgt",
)


def _row(name: str, split: SplitReport) -> tuple[str, ...]:
    return (
        name,
        f"{split.lines:,}",
        f"{split.pairs:,}",
        "/".join(str(length) for length in split.src.lengths.values()),
        "/".join(str(length) for length in split.tgt.lengths.values()),
        f"{split.src.unknown_rate:.2%}",
        f"{split.tgt.unknown_rate:.2%}",
    )


def _notes(report: CorpusReport) -> Iterator[str]:
    for name, split in report.splits.items():
        for reason, count in sorted(split.dropped.items()):
            yield f"{name}: {count:,} pairs dropped: {reason}"
        if split.invalid_utf8:
            yield f"{name}: {split.invalid_utf8:,} lines are not valid UTF-8"
        if split.duplicates:
            yield f"{name}: {split.duplicates:,} of {split.lines:,} lines repeat an earlier pair"
        if split.src_in_train:
            yield (
                f"{name}: {split.src_in_train:,} of {split.lines:,} sources occur in train "
                f"({split.pairs_in_train:,} with the same target)"
            )
