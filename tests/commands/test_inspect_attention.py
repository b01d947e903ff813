"""`inspect --attention`: the maps of one sentence, as a file, as text or as JSON."""

import json
from pathlib import Path

import pytest
from workspace import Workspace

RUN = "runs/tiny"
SENTENCE = "Er schläft."


@pytest.mark.parametrize("name", ["a.png", "a.svg", "a.json"])
def test_a_file_is_written_and_nothing_printed(workspace: Workspace, tmp_path: Path, name: str) -> None:
    outcome = workspace.call("inspect", RUN, "--text", SENTENCE, "--attention", tmp_path / name)
    assert (outcome.code, outcome.out, outcome.err) == (0, b"", "")
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_files_are_those_that_translate_writes(workspace: Workspace, tmp_path: Path) -> None:
    for verb in ("inspect", "translate"):
        options = ("--attention", tmp_path / f"{verb}.json", "--head", "all", "--attention-of", "encoder")
        assert workspace.call(verb, RUN, "--text", SENTENCE, *options).code == 0
    assert (tmp_path / "inspect.json").read_bytes() == (tmp_path / "translate.json").read_bytes()


def test_maps_without_a_file_are_the_result(workspace: Workspace) -> None:
    outcome = workspace.call("inspect", RUN, "--text", SENTENCE, "--layer", 1)
    assert outcome.lines[0] == "cross-attention, layer 1 of 1: rows attend to columns"
    assert outcome.err == ""


def test_json_holds_the_maps(workspace: Workspace) -> None:
    outcome = workspace.call("inspect", RUN, "--text", SENTENCE, "--head", "2", "--json")
    document = json.loads(outcome.out)
    assert document["source"] == SENTENCE
    assert [one["head"] for one in document["maps"]] == [2]


def test_the_file_says_how_to_draw(workspace: Workspace) -> None:
    outcome = workspace.call("inspect", RUN, "--attention", "a.gif")
    assert (outcome.code, outcome.out) == (2, b"")
    assert "a.gif: the file's ending says how to draw; use .png, .svg, .json" in outcome.err
