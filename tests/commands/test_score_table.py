"""Scores as people read them in a terminal."""

from pathlib import Path

import pytest
from workspace import Workspace

from mt_cli.commands.score_table import scores_as_lines, scores_as_table
from mt_cli.stages.system import Assessment
from mt_cli.translation.scoring import score

HYPS, REFS = ["A dog runs.", "Two cats sleep here."], ["A dog is running.", "Two cats are sleeping here."]


@pytest.fixture
def assessment() -> Assessment:
    return Assessment(HYPS, score(HYPS, REFS), unk_rate=0.0123, sentences_per_s=1234.4)


def test_table_has_a_row_for_each_set_and_the_signatures_once(assessment: Assessment) -> None:
    lines = scores_as_table({"test_2016_flickr": assessment, "test_2017_flickr": assessment}).split("\n")
    heading, first, second = lines[:3]
    bleu = assessment.scores.bleu
    assert bleu.interval is not None
    assert heading.split() == ["BLEU", "chrF2", "TER", "length", "unk", "sent/s"]
    assert first.split()[:3] == [
        "test_2016_flickr",
        f"{bleu.score:.2f}",
        f"±{bleu.interval.half_width:.2f}",
    ]
    assert first.split()[-3:] == [f"{assessment.scores.length_ratio:.3f}", "1.2%", "1234"]
    assert second.split()[0] == "test_2017_flickr"
    assert [line for line in lines if bleu.signature in line] == [f"BLEU  {bleu.signature}"]


@pytest.mark.parametrize("name", ["test", "a_very_long_name_of_a_test_set_" * 3])
def test_table_fits_eighty_columns(assessment: Assessment, name: str) -> None:
    assert max(map(len, scores_as_table({name: assessment}).split("\n"))) <= 80


def test_lines_do_not_depend_on_how_fast_it_was(assessment: Assessment) -> None:
    slower = Assessment(HYPS, assessment.scores, unk_rate=0.0123, sentences_per_s=1.0)
    assert scores_as_lines({"test": slower}) == scores_as_lines({"test": assessment})


def test_scores_without_interval_are_shown_without(assessment: Assessment) -> None:
    bare = Assessment(HYPS, score(HYPS, REFS, resamples=1), unk_rate=0.0, sentences_per_s=1.0)
    assert "interval" not in scores_as_lines({"test": bare})
    assert "±" not in scores_as_table({"test": bare})


def test_terminal_gets_the_table(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mt_cli.commands.evaluate.is_terminal", lambda _: True)
    run = workspace.copy_run(tmp_path / "run")
    outcome = workspace.call("evaluate", run)
    assert outcome.lines[0].split() == ["BLEU", "chrF2", "TER", "length", "unk", "sent/s"]
