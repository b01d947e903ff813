"""Sentences that changed, and wins and losses by kind, against cases worked by hand."""

import pytest

from mt_cli.evaluation.compare import (
    LENGTHS,
    UNSEEN,
    Bucket,
    Change,
    buckets,
    find_changes,
    words_of,
)

SOURCES = ["Ein Hund.", "Zwei kleine Katzen schlafen auf dem Sofa.", "Rot.", ""]
REFS = ["A dog.", "Two small cats sleep on the sofa.", "Red.", ""]
BASELINE = ["A cat.", "Two small cats sleep on the sofa.", "Red.", ""]
HYPS = ["A dog.", "Two cats sleep.", "Red.", ""]


@pytest.fixture
def changes() -> list[Change]:
    return find_changes(BASELINE, HYPS, REFS, SOURCES)


def test_only_what_changed_is_listed_with_its_line(changes: list[Change]) -> None:
    dog, cats = changes
    assert (dog.line, dog.source, dog.ref) == (1, SOURCES[0], REFS[0])
    assert (dog.baseline_hyp, dog.hyp) == ("A cat.", "A dog.")
    assert (cats.line, cats.source, cats.ref) == (2, SOURCES[1], REFS[1])
    assert (cats.baseline_hyp, cats.hyp) == (REFS[1], "Two cats sleep.")


def counts(bucket: Bucket) -> list[object]:
    return [bucket["label"], bucket["n"], bucket["wins"], bucket["losses"], bucket["ties"]]


def test_buckets_count_wins_losses_and_ties_by_length(changes: list[Change]) -> None:
    short, long = buckets([len(line.split()) for line in SOURCES], changes, tops=LENGTHS)
    assert counts(short) == ["0-5", 3, 1, 0, 2]
    assert counts(long) == ["6-10", 1, 0, 1, 0]
    assert short["mean_difference"] == pytest.approx(changes[0].difference / 3)
    assert long["mean_difference"] == pytest.approx(changes[1].difference)


def test_buckets_count_unseen_words_without_case_and_marks(changes: list[Change]) -> None:
    unseen = {"hund", "kleine", "sofa", "katzen", "auf"}
    sizes = [sum(word in unseen for word in words_of(line)) for line in SOURCES]
    found = buckets(sizes, changes, tops=UNSEEN)
    assert [counts(each) for each in found] == [
        ["0", 2, 0, 0, 2],
        ["1", 1, 1, 0, 0],
        ["3+", 1, 0, 1, 0],
    ]
