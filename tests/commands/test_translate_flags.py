"""`translate` on the command line: repetitions, unknown words, alignments and samples."""

import json
import shutil
from pathlib import Path

import pytest
from workspace import Outcome, Workspace

RUN = "runs/tiny"
LINES = "Ein Hund.\n\nEin Mann schläft auf einer Bank.\n".encode()
OPTIONS = ["--temperature", "--top-k", "--top-p", "--seed"]


def translate(workspace: Workspace, *args: object, stdin: bytes = LINES) -> Outcome:
    return workspace.call("translate", RUN, *args, stdin=stdin)


@pytest.mark.parametrize("search", [(), ("--beam-size", 3)], ids=["greedy", "beam"])
def test_no_token_occurs_twice_where_none_may(
    workspace: Workspace, search: tuple[object, ...]
) -> None:
    lines = workspace.corpus("test.de").read_bytes().splitlines(keepends=True)
    source = b"".join(
        line for line in lines if len(line) < 60
    )  # parts of a longer one may repeat each other
    outcome = translate(workspace, "--no-repeat-ngram", 1, "--json", *search, stdin=source)
    tokens = [json.loads(line)["tokens"]["translation"] for line in outcome.lines]
    assert [each for each in tokens if len(set(each)) < len(each)] == []
    usual = [
        json.loads(line) for line in translate(workspace, "--json", *search, stdin=source).lines
    ]
    assert any(
        len(set(each["tokens"]["translation"])) < len(each["tokens"]["translation"])
        for each in usual
    )


def test_alignment_and_a_tab_stand_after_each_translation(workspace: Workspace) -> None:
    outcome = translate(workspace, "--with-alignment")
    assert (outcome.code, outcome.err) == (0, "")
    fields = [line.split("\t") for line in outcome.lines]
    assert [text for text, _ in fields] == translate(workspace).lines
    records = [json.loads(line) for line in translate(workspace, "--json").lines]
    pairs = [
        [[int(place) for place in pair.split("-")] for pair in each.split()] for _, each in fields
    ]
    assert pairs == [record["alignment"] for record in records]
    assert fields[1] == ["", ""]


def test_json_holds_all_that_is_known_of_a_line(workspace: Workspace) -> None:
    outcome = translate(workspace, "--json")
    first, empty, third = (json.loads(line) for line in outcome.lines)
    assert list(third) == ["source", "translation", "score", "n_best", "tokens", "alignment"]
    assert third["source"] == "Ein Mann schläft auf einer Bank."
    tokens = third["tokens"]
    assert list(tokens) == ["source", "translation"]
    assert "".join(tokens["translation"]).replace("▁", " ").strip() == third["translation"]
    assert "".join(tokens["source"]).replace("▁", " ").strip() == third["source"]
    assert [tgt for _, tgt in third["alignment"]] == list(range(len(tokens["translation"])))
    assert {src for src, _ in third["alignment"]} <= set(range(len(tokens["source"])))
    assert first["n_best"] == [{"translation": first["translation"], "score": first["score"]}]
    assert empty == {
        "source": "",
        "translation": "",
        "score": 0.0,
        "n_best": [{"translation": "", "score": 0.0}],
        "tokens": {"source": [], "translation": []},
        "alignment": [],
    }


def sample(workspace: Workspace, *args: object, stdin: bytes = LINES) -> list[str]:
    outcome = translate(workspace, "--sample", "--temperature", 2, *args, stdin=stdin)
    assert (outcome.code, outcome.err) == (0, "")
    return outcome.lines


def test_same_seed_gives_the_same_samples_and_another_others(workspace: Workspace) -> None:
    assert sample(workspace, "--seed", 7) == sample(workspace, "--seed", 7)
    assert sample(workspace, "--seed", 7) != sample(workspace, "--seed", 8)


def test_each_line_has_as_many_samples_as_asked_for(workspace: Workspace) -> None:
    lines = sample(workspace, "--n-best", 4)
    assert len(lines) == 3 * 4
    assert len(set(lines[:4])) > 1
    assert lines[4:8] == [""] * 4


@pytest.mark.parametrize("option", OPTIONS)
def test_option_of_samples_without_samples_is_refused(workspace: Workspace, option: str) -> None:
    outcome = translate(workspace, option, 1)
    assert outcome == Outcome(2, b"", f"error: {option} is an option of --sample; give that too\n")


@pytest.mark.parametrize(
    "args",
    [
        ["--sample", "--temperature", "0"],
        ["--sample", "--temperature", "hot"],
        ["--sample", "--temperature", "inf"],
        ["--sample", "--top-k", "-1"],
        ["--sample", "--top-p", "1.1"],
        ["--sample", "--top-p", "-0.1"],
        ["--sample", "--seed", "-1"],
        ["--no-repeat-ngram", "-1"],
        ["--no-repeat-ngram", "two"],
    ],
    ids=" ".join,
)
def test_value_that_is_none_is_named(workspace: Workspace, args: list[str]) -> None:
    outcome = translate(workspace, *args)
    assert (outcome.code, outcome.out) == (2, b"")
    assert outcome.err.startswith(f"error: {args[-2]}: expected ")


@pytest.fixture(scope="module")
def few_words(workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run whose vocabulary is so small that nearly every word is unknown."""
    folder = tmp_path_factory.mktemp("few-words")
    shutil.copytree(workspace.folder / "corpus", folder / "corpus")
    shutil.copy(workspace.folder / "tiny.toml", folder / "words.toml")
    words = ("tokenizer.kind=spacy", "tokenizer.vocab_size=12")
    settings = [part for each in (*words, "training.max_epochs=2") for part in ("--set", each)]
    for verb in ("prepare", "train"):
        outcome = workspace.call(verb, "words.toml", *settings, "--quiet", cwd=folder)
        assert outcome.code == 0, outcome.err
    return folder


@pytest.mark.parametrize(
    "search", [(), ("--beam-size", 2, "--length-penalty", 3)], ids=["greedy", "beam"]
)
def test_words_of_the_source_stand_for_unknown_ones_unless_switched_off(
    workspace: Workspace, few_words: Path, search: tuple[object, ...]
) -> None:
    def lines(*args: object) -> list[str]:
        stdin = b"Xylophon Giraffe\n"
        return workspace.call(
            "translate", "runs/words", *search, *args, stdin=stdin, cwd=few_words
        ).lines

    (usual,), (without,) = lines(), lines("--no-replace-unk")
    assert {"Xylophon", "Giraffe"} & set(usual.split())
    assert not {"Xylophon", "Giraffe"} & set(without.split())
    assert "<unk>" not in usual + without
    assert lines("--replace-unk") == [usual]
