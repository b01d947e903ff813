"""Where two systems differ: wins and losses by kind of sentence, and the sentences that changed.

Knows lines of text; whether a difference means anything is `significance`'s to say.
"""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass

WORD = re.compile(r"\w+")
LENGTHS = (5, 10, 15, 20, 30, 50)
"""Most words of a sentence in each bucket; one more bucket has all that is longer."""
UNSEEN = (0, 1, 2)
"""Words of a sentence that training never showed; one more bucket has all that have more."""


@dataclass(frozen=True)
class Change:
    """A sentence that the two systems translate differently."""

    line: int
    """From 1."""
    source: str | None
    ref: str
    baseline_hyp: str
    hyp: str
    baseline_chrf: float
    """chrF2 of the one sentence."""
    chrf: float

    @property
    def difference(self) -> float:
        """What the sentence gained, in chrF2."""
        return self.chrf - self.baseline_chrf


@dataclass(frozen=True)
class Bucket:
    """Wins and losses among sentences of one kind, by sentence chrF2."""

    label: str
    n: int
    wins: int
    losses: int
    mean_difference: float
    """Of sentence chrF2, in which a sentence that did not change counts as 0."""

    @property
    def ties(self) -> int:
        """Sentences that are translated the same, or as well."""
        return self.n - self.wins - self.losses


def find_changes(
    baseline: Sequence[str],
    hyps: Sequence[str],
    refs: Sequence[str],
    sources: Sequence[str] | None,
    *,
    lowercase: bool = False,
) -> tuple[Change, ...]:
    """The sentences that `hyps` and `baseline` do not share, in order."""
    from sacrebleu.metrics.chrf import CHRF

    metric = CHRF(lowercase=lowercase)

    def chrf(hyp: str, ref: str) -> float:
        return float(metric.sentence_score(hyp, [ref]).score)

    return tuple(
        Change(
            line=i + 1,
            source=sources[i] if sources is not None else None,
            ref=ref,
            baseline_hyp=old,
            hyp=new,
            baseline_chrf=chrf(old, ref),
            chrf=chrf(new, ref),
        )
        for i, (old, new, ref) in enumerate(zip(baseline, hyps, refs, strict=True))
        if old != new
    )


def by_length(lines: Sequence[str], changes: Iterable[Change]) -> tuple[Bucket, ...]:
    """Wins and losses by the number of words of each of `lines`."""
    return _buckets([len(line.split()) for line in lines], changes, tops=LENGTHS)


def by_unseen_words(lines: Sequence[str], changes: Iterable[Change], unseen: Set[str]) -> tuple[Bucket, ...]:
    """Wins and losses by how many words of each of `lines` are among the `unseen`."""
    return _buckets([sum(word in unseen for word in words_of(line)) for line in lines], changes, tops=UNSEEN)


def words_of(line: str) -> list[str]:
    """The words of `line`, without case and punctuation."""
    return WORD.findall(line.casefold())


def _buckets(sizes: Sequence[int], changes: Iterable[Change], *, tops: Sequence[int]) -> tuple[Bucket, ...]:
    """A bucket for each range of `sizes` in which there are sentences; `tops` are the ranges' ends."""
    bucket_of = [bisect_left(tops, size) for size in sizes]
    differences: list[list[float]] = [[] for _ in range(len(tops) + 1)]
    for change in changes:
        differences[bucket_of[change.line - 1]].append(change.difference)
    counts = Counter(bucket_of)
    return tuple(
        Bucket(
            _label(place, tops),
            n=counts[place],
            wins=sum(difference > 0 for difference in of_bucket),
            losses=sum(difference < 0 for difference in of_bucket),
            mean_difference=sum(of_bucket) / counts[place],
        )
        for place, of_bucket in enumerate(differences)
        if counts[place]
    )


def _label(place: int, tops: Sequence[int]) -> str:
    bottom = tops[place - 1] + 1 if place else 0
    if place == len(tops):
        return f"{bottom}+"
    return str(bottom) if bottom == tops[place] else f"{bottom}-{tops[place]}"
