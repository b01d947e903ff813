"""Attention on the command line: pictures, JSON or a grid beside the translation, never in it."""

import json
from pathlib import Path
from typing import TypedDict

import numpy as np
import pytest
from workspace import Outcome, Workspace

SENTENCE = "Er schläft."
RUN = "runs/tiny"
ONE_SENTENCE = "error: attention is shown for one sentence; give it with --text\n"


def translate(workspace: Workspace, *args: object) -> Outcome:
    """The translation of `SENTENCE`, looked at as `args` say."""
    return workspace.call("translate", RUN, "--text", SENTENCE, *args)


def plain(workspace: Workspace) -> Outcome:
    """The same without a look."""
    return workspace.call("translate", RUN, "--text", SENTENCE)


class Map(TypedDict):
    """One of the maps in a .json file."""

    attention: str
    layer: int
    head: int | str
    rows: list[str]
    columns: list[str]
    weights: list[list[float]]


def maps_in(path: Path) -> list[Map]:
    maps: list[Map] = json.loads(path.read_bytes())["maps"]
    return maps


def grid_in(err: str) -> list[str]:
    """Lines of the first grid on stderr, its title first."""
    return err.split("\n\n")[1].rstrip("\n").split("\n")


# Files


@pytest.mark.parametrize("name", ["a.png", "a.svg", "a.json"])
def test_stdout_is_the_translation_and_nothing_else(workspace: Workspace, tmp_path: Path, name: str) -> None:
    outcome = translate(workspace, "--attention", tmp_path / name)
    assert outcome == plain(workspace)
    assert (outcome.code, len(outcome.lines), outcome.err) == (0, 1, "")
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_json_holds_what_was_translated(workspace: Workspace, tmp_path: Path) -> None:
    outcome = translate(workspace, "--attention", tmp_path / "a.json")
    document = json.loads(tmp_path.joinpath("a.json").read_bytes())
    assert list(document) == ["source", "translation", "maps"]
    assert [document["source"], document["translation"]] == [SENTENCE, *outcome.lines]
    (only,) = document["maps"]
    assert (only["attention"], only["layer"]) == ("cross", 1)
    assert np.shape(only["weights"]) == (len(only["rows"]), len(only["columns"]))


@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
def test_attention_of_chooses_the_attention(workspace: Workspace, tmp_path: Path, kind: str) -> None:
    translate(workspace, "--attention", tmp_path / "a.json", "--attention-of", kind, "--head", "all")
    assert [(one["attention"], one["head"]) for one in maps_in(tmp_path / "a.json")] == [(kind, 1), (kind, 2)]


def test_head_chooses_the_head(workspace: Workspace, tmp_path: Path) -> None:
    translate(workspace, "--attention", tmp_path / "all.json", "--head", "all")
    translate(workspace, "--attention", tmp_path / "second.json", "--head", "2", "--layer", "1")
    assert maps_in(tmp_path / "second.json") == maps_in(tmp_path / "all.json")[1:]


def test_backends_write_nearly_the_same(workspace: Workspace, tmp_path: Path) -> None:
    translate(workspace, "--head", "all", "--attention", tmp_path / "ours.json", "--backend", "scratch")
    translate(workspace, "--head", "all", "--attention", tmp_path / "theirs.json", "--backend", "torch")
    ours, theirs = maps_in(tmp_path / "ours.json"), maps_in(tmp_path / "theirs.json")
    np.testing.assert_allclose(
        [one["weights"] for one in ours], [one["weights"] for one in theirs], atol=1e-5, rtol=0
    )
    assert [(one["rows"], one["columns"]) for one in ours] == [
        (one["rows"], one["columns"]) for one in theirs
    ]


def test_translation_and_picture_go_to_files_of_their_own(workspace: Workspace, tmp_path: Path) -> None:
    outcome = translate(workspace, "-o", tmp_path / "english.txt", "--attention", tmp_path / "a.json")
    assert outcome == Outcome(0, b"", "")
    assert tmp_path.joinpath("english.txt").read_bytes() == plain(workspace).out
    assert len(maps_in(tmp_path / "a.json")) == 1


def test_of_a_text_too_long_the_first_part_is_shown(workspace: Workspace, tmp_path: Path) -> None:
    first, whole = tmp_path / "first.json", tmp_path / "whole.json"
    workspace.call("translate", RUN, "--text", "Ein Hund.", "--attention", first)
    outcome = workspace.call("translate", RUN, "--text", "Ein Hund. " * 50, "--attention", whole)
    assert outcome.code == 0
    assert maps_in(whole) == maps_in(first)
    assert "more than the model's 47, is translated in 50 parts: Ein Hund." in outcome.err


# The terminal


@pytest.mark.parametrize(
    "args",
    [["--attention", "-"], ["--attention-of", "cross"], ["--layer", "1"], ["--head", "mean"]],
    ids=" ".join,
)
def test_grid_goes_to_stderr(workspace: Workspace, args: list[str]) -> None:
    outcome = translate(workspace, *args)
    assert (outcome.code, outcome.out) == (0, plain(workspace).out)
    assert outcome.err.startswith(
        "cross-attention, layer 1 of 1: rows attend to columns\n\nmean of 2 heads\n"
    )
    assert "█" in outcome.err


def test_head_alone_shows_that_head(workspace: Workspace) -> None:
    outcome = translate(workspace, "--head", "1")
    assert (outcome.code, grid_in(outcome.err)[0]) == (0, "head 1")
    assert "head 2" not in outcome.err


def test_quiet_does_not_silence_what_was_asked_for(workspace: Workspace) -> None:
    assert (
        translate(workspace, "--attention", "-", "--quiet").err == translate(workspace, "--head", "mean").err
    )


