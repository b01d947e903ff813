"""The report on a prepared corpus: lengths, vocabulary, duplicates."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mt_cli.data.encoded import IDS_TOGETHER, Sentences
from mt_cli.machine.terminal import table_text
from mt_cli.text import UNK_ID

PERCENTILES = (50, 90, 99, 100)


@dataclass(frozen=True)
class SideReport:
    """One side of a split, as encoded."""

    tokens: int
    unknown: int
    """Tokens that are `<unk>`."""
    unknown_rate: float
    lengths: dict[str, int]
    """Percentiles of tokens per line: half of the lines have at most `lengths["50"]`."""

    @staticmethod
    def of(sentences: Sentences, begin: int, end: int) -> "SideReport":
        """Lengths and unknown tokens of the encoded lines `begin` to `end` - 1."""
        offsets = sentences.offsets[begin : end + 1]
        ids = sentences.ids[offsets[0] : offsets[-1]]
        places = range(0, len(ids), IDS_TOGETHER)
        unknown = sum(int((ids[i : i + IDS_TOGETHER] == UNK_ID).sum()) for i in places)
        # "higher" gives a length that some line has, never one between two.
        found = [0] * len(PERCENTILES)
        if end > begin:
            found = np.percentile(np.diff(offsets), PERCENTILES, method="higher").tolist()
        return SideReport(
            tokens=len(ids),
            unknown=unknown,
            unknown_rate=unknown / max(1, len(ids)),
            lengths={str(p): int(length) for p, length in zip(PERCENTILES, found, strict=True)},
        )


@dataclass(frozen=True)
class SplitReport:
    """One split."""

    lines: int
    """Lines of the input files."""
    pairs: int
    """Pairs kept."""
    dropped: dict[str, int]
    """Pairs left out, by reason; none outside the training data."""
    invalid_utf8: int
    """Lines with a side that is not valid UTF-8; their invalid bytes are left out."""
    duplicates: int
    """Lines whose normalized pair is on an earlier line too."""
    src_in_train: int | None
    """Lines whose source is in the training pairs (for an added part: the corpus's own); None for
    `train`.
    """
    pairs_in_train: int | None
    """Lines whose source and target are together in the same training pairs; None for `train`."""
    src: SideReport
    tgt: SideReport


@dataclass(frozen=True)
class CorpusReport:
    """What `prepare` found in a corpus and made of it."""

    src_vocab_size: int
    tgt_vocab_size: int
    splits: dict[str, SplitReport]

    def as_text(self) -> str:
        """A table, one line a split, and what was dropped below it."""
        rows = []
        for name, split in self.splits.items():
            rows.append(
                (
                    name,
                    f"{split.lines:,}",
                    f"{split.pairs:,}",
                    "/".join(map(str, split.src.lengths.values())),
                    "/".join(map(str, split.tgt.lengths.values())),
                    f"{split.src.unknown_rate:.2%}",
                    f"{split.tgt.unknown_rate:.2%}",
                )
            )
        head = ("split", "lines", "pairs", "src tokens", "tgt tokens", "<unk> src", "tgt")
        shares = "/".join(map(str, PERCENTILES))
        legend = f"(tokens of a line: {shares} % of the lines have at most so many)"
        vocabulary = f"vocabulary  src {self.src_vocab_size:,}  tgt {self.tgt_vocab_size:,}"
        return "\n".join([table_text(head, rows), legend, vocabulary, *self._notes()])

    def _notes(self) -> Iterator[str]:
        for name, split in self.splits.items():
            for reason, count in sorted(split.dropped.items()):
                yield f"{name}: {count:,} pairs dropped: {reason}"
            if split.invalid_utf8:
                yield f"{name}: {split.invalid_utf8:,} lines are not valid UTF-8"
            if split.duplicates:
                yield (
                    f"{name}: {split.duplicates:,} of {split.lines:,} lines repeat an earlier pair"
                )
            if split.src_in_train:
                yield (
                    f"{name}: {split.src_in_train:,} of {split.lines:,} sources occur in train "
                    f"({split.pairs_in_train:,} with the same target)"
                )
