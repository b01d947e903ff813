"""The `score` command: two streams of lines in, one score out for each pair.

Owns how the streams are read side by side; knows no model.
"""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from mt_cli.errors import DataError, UsageError
from mt_cli.stages.translate import decoded, open_source
from mt_cli.translation.pair_scorer import PairScore, PairScorer

PAIRS_AT_ONCE = 2048
"""Enough that sorting by length fills batches evenly, few enough that memory stays small."""


@dataclass(frozen=True)
class ScoredPair:
    """A pair of lines as they were given, and its score."""

    source: str
    translation: str
    score: PairScore


def score_pairs(
    scorer: PairScorer, sources: io.BufferedIOBase, targets: io.BufferedIOBase
) -> Iterator[list[ScoredPair]]:
    r"""The scored pairs of `sources` and `targets`, in order, as soon as a portion of them is done.

    Only `\n` ends a line, and an unterminated last line counts.

    Raises:
        DataError: one has more lines than the other; all pairs until there have been scored.
    """
    num_pairs = 0
    while True:
        src, tgt = (list(islice(stream, PAIRS_AT_ONCE)) for stream in (sources, targets))
        num_common = min(len(src), len(tgt))
        if num_common:
            yield _scored(scorer, src[:num_common], tgt[:num_common], first_line=num_pairs + 1)
        num_pairs += num_common
        if len(src) != len(tgt):
            names = ("sources", "translations")
            longer, shorter = names if len(src) > len(tgt) else reversed(names)
            raise DataError(
                f"the {shorter} end after line {num_pairs}, but the {longer} go on; "
                "they must align line by line"
            )
        if not num_common:
            return


@contextmanager
def open_pairs(src: str, tgt: str) -> Iterator[tuple[io.BufferedIOBase, io.BufferedIOBase]]:
    """The sources and targets in two files, of which one may be `-`, stdin.

    Raises:
        UsageError: both are stdin.
        DataError: one cannot be read, or the files have different numbers of lines.
    """
    if src == tgt == "-":
        raise UsageError("sources and translations cannot both come from stdin; name a file for one")
    with open_source(src) as sources, open_source(tgt) as targets:
        if Path(src).is_file() and Path(tgt).is_file():  # of stdin and pipes, only the end tells
            num_src, num_tgt = (sum(1 for _ in stream) for stream in (sources, targets))
            if num_src != num_tgt:
                raise DataError(
                    f"{tgt}: {num_tgt} lines, but {src} has {num_src}; the files must align line by line"
                )
            sources.seek(0)
            targets.seek(0)
        yield sources, targets


def _scored(scorer: PairScorer, src: list[bytes], tgt: list[bytes], *, first_line: int) -> list[ScoredPair]:
    sources, targets = (
        [decoded(raw, first_line + i, side=side) for i, raw in enumerate(lines)]
        for side, lines in (("source", src), ("translation", tgt))
    )
    scores = scorer.score(sources, targets, first_line=first_line)
    return [ScoredPair(*each) for each in zip(sources, targets, scores, strict=True)]