def test_json_lines_stay_on_stdout(workspace: Workspace) -> None:
    outcome = translate(workspace, "--json", "--head", "1")
    (line,) = outcome.lines
    document = json.loads(line)
    assert [document["source"], document["translation"]] == [SENTENCE, *plain(workspace).lines]
    assert "head 1\n" in outcome.err


@pytest.fixture(scope="module")
def ascii_outcome(workspace: Workspace) -> Outcome:
    """The grid on a terminal that has nothing but ASCII."""
    return workspace.call("translate", RUN, "--text", SENTENCE, "--head", "1", charset="ascii")


def test_locale_does_not_matter_to_the_translation(workspace: Workspace, ascii_outcome: Outcome) -> None:
    assert (ascii_outcome.code, ascii_outcome.out) == (0, plain(workspace).out)


def test_terminal_without_blocks_gets_ascii_shades(ascii_outcome: Outcome) -> None:
    assert ascii_outcome.err.isascii()
    assert "##" in ascii_outcome.err
    assert "\\u2588" not in ascii_outcome.err


def test_terminal_without_letters_keeps_columns_below_their_labels(
    workspace: Workspace, ascii_outcome: Outcome
) -> None:
    usual = grid_in(translate(workspace, "--head", "1").err)
    height = len("</s>")
    header = grid_in(ascii_outcome.err)[1 : height + 1]
    assert [len(line) for line in header] == [len(line) for line in usual[1 : height + 1]]


# What is refused


@pytest.mark.parametrize(
    "args",
    [["--attention", "-"], ["--attention", "a.png"], ["--attention-of", "encoder"], ["--layer", "1"]],
    ids=" ".join,
)
def test_attention_without_text_is_refused(workspace: Workspace, args: list[str]) -> None:
    outcome = workspace.call("translate", RUN, *args, stdin=b"Ein Hund.\n")
    assert outcome == Outcome(2, b"", ONE_SENTENCE)


def test_attention_of_a_files_lines_is_refused(workspace: Workspace) -> None:
    outcome = workspace.call("translate", RUN, "-i", workspace.corpus("test.de"), "--head", "1")
    assert outcome == Outcome(2, b"", ONE_SENTENCE)


@pytest.mark.parametrize("text", ["Ein Hund.\nZwei Hunde.", "Ein Hund.\n", "\n"], ids=ascii)
def test_attention_of_several_lines_is_refused(workspace: Workspace, text: str) -> None:
    outcome = workspace.call("translate", RUN, "--text", text, "--head", "1")
    assert outcome == Outcome(2, b"", ONE_SENTENCE)


@pytest.mark.parametrize("text", ["", " ", "\u200b", "\t\r"], ids=ascii)
def test_attention_of_nothing_is_refused(workspace: Workspace, tmp_path: Path, text: str) -> None:
    outcome = workspace.call("translate", RUN, "--text", text, "--attention", tmp_path / "a.png")
    message = "error: the text is empty: there is nothing to look at; give a sentence\n"
    assert outcome == Outcome(2, b"", message)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a.pdf", "a", "a.jpg", ".png"])
def test_unknown_ending_is_refused_before_the_model_is_loaded(
    workspace: Workspace, tmp_path: Path, name: str
) -> None:
    path = tmp_path / name
    outcome = workspace.call("translate", "no/such/run", "--text", SENTENCE, "--attention", path)
    message = f"error: {path}: the file's ending says how to draw; use .png, .svg, .json\n"
    assert outcome == Outcome(2, b"", message)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--layer", "99"], "error: --layer 99: the model's cross-attention has layers 1 to 1\n"),
        (["--head", "3"], "error: --head 3: expected a number from 1 to 2, mean or all\n"),
        (["--head", "0"], "error: --head 0: expected a number from 1 to 2, mean or all\n"),
        (["--head", ""], "error: --head : expected a number from 1 to 2, mean or all\n"),
        (
            ["--layer", "2", "--attention-of", "encoder"],
            "error: --layer 2: the model's encoder self-attention has layers 1 to 1\n",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_layer_or_head_that_is_none_is_refused_and_nothing_written(
    workspace: Workspace, tmp_path: Path, args: list[str], message: str
) -> None:
    outcome = translate(workspace, "--attention", tmp_path / "a.json", *args)
    assert outcome == Outcome(2, b"", message)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "args", [["--layer", "0"], ["--layer", "last"], ["--attention-of", "both"]], ids=" ".join
)
def test_value_that_is_none_is_named(workspace: Workspace, args: list[str]) -> None:
    outcome = translate(workspace, *args)
    assert (outcome.code, outcome.out) == (2, b"")
    assert outcome.err.startswith(f"error: {args[0]}: ")


def test_place_that_cannot_be_written_exits_5(workspace: Workspace, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("precious")
    outcome = translate(workspace, "--attention", file / "x.json")
    assert outcome.code == 5
    assert outcome.err.startswith(f"error: {file / 'x.json'}: cannot be written: ")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("file", "precious")]


def test_translation_is_kept_when_the_picture_cannot_be_written(workspace: Workspace, tmp_path: Path) -> None:
    tmp_path.joinpath("a.json").mkdir()
    outcome = translate(workspace, "-o", tmp_path / "english.txt", "--attention", tmp_path / "a.json")
    assert outcome.code == 5
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "english.txt"]


def test_output_and_picture_in_one_file_are_refused(workspace: Workspace, tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    outcome = translate(workspace, "-o", file, "--attention", file)
    assert outcome.code == 2
    assert "two flags name the same file; give two files" in outcome.err
    assert not file.exists()
