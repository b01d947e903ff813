"""Run folders: made once, opened only when they are what they were, and what is found in them."""

import shutil
from pathlib import Path

import pytest
from runs_made import StandIn, add_checkpoint, making
from tiny import TINY

from mt_cli.config.schema import Config, DataConfig
from mt_cli.errors import DataError, UsageError
from mt_cli.runs.opening import open_run
from mt_cli.runs.reports import (
    StepRecord,
    ValidationRecord,
    append_metrics,
    read_metrics,
    truncate_metrics,
)
from mt_cli.runs.run import Run

CONFIG = Config(model=TINY, data=DataConfig(max_len=14))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    with making(tmp_path / "runs" / "first", CONFIG) as run:
        return run


def test_a_run_opens_as_it_was_made(run: Run) -> None:
    opened = open_run(run.folder)
    assert opened == run
    assert opened.config == CONFIG
    assert opened.manifest.prepared.sha256 == StandIn.sha256
    assert opened.manifest.lengths == StandIn.manifest.lengths
    assert not opened.is_exported


@pytest.mark.parametrize("name", ["config.toml", "tokenizer/tokenizer.json"])
def test_an_altered_file_is_named(run: Run, name: str) -> None:
    with (run.folder / name).open("ab") as file:
        file.write(b"\n")
    with pytest.raises(DataError, match=f"first/{name}: "):
        open_run(run.folder)


@pytest.mark.parametrize(
    "manifest",
    [
        '{"format": 1, "sha256": {}, "prepared": {"folder": "a", "sha256": "b"}}',
        '{"format": 2, "sha256": {}, "prepared": {}}',
        '{"format": 2, "sha256": {}, "prepared": {"folder": "a", "sha256": "b"}}',
    ],
    ids=["format 1", "no data", "no config"],
)
def test_a_manifest_of_another_kind_is_refused(run: Run, manifest: str) -> None:
    (run.folder / "manifest.json").write_text(manifest, encoding="utf-8")
    with pytest.raises(DataError, match=r"manifest\.json: "):
        open_run(run.folder)


# Checkpoints


@pytest.fixture
def trained(run: Run) -> Run:
    add_checkpoint(run, 100, pointers=("best",))
    add_checkpoint(run, 150)
    add_checkpoint(run, 200, pointers=("last",))
    return run


def test_the_newest_checkpoint_has_the_highest_number(run: Run) -> None:
    for step in (100_000_000, 99_999_999):
        add_checkpoint(run, step)
    assert run.checkpoints == ["step-99999999", "step-100000000"]
    assert run.resolve_checkpoint("last") == "step-100000000"  # without last.txt


@pytest.mark.parametrize(
    ("name", "folder"),
    [("best", "step-00000100"), ("last", "step-00000200"), ("step-00000150", "step-00000150")],
)
def test_checkpoints_are_found_by_name(trained: Run, name: str, folder: str) -> None:
    assert trained.checkpoint_folder(name) == trained.folder / "checkpoints" / folder


@pytest.mark.parametrize(
    "name",
    ["step-00000300", "", "..", "step-00000100\n", "step-\0", "step-" + "1" * 5000],
    ids=["not there", "empty", "above", "line end", "NUL", "long"],
)
def test_an_unknown_checkpoint_is_refused_with_those_there_are(trained: Run, name: str) -> None:
    with pytest.raises(UsageError, match="best, last, step-00000100, step-00000150, step-0000020"):
        trained.checkpoint_folder(name)


def test_pointer_to_what_is_gone_is_damage(trained: Run) -> None:
    shutil.rmtree(trained.folder / "checkpoints" / "step-00000100")
    with pytest.raises(DataError, match=r"best\.txt: .*step-00000100"):
        trained.checkpoint_folder("best")


def test_newer_checkpoint_than_the_one_just_saved_is_unused(trained: Run) -> None:
    trained.remove_unused_checkpoints(last="step-00000150")
    assert trained.checkpoints == ["step-00000100", "step-00000150"]


# metrics.jsonl

STEP = StepRecord(
    step=10, epoch=1, loss=3.5, nll=3.0, lr=0.1, grad_norm=1.0, tgt_tokens_per_s=9.0, skipped=0
)
LATER = ValidationRecord(
    step=12, nll=3.0, bleu=1.5, bleu_signature="", is_best=True, elapsed_s=9.0, validation_s=1.0
)


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    path = tmp_path / "metrics.jsonl"
    append_metrics(path, STEP)
    append_metrics(path, LATER)
    return path


@pytest.mark.parametrize("length", [1, 20])
def test_line_cut_short_is_left_out_and_forgotten(measured: Path, length: int) -> None:
    whole = measured.read_bytes()
    measured.write_bytes(whole + STEP.model_dump_json().encode()[:length])
    assert read_metrics(measured) == ([STEP], [LATER])
    truncate_metrics(measured, after_step=12)
    assert measured.read_bytes() == whole
    truncate_metrics(measured, after_step=11)
    assert read_metrics(measured) == ([STEP], [])


@pytest.mark.parametrize(
    "damaged",
    [b'{"kind": "st\n', b"\xff\xfe\n", b"[1]\n", b"{}\n", b'{"kind": "stop", "step": 1}\n'],
)
def test_damaged_line_is_named(measured: Path, damaged: bytes) -> None:
    measured.write_bytes(measured.read_bytes() + damaged)
    with pytest.raises(DataError, match=r"metrics\.jsonl: line 3: "):
        read_metrics(measured)
