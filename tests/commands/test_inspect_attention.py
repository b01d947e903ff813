"""`inspect --attention`: the maps of one sentence, as a file, as text or as JSON."""

import json
from pathlib import Path

import pytest
from workspace import Workspace

RUN = "runs/tiny"
SENTENCE = "Er schläft."


@pytest.mark.parametrize("name", ["a.png", "a.svg", "a.json"])
def test_a_file_is_written_and_nothing_printed(
    workspace: Workspace, tmp_path: Path, name: str
) -> None:
    outcome = workspace.call("inspect", RUN, "--text", SENTENCE, "--attention", tmp_path / name)
    assert (outcome.code, outcome.out, outcome.err) == (0, b"", "")
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_json_holds_the_maps(workspace: Workspace) -> None:
    outcome = workspace.call("inspect", RUN, "--text", SENTENCE, "--head", "2", "--json")
    document = json.loads(outcome.out)
    assert document["source"] == SENTENCE
    assert [one["head"] for one in document["maps"]] == [2]


def test_maps_without_a_file_are_the_result(workspace: Workspace) -> None:
    outcome = workspace.call("inspect", RUN, "--text", SENTENCE, "--layer", 1)
    assert outcome.lines[0] == "cross-attention, layer 1 of 1: rows attend to columns"
    assert outcome.err == ""


@pytest.mark.parametrize(
    "args",
    [
        ["--attention", "a.gif"],
        ["--layer", "99"],
        ["--head", "3"],
        ["--attention-of", "both"],
        ["--text", " "],
    ],
    ids=" ".join,
)
def test_what_there_is_not_is_refused_and_nothing_written(
    workspace: Workspace, tmp_path: Path, args: list[str]
) -> None:
    outcome = workspace.call("inspect", workspace.run, "--attention", "a.json", *args, cwd=tmp_path)
    assert (outcome.code, outcome.out) == (2, b"")
    assert list(tmp_path.iterdir()) == []
