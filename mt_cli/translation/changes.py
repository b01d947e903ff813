"""Where two systems differ: wins and losses by kind of sentence, and the sentences that changed.

Knows lines of text; whether a difference means anything is `significance`'s to say.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from mt_cli.translation.scoring import sentence_chrf

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
    changed = [i for i, (old, new, _) in enumerate(zip(baseline, hyps, refs, strict=True)) if old != new]
    of_refs = [refs[i] for i in changed]
    baseline_chrf, chrf = (
        sentence_chrf([lines[i] for i in changed], of_refs, lowercase=lowercase) for lines in (baseline, hyps)
    )
    return tuple(
        Change(
            line=i + 1,
            source=sources[i] if sources is not None else None,
            ref=refs[i],
            baseline_hyp=baseline[i],
            hyp=hyps[i],
            baseline_chrf=before,
            chrf=after,
        )
        for i, before, after in zip(changed, baseline_chrf, chrf, strict=True)
    )


def by_length(lines: Sequence[str], changes: Iterable[Change]) -> tuple[Bucket, ...]:
    """Wins and losses by the number of words of each of `lines`."""
    return _buckets(places_by_length(lines), changes)


def by_unseen_words(lines: Sequence[str], changes: Iterable[Change], unseen: Set[str]) -> tuple[Bucket, ...]:
    """Wins and losses by how many words of each of `lines` are among the `unseen`."""
    return _buckets(places_by_unseen_words(lines, unseen), changes)


def places_by_length(lines: Sequence[str]) -> dict[str, list[int]]:
    """Places of `lines` by their number of words, such as `6-10`; ranges without a line are left out."""
    return _places([len(line.split()) for line in lines], tops=LENGTHS)


def places_by_unseen_words(lines: Sequence[str], unseen: Set[str]) -> dict[str, list[int]]:
    """Places of `lines` by how many of their words are among the `unseen`."""
    return _places([sum(word in unseen for word in words_of(line)) for line in lines], tops=UNSEEN)


def words_of(line: str) -> list[str]:
    """The words of `line`, without case and punctuation."""
    return WORD.findall(line.casefold())


def _places(sizes: Sequence[int], *, tops: Sequence[int]) -> dict[str, list[int]]:
    """Places by the range in which each of `sizes` is, in order; `tops` are the ranges' ends."""
    ranges: list[list[int]] = [[] for _ in range(len(tops) + 1)]
    for place, size in enumerate(sizes):
        ranges[bisect_left(tops, size)].append(place)
    return {_label(number, tops): places for number, places in enumerate(ranges) if places}


def _buckets(places_by_label: Mapping[str, Sequence[int]], changes: Iterable[Change]) -> tuple[Bucket, ...]:
    differences = {change.line - 1: change.difference for change in changes}
    buckets = []
    for label, places in places_by_label.items():
        found = [differences[place] for place in places if place in differences]
        buckets.append(
            Bucket(
                label,
                n=len(places),
                wins=sum(difference > 0 for difference in found),
                losses=sum(difference < 0 for difference in found),
                mean_difference=sum(found) / len(places),
            )
        )
    return tuple(buckets)


def _label(place: int, tops: Sequence[int]) -> str:
    bottom = tops[place - 1] + 1 if place else 0
    if place == len(tops):
        return f"{bottom}+"
    return str(bottom) if bottom == tops[place] else f"{bottom}-{tops[place]}"
