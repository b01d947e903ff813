"""Sentences that changed, and wins and losses by kind, against cases worked by hand."""

import pytest

from mt_cli.translation.changes import Change, by_length, by_unseen_words, find_changes

SOURCES = ["Ein Hund.", "Zwei kleine Katzen schlafen auf dem Sofa.", "Rot.", ""]
REFS = ["A dog.", "Two small cats sleep on the sofa.", "Red.", ""]
BASELINE = ["A cat.", "Two small cats sleep on the sofa.", "Red.", ""]
HYPS = ["A dog.", "Two cats sleep.", "Red.", ""]


@pytest.fixture
def changes() -> tuple[Change, ...]:
    return find_changes(BASELINE, HYPS, REFS, SOURCES)


def test_only_what_changed_is_listed_with_its_line(changes: tuple[Change, ...]) -> None:
    assert [(each.line, each.source, each.ref, each.baseline_hyp, each.hyp) for each in changes] == [
        (1, SOURCES[0], "A dog.", "A cat.", "A dog."),
        (2, SOURCES[1], REFS[1], REFS[1], "Two cats sleep."),
    ]


def test_buckets_count_wins_losses_and_ties_by_length(changes: tuple[Change, ...]) -> None:
    short, long = by_length(SOURCES, changes)
    assert (short.label, short.n, short.wins, short.losses, short.ties) == ("0-5", 3, 1, 0, 2)
    assert (long.label, long.n, long.wins, long.losses, long.ties) == ("6-10", 1, 0, 1, 0)
    assert short.mean_difference == pytest.approx(changes[0].difference / 3)
    assert long.mean_difference == pytest.approx(changes[1].difference)


def test_buckets_count_unseen_words_without_case_and_marks(changes: tuple[Change, ...]) -> None:
    found = by_unseen_words(SOURCES, changes, frozenset({"hund", "kleine", "sofa", "katzen", "auf"}))
    assert [(each.label, each.n, each.wins, each.losses) for each in found] == [
        ("0", 2, 0, 0),
        ("1", 1, 1, 0),
        ("3+", 1, 0, 1),
    ]
