"""Sealing a run of an early version: all of it, and only once it is known to be whole."""

import json
from pathlib import Path

import pytest
from damage import without_seal
from workspace import Workspace

from mt_cli.artefacts.run import open_run
from mt_cli.artefacts.run_seals import seal_run
from mt_cli.errors import DataError, UsageError


@pytest.fixture
def run(workspace: Workspace, tmp_path: Path) -> Path:
    """A run with checkpoints and a kept evaluation."""
    folder = workspace.copy_run(tmp_path / "tiny")
    outcome = workspace.call("evaluate", folder, "--data", workspace.prepared, "--quiet")
    assert outcome.code == 0, outcome.err
    return folder


def documents(run: Path) -> list[Path]:
    """All that has a seal in `run`."""
    patterns = (
        "manifest.json", "checkpoints/*/manifest.json", "eval/*/scores.json", "status.json", "env.json",
    )  # fmt: skip
    found = [path for pattern in patterns for path in sorted(run.glob(pattern))]
    assert len(found) >= len(patterns)
    return found


def test_sealing_restores_every_seal_of_a_run(run: Path) -> None:
    before = {path: without_seal(path) for path in documents(run)}
    assert seal_run(run) == documents(run)
    assert {path: path.read_bytes() for path in documents(run)} == before


def test_a_sealed_run_stays_as_it_is(run: Path) -> None:
    before = {path: path.stat().st_ino for path in documents(run)}
    assert seal_run(run) == []
    assert {path: path.stat().st_ino for path in documents(run)} == before


def test_the_lines_of_metrics_are_sealed_too(run: Path) -> None:
    metrics = run / "metrics.jsonl"
    before = metrics.read_bytes()
    lines = [json.loads(line) for line in before.splitlines()]
    unsealed = [{key: value for key, value in line.items() if key != "seal"} for line in lines]
    metrics.write_text("".join(f"{json.dumps(line)}\n" for line in unsealed))
    assert seal_run(run) == [metrics]
    assert metrics.read_bytes() == before


@pytest.mark.parametrize(
    "damaged",
    [
        "config.toml",
        "tokenizer/*.model",
        "checkpoints/*/model.safetensors",
        "checkpoints/*/state.json",
        "eval/*/hyp.txt",
        "metrics.jsonl",
    ],
)
def test_nothing_of_a_damaged_run_is_sealed(run: Path, damaged: str) -> None:
    for document in documents(run):
        without_seal(document)
    before = {path: path.read_bytes() for path in documents(run)}
    path = next(run.glob(damaged))
    path.write_bytes(path.read_bytes().replace(b"e", b"f", 1))
    with pytest.raises(DataError, match="altered"):
        seal_run(run)
    assert {path: path.read_bytes() for path in documents(run)} == before


def test_kept_texts_of_before_hashes_do_not_keep_a_run_from_being_sealed(run: Path) -> None:
    (scores,) = run.glob("eval/*/scores.json")
    scores.write_text('{"bleu": {}, "checkpoint": "step-00000001"}', encoding="utf-8")
    assert seal_run(run) == [scores]


def test_a_run_that_is_being_trained_is_not_sealed(run: Path) -> None:
    without_seal(run / "manifest.json")
    with open_run(run, warns=False).locked(), pytest.raises(UsageError, match="training"):
        seal_run(run)


def test_what_is_no_run_is_not_sealed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no run folder"):
        seal_run(tmp_path)
