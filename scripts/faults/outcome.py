"""What came of the faults: one outcome for each case, and the table of all.

Knows promises by number; nothing of how a fault is made.
"""

import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass

PROMISES = {
    1: "a kill loses no more than the steps since the last checkpoint",
    2: "--resume gives the weights and logs of an uninterrupted run",
    3: "a changed bit is noticed before it is used",
    4: "a stranger's run does nothing outside, and takes no more memory than its model",
    5: "n lines in, n lines out, in valid UTF-8 without control characters",
    6: "scores are sacreBLEU's",
    7: "no network but pinned downloads",
}


@dataclass(frozen=True)
class Outcome:
    """What came of one case, which holds one fault or many."""

    promise: int
    family: str
    fault: str
    """What it was; with the family and the seed, enough to make it again."""
    tried: int
    """Faults."""
    failed: tuple[str, ...]
    """What went wrong, for each fault that was not survived."""
    seconds: float

    @property
    def survived(self) -> int:
        """Faults after which all was as promised."""
        return self.tried - len(self.failed)


@dataclass(frozen=True)
class Row:
    """One family's faults that are held against one promise."""

    promise: int
    family: str
    tried: int
    survived: int
    seconds: float
    """Of all its cases, one after the other."""


def rows_of(outcomes: Sequence[Outcome]) -> list[Row]:
    """A row for each promise and family, in the order of the promises."""
    rows = []
    for promise, family in sorted({(each.promise, each.family) for each in outcomes}):
        own = [each for each in outcomes if (each.promise, each.family) == (promise, family)]
        tried, survived = sum(each.tried for each in own), sum(each.survived for each in own)
        rows.append(Row(promise, family, tried, survived, sum(each.seconds for each in own)))
    return rows


def table(outcomes: Sequence[Outcome]) -> str:
    """The outcomes as Markdown."""
    lines = ["| promise | faults | tried | survived | seconds |", "| --- | --- | --- | --- | --- |"]
    for row in rows_of(outcomes):
        promise = f"{row.promise}. {PROMISES[row.promise]}"
        lines.append(f"| {promise} | {row.family} | {row.tried:,} | {row.survived:,} | {row.seconds:.0f} |")
    return "\n".join(lines)


def failures(outcomes: Sequence[Outcome], *, seed: int, is_quick: bool) -> list[str]:
    """Each fault that was not survived, with the command that makes it again."""
    torture = ["scripts/torture", *(["--quick"] if is_quick else [])]
    return [
        f"promise {each.promise}, {each.family}: {each.fault}: {why}\n    again: "
        + shlex.join([*torture, "--only", each.family, "--seed", str(seed), "--match", each.fault])
        for each in outcomes
        for why in each.failed
    ]


def as_json(outcomes: Sequence[Outcome], *, seed: int) -> dict[str, object]:
    """The document that `--json` prints."""
    return {
        "seed": seed,
        "promises": [{"text": PROMISES[row.promise], **asdict(row)} for row in rows_of(outcomes)],
        "failures": [asdict(each) for each in outcomes if each.failed],
    }
