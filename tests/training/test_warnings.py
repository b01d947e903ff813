"""Training that meets numbers that are not finite, or a checkpoint that is damaged: nothing good is
lost.
"""

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
from damage import rehash
from workspace import Outcome, Workspace

from mt_cli.data.batching import Batch
from mt_cli.model.model import TranslationModel
from mt_cli.training import trainer
from mt_cli.training.loss import Loss, batch_loss

SHORT = ("--max-steps", "12", "--set", "training.validate_every=4")
LOGGED = ("--set", "training.log_every=1")
SKIPPING = ("--set", "training.on_nonfinite='skip'")
NAN = float("nan")


def train(workspace: Workspace, run: Path, *args: object) -> Outcome:
    return workspace.call("train", "tiny.toml", "--run", run, *SHORT, *args)


def records(run: Path, kind: str) -> list[dict[str, object]]:
    """Lines of metrics.jsonl, without what a clock says."""
    lines = [json.loads(line) for line in run.joinpath("metrics.jsonl").read_text().splitlines()]
    dropped = ("kind", "elapsed_s", "tgt_tokens_per_s", "validation_s")
    return [
        {k: v for k, v in line.items() if k not in dropped}
        for line in lines
        if line["kind"] == kind
    ]


def status(run: Path) -> dict[str, object]:
    found = json.loads(run.joinpath("status.json").read_bytes())
    assert isinstance(found, dict)
    return found


def last(run: Path) -> Path:
    return run / "checkpoints" / run.joinpath("last.txt").read_text().strip()


def has_finite_weights(checkpoint: Path) -> bool:
    tensors = safetensors.torch.load_file(checkpoint / "model.safetensors")
    return all(bool(tensor.isfinite().all()) for tensor in tensors.values())


