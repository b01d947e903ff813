"""The `score` command: as many scores as pairs, and those that `translate` gives its own output."""

import json
from pathlib import Path

import pytest
from workspace import Outcome, Workspace

RUN = "runs/tiny"
FILES = ("--src", "corpus/train.de", "--tgt", "corpus/train.en")


def score(workspace: Workspace, *args: object, stdin: bytes = b"") -> Outcome:
    return workspace.call("score", RUN, *args, stdin=stdin)


def test_scores_are_those_that_translate_gives_its_own_output(
    workspace: Workspace, tmp_path: Path
) -> None:
    search = ("--beam-size", 2, "--length-penalty", 0, "--with-score", "-i", "corpus/val.de")
    translated = [line.split("\t") for line in workspace.call("translate", RUN, *search).lines]
    out = tmp_path / "out.en"
    out.write_text("".join(f"{text}\n" for _, text in translated), encoding="utf-8")
    found = score(workspace, "--src", "corpus/val.de", "--tgt", out).lines
    # The first line exceeds the model's limit: `translate` splits it, and a pair cannot be split.
    assert found[0] == "-inf"
    expected = [float(score) for score, _ in translated[1:]]
    assert [float(score) for score in found[1:]] == pytest.approx(expected, abs=2e-4)


def test_one_line_for_each_pair_whatever_it_holds(workspace: Workspace, tmp_path: Path) -> None:
    src, tgt = tmp_path / "src", tmp_path / "tgt"
    src.write_bytes(b"Ein Hund.\n\nEin\xff Mann.\r\n" + b"Ein " * 500 + b"\n\nEin Hund.")
    tgt.write_bytes(b"A dog.\n\n\nA man.\nA dog.\nA dog.\n")
    outcome = score(workspace, "--src", src, "--tgt", tgt)
    first, nothing, _, too_long, from_nothing, last = outcome.lines
    assert (nothing, too_long, from_nothing) == ("0.0000", "-inf", "-inf")
    assert float(first) == pytest.approx(float(last), abs=2e-4)
    assert "warning: line 4: " in outcome.err
    assert "warning: source line 3: " in outcome.err


def test_json_is_a_document_a_line_and_has_no_infinity(workspace: Workspace) -> None:
    documents = [json.loads(line) for line in score(workspace, *FILES, "--json").lines]
    assert documents[0]["score"] is None
    assert list(documents[1]) == ["source", "translation", "score", "log_prob", "tokens"]
    sources = workspace.corpus("train.de").read_text(encoding="utf-8").splitlines()
    assert [each["source"] for each in documents] == sources


@pytest.mark.parametrize("place", [1, 3], ids=["sources", "targets"])
def test_either_side_may_come_from_stdin(workspace: Workspace, place: int) -> None:
    flags = list(FILES)
    stdin = (workspace.folder / flags[place]).read_bytes()
    flags[place] = "-"
    assert score(workspace, *flags, stdin=stdin) == score(workspace, *FILES)


def test_files_of_unequal_length_exit_3_before_anything_is_printed(workspace: Workspace) -> None:
    outcome = score(workspace, "--src", "corpus/train.de", "--tgt", "corpus/test.en")
    assert (outcome.code, outcome.out) == (3, b"")
    assert outcome.err.startswith("error: corpus/test.en: 20 ")
