"""Beams on the command line: n-best lists, scores, and what becomes of bad wishes."""

import json
from pathlib import Path

from workspace import Outcome, Workspace

LINES = b"Ein Hund.\n\nEin Mann schl\xc3\xa4ft.\n"


def translate(workspace: Workspace, *args: object) -> Outcome:
    return workspace.call("translate", "runs/tiny", *args, stdin=LINES)


def test_each_line_has_as_many_lines_as_asked_for(workspace: Workspace) -> None:
    outcome = translate(workspace, "--beam-size", 3, "--n-best", 3)
    assert (outcome.code, len(outcome.lines)) == (0, 9)
    assert outcome.lines[3:6] == ["", "", ""]


def test_score_and_a_tab_stand_before_each_translation(workspace: Workspace) -> None:
    scored = translate(workspace, "--beam-size", 3, "--with-score").lines
    plain = translate(workspace, "--beam-size", 3).lines
    assert [line.split("\t")[1] for line in scored] == plain
    assert all(float(line.split("\t")[0]) <= 0 for line in scored)


def test_json_holds_the_score_and_the_others(workspace: Workspace) -> None:
    outcome = translate(workspace, "--beam-size", 2, "--n-best", 2, "--json")
    first = json.loads(outcome.lines[0])
    assert list(first) == ["source", "translation", "score", "n_best", "tokens", "alignment"]
    assert first["n_best"][0] == {"translation": first["translation"], "score": first["score"]}
    assert len(first["n_best"]) == 2


def test_more_translations_than_beams_exit_2(workspace: Workspace) -> None:
    outcome = translate(workspace, "--n-best", 2)
    assert (outcome.code, outcome.out) == (2, b"")
    assert "give --beam-size 2" in outcome.err


def test_attention_of_several_translations_is_refused(workspace: Workspace) -> None:
    outcome = translate(workspace, "--text", "Ein Hund.", "--attention", "-", "--with-score")
    assert outcome.code == 2
    assert "leave out --n-best, --with-score, --with-alignment and --sample" in outcome.err


def test_negative_length_penalty_is_refused(workspace: Workspace) -> None:
    assert translate(workspace, "--length-penalty", "-1").code == 2


def test_evaluate_keeps_the_scores_of_a_beam_apart(workspace: Workspace, tmp_path: Path) -> None:
    run = workspace.copy_run(tmp_path / "run")
    beam = ("--beam-size", 2, "--length-penalty", 0.5)
    outcome = workspace.call("evaluate", run, "--data", workspace.prepared, "--split", "val", *beam)
    assert outcome.code == 0
    assert sorted(path.name for path in run.joinpath("eval").iterdir()) == ["val-beam2-alpha0.5"]