@pytest.fixture
def spoil(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Plants a gradient of NaN, with a finite loss, into the updates named; `then` is called in
    them.
    """

    def plant(steps: set[int], *, then: Callable[[], None] = lambda: None) -> None:
        made = 0

        def spoiled(model: TranslationModel, batch: Batch, **options: Any) -> Loss:  # noqa: ANN401
            nonlocal made
            loss = batch_loss(model, batch, **options)
            if not loss.minimized.requires_grad:
                return loss  # of a validation
            made += 1
            if made in steps:
                loss.minimized.register_hook(lambda gradient: gradient * NAN)  # type: ignore[no-untyped-call]
                then()
            return loss

        monkeypatch.setattr(trainer, "batch_loss", spoiled)

    return plant


def sigterm() -> None:
    signal.raise_signal(signal.SIGTERM)


def test_signal_after_a_gradient_of_nan_saves_no_such_weights(
    workspace: Workspace, tmp_path: Path, spoil: Callable[..., None]
) -> None:
    run = tmp_path / "run"
    spoil({6}, then=sigterm)
    outcome = train(workspace, run)
    assert outcome.code == 4
    assert (
        "step 6: the loss or the gradient is not finite; the last good checkpoint is kept"
        in outcome.err
    )
    assert last(run).name == "step-00000004"
    assert has_finite_weights(last(run))
    spoil(set())
    assert train(workspace, run, "--resume").code == 0
    assert status(run)["state"] == "finished"


@pytest.mark.parametrize("log_every", [1, 100], ids=["logged", "unlogged"])
def test_gradient_of_nan_ends_training_at_the_next_look(
    workspace: Workspace, tmp_path: Path, spoil: Callable[..., None], log_every: int
) -> None:
    run = tmp_path / "run"
    spoil({6})
    outcome = train(workspace, run, "--set", f"training.log_every={log_every}")
    assert (outcome.code, outcome.out) == (4, b"")
    assert (status(run)["state"], status(run)["step"]) == ("diverged", 6 if log_every == 1 else 8)
    assert last(run).name == "step-00000004"


def test_skipped_updates_are_counted_and_training_goes_on(
    workspace: Workspace, tmp_path: Path, spoil: Callable[..., None]
) -> None:
    run = tmp_path / "run"
    spoil({3, 6})
    outcome = train(workspace, run, *SKIPPING, "--set", "training.log_every=2")
    assert (outcome.code, status(run)["state"]) == (0, "finished"), outcome.err
    skipped = [record["skipped"] for record in records(run, "step")]
    assert skipped == [0, 1, 2, 2, 2, 2]
    assert "skipped 2" in run.joinpath("train.log").read_text()
    assert has_finite_weights(last(run))


@pytest.fixture
def resumable(workspace: Workspace, tmp_path: Path) -> Path:
    """A run whose last checkpoint, of step 8, is another than its best, of step 4."""
    run = tmp_path / "run"
    assert train(workspace, run, "--set", "training.peak_lr=1e-30", "--max-steps", 8).code == 0
    assert run.joinpath("best.txt").read_text() == "step-00000004\n"
    assert last(run).name == "step-00000008"
    return run


def with_nan(checkpoint: Path) -> None:
    """Put a NaN among the weights, with sums that fit."""
    tensors = safetensors.torch.load_file(checkpoint / "model.safetensors")
    next(iter(tensors.values())).view(-1)[0] = NAN
    rehash(checkpoint, "model.safetensors", safetensors.torch.save(tensors))


def without_a_tensor(checkpoint: Path) -> None:
    """Leave one of the optimiser's tensors out, with sums that fit."""
    tensors = safetensors.torch.load_file(checkpoint / "state.safetensors")
    del tensors[next(name for name in tensors if name.endswith(":exp_avg"))]
    rehash(checkpoint, "state.safetensors", safetensors.torch.save(tensors))


def with_a_tensor_that_lies_across(checkpoint: Path) -> None:
    """Transpose one of the optimiser's matrices, with sums that fit."""
    tensors = safetensors.torch.load_file(checkpoint / "state.safetensors")
    name = next(name for name, tensor in tensors.items() if len(set(tensor.shape)) == 2)
    tensors[name] = tensors[name].mT.contiguous()
    rehash(checkpoint, "state.safetensors", safetensors.torch.save(tensors))


def with_a_flipped_bit(checkpoint: Path) -> None:
    data = bytearray(checkpoint.joinpath("state.safetensors").read_bytes())
    data[-1] ^= 1
    checkpoint.joinpath("state.safetensors").write_bytes(data)


@pytest.mark.parametrize(
    "damage", [with_nan, without_a_tensor, with_a_tensor_that_lies_across, with_a_flipped_bit]
)
def test_resume_falls_back_to_the_newest_checkpoint_that_is_whole_and_finite(
    workspace: Workspace, resumable: Path, damage: Callable[[Path], None]
) -> None:
    damage(last(resumable))
    outcome = train(workspace, resumable, "--resume")
    assert outcome.code == 0, outcome.err
    assert f"warning: {last(resumable).parent / 'step-00000008'}" in outcome.err
    assert "warning: training continues from step-00000004" in outcome.err
    assert [record["step"] for record in records(resumable, "validation")] == [4, 8, 12]
    assert last(resumable).name == "step-00000012"


def test_resume_without_a_usable_checkpoint_says_so_and_changes_nothing(
    workspace: Workspace, resumable: Path
) -> None:
    for checkpoint in resumable.glob("checkpoints/*"):
        with_nan(checkpoint)
    before = {path: path.read_bytes() for path in resumable.rglob("*.safetensors")}
    outcome = train(workspace, resumable, "--resume")
    assert (outcome.code, outcome.out) == (3, b"")
    assert "nothing can be computed with it" in outcome.err
    assert "; no other checkpoint can be used: train anew" in outcome.err
    assert {path: path.read_bytes() for path in resumable.rglob("*.safetensors")} == before


def test_stop_within_a_log_window_changes_no_line_of_the_metrics(
    workspace: Workspace, tmp_path: Path, spoil: Callable[..., None]
) -> None:
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    windows = ("--set", "training.log_every=5", "--set", "training.validate_every=8")
    assert train(workspace, whole, *windows).code == 0
    made = 0

    def stop_in_the_seventh(model: TranslationModel, batch: Batch, **options: Any) -> Loss:  # noqa: ANN401
        nonlocal made
        made += 1
        if made == 7:
            sigterm()
        return batch_loss(model, batch, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "batch_loss", stop_in_the_seventh)
        assert train(workspace, stopped, *windows).code == 143
    assert status(stopped)["step"] == 7
    assert train(workspace, stopped, *windows, "--resume").code == 0
    assert [record["step"] for record in records(whole, "step")] == [5, 10, 12]
    assert records(stopped, "step") == records(whole, "step")
    assert records(stopped, "validation") == records(whole, "validation")


def test_signal_in_start_up_leaves_a_run_that_says_so_and_can_be_resumed(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    count_steps = trainer.Trainer._count_steps

    def interrupted(self: trainer.Trainer) -> int:
        sigterm()
        return count_steps(self)

    with monkeypatch.context() as patch:
        patch.setattr(trainer.Trainer, "_count_steps", interrupted)
        outcome = train(workspace, run)
    assert (outcome.code, outcome.out) == (143, b"")
    assert "error" not in outcome.err
    assert "stopped before the first update; --resume starts with it: mt-cli train" in outcome.err
    assert (status(run)["state"], status(run)["step"]) == ("stopped", 0)
    assert train(workspace, run, "--resume").code == 0
