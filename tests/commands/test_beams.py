"""Beams on the command line: n-best lists, scores, and what becomes of bad wishes."""

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


def test_more_translations_than_beams_exit_2(workspace: Workspace) -> None:
    outcome = translate(workspace, "--n-best", 2)
    assert (outcome.code, outcome.out) == (2, b"")
    assert "give --beam-size 2" in outcome.err
