"""Sentences that changed, against cases worked by hand."""

import pytest

from mt_cli.evaluation.compare import Change, find_changes

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
