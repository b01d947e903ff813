"""`Comparison`: all that is known of systems on one test set, for text, JSON and reports alike.

Knows results, not how they were found.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from mt_cli.translation.changes import Bucket, Change
from mt_cli.translation.significance import MetricTest, Verdict


@dataclass(frozen=True)
class Contrast:
    """A system against the baseline."""

    name: str
    """As the user named it: a run folder or a file."""
    hyps: Sequence[str]
    tests: tuple[MetricTest, ...]
    """BLEU, chrF2, TER."""
    verdict: Verdict
    changes: tuple[Change, ...]
    """Every sentence that is translated differently, what changed most first."""
    by_length: tuple[Bucket, ...]
    """By words of the source, or of the reference where there is no source."""
    by_unseen_words: tuple[Bucket, ...] | None
    """By words of the source that training never showed; none where the training data are not known."""

    def as_json(self) -> dict[str, object]:
        """A part of what `compare --json` prints."""
        return {
            "name": self.name,
            "outcome": self.verdict.outcome,
            "verdict": self.verdict.sentence,
            "tests": [{**asdict(test), "difference": test.difference} for test in self.tests],
            "by_length": list(map(_bucket_as_json, self.by_length)),
            "by_unseen_words": (
                None if self.by_unseen_words is None else list(map(_bucket_as_json, self.by_unseen_words))
            ),
            "changes": [{**asdict(change), "difference": change.difference} for change in self.changes],
        }


@dataclass(frozen=True)
class Comparison:
    """Systems against the first of them, on one test set."""

    test_set: str
    baseline: str
    """As the user named it."""
    sources: Sequence[str] | None
    refs: Sequence[str]
    baseline_hyps: Sequence[str]
    resamples: int
    trials: int
    contrasts: tuple[Contrast, ...]
    """One for each other system, in their order."""

    @property
    def n(self) -> int:
        """Sentences."""
        return len(self.refs)

    def as_json(self) -> dict[str, object]:
        """The form that `compare --json` prints for each test set."""
        return {
            "n": self.n,
            "baseline": self.baseline,
            "resamples": self.resamples,
            "trials": self.trials,
            "systems": [each.as_json() for each in self.contrasts],
        }


def _bucket_as_json(bucket: Bucket) -> dict[str, object]:
    return {**asdict(bucket), "ties": bucket.ties}
