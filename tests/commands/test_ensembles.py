"""Several runs on the command line, which predict together."""

import json
from pathlib import Path

import pytest
from workspace import Workspace

from mt_cli import Translator

LINES = b"Ein Hund.\n\nEin Mann schl\xc3\xa4ft.\n"


@pytest.fixture
def other(workspace: Workspace, tmp_path: Path) -> Path:
    """A run of the same vocabulary that was trained otherwise, and less."""
    run = tmp_path / "other"
    settings = ("--set", "model.d_model=16", "--seed", 7, "--max-steps", 20)
    outcome = workspace.call(
        "train", "tiny.toml", "--run", run, "--data", workspace.prepared, *settings
    )
    assert outcome.code == 0, outcome.err
    return run


@pytest.mark.parametrize(
    "search",
    [
        (),
        ("--beam-size", 3, "--with-alignment"),
        ("--beam-size", 2, "--n-best", 2),
        ("--backend", "torch"),
        ("--sample",),
    ],
)
def test_a_run_and_its_copy_translate_like_the_run(
    workspace: Workspace, tmp_path: Path, search: tuple[object, ...]
) -> None:
    copy = workspace.copy_run(tmp_path / "copy")
    alone = workspace.call("translate", "runs/tiny", *search, stdin=LINES)
    together = workspace.call("translate", "runs/tiny", copy, *search, stdin=LINES)
    assert (together.code, together.lines) == (0, alone.lines)


def test_evaluate_keeps_the_scores_of_an_ensemble_apart(
    workspace: Workspace, other: Path, tmp_path: Path
) -> None:
    run = workspace.copy_run(tmp_path / "run")
    outcome = workspace.call(
        "evaluate", run, other, "--data", workspace.prepared, "--split", "val", "--json"
    )
    assert outcome.code == 0, outcome.err
    (folder,) = run.joinpath("eval").glob("[!.]*")
    assert folder.name.startswith("val-greedy-with-other-")
    saved = json.loads((folder / "scores.json").read_bytes())
    (member,) = saved["with"]
    assert (member["run"], member["checkpoint"]) == ("other", "step-00000020")
    assert saved["bleu"] == json.loads(outcome.text)["splits"]["val"]["bleu"]
    sources = (folder / "src.txt").read_text(encoding="utf-8").splitlines()
    hyps = (folder / "hyp.txt").read_text(encoding="utf-8").splitlines()
    assert Translator.load([run, other]).translate(sources) == hyps
    assert not other.joinpath("eval").exists()


def test_runs_of_other_vocabularies_are_refused(workspace: Workspace, tmp_path: Path) -> None:
    small = tmp_path / "small.toml"
    text = (workspace.folder / "tiny.toml").read_text(encoding="utf-8")
    small.write_text(
        text.replace("vocab_size = 420", "vocab_size = 400").replace(
            "corpus/", f"{workspace.folder}/corpus/"
        ),
        encoding="utf-8",
    )
    for command in (["prepare", small], ["train", small, "--max-steps", 1]):
        assert workspace.call(*command, cwd=tmp_path).code == 0
    run = tmp_path / "runs" / "small"
    outcome = workspace.call("translate", "runs/tiny", run, stdin=LINES)
    assert (outcome.code, outcome.out) == (2, b"")
    assert f"{run}: its vocabulary is not that of runs/tiny" in outcome.err
