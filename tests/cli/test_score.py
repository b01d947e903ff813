"""The `score` command: as many scores as pairs, and those that `translate` gives its own output."""

import json
from pathlib import Path

import pytest
from workspace import Outcome, Workspace

FILES = ("--src", "corpus/train.de", "--tgt", "corpus/train.en")


def score(workspace: Workspace, *args: object, stdin: bytes = b"") -> Outcome:
    return workspace.call("score", *args, stdin=stdin)


@pytest.mark.parametrize("runs", [1, 2], ids=["one run", "ensemble"])
def test_scores_are_those_that_translate_gives_its_own_output(
    workspace: Workspace, tmp_path: Path, runs: int
) -> None:
    other = tmp_path / "other"
    settings = ("--run", other, "--data", workspace.prepared, "--seed", 7, "--max-steps", 60)
    if runs == 2:
        assert workspace.call("train", "tiny.toml", *settings).code == 0
    named = ["runs/tiny", other][:runs]
    search = ("--beam-size", 2, "--length-penalty", 0, "--with-score", "-i", "corpus/val.de")
    translated = workspace.call("translate", *named, *search)
    scores, texts = zip(*(line.split("\t") for line in translated.lines), strict=True)
    out = tmp_path / "out.en"
    out.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    outcome = score(workspace, *named, "--src", "corpus/val.de", "--tgt", out)
    assert outcome.code == 0, outcome.err
    # The first line is longer than the model's limit: `translate` splits it, and a pair cannot be
    # split.
    assert outcome.lines[0] == "-inf"
    assert list(map(float, outcome.lines[1:])) == pytest.approx(
        list(map(float, scores[1:])), abs=2e-4
    )


def test_one_line_for_each_pair_whatever_it_holds(workspace: Workspace, tmp_path: Path) -> None:
    src, tgt = tmp_path / "src", tmp_path / "tgt"
    src.write_bytes(b"Ein Hund.\n\nEin\xff Mann.\r\n" + b"Ein " * 500 + b"\n\nEin Hund.")
    tgt.write_bytes(b"A dog.\n\n\nA man.\nA dog.\nA dog.\n")
    outcome = score(workspace, "runs/tiny", "--src", src, "--tgt", tgt)
    first, nothing, _, too_long, from_nothing, last = outcome.lines
    assert (nothing, too_long, from_nothing) == ("0.0000", "-inf", "-inf")
    assert first == last
    assert "warning: line 4: " in outcome.err
    assert "warning: source line 3: not valid UTF-8; " in outcome.err


def test_json_is_a_document_a_line_and_has_no_infinity(workspace: Workspace) -> None:
    outcome = score(workspace, "runs/tiny", *FILES, "--json")
    documents = [json.loads(line) for line in outcome.lines]
    assert documents[0]["score"] is None
    assert list(documents[1]) == ["source", "translation", "score", "log_prob", "tokens"]
    sources = workspace.corpus("train.de").read_text(encoding="utf-8").split("\n")[:-1]
    assert [each["source"] for each in documents] == sources


@pytest.mark.parametrize("flag", ["--src", "--tgt"])
def test_either_side_may_come_from_stdin(workspace: Workspace, flag: str) -> None:
    names = dict(zip(FILES[::2], FILES[1::2], strict=True))
    stdin = (workspace.folder / names[flag]).read_bytes()
    flags = [part for pair in {**names, flag: "-"}.items() for part in pair]
    assert (
        score(workspace, "runs/tiny", *flags, stdin=stdin).out
        == score(workspace, "runs/tiny", *FILES).out
    )


def test_files_of_unequal_length_exit_3_before_anything_is_printed(workspace: Workspace) -> None:
    outcome = score(workspace, "runs/tiny", "--src", "corpus/train.de", "--tgt", "corpus/test.en")
    assert outcome == Outcome(
        3,
        b"",
        "error: corpus/test.en: 20 lines, but corpus/train.de has 25; the files must align line "
        "by line\n",
    )
