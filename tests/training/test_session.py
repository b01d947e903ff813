"""What a session decides: which checkpoint is the best, when to score, when to end, and what it
does with numbers that are not finite and with checkpoints that are damaged.
"""

import json
import math
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import safetensors.torch
from damage import flip_a_bit, rehash
from trained import checkpoint, ended, records, sets, status, steps_of, train
from workspace import Workspace

from mt_cli.evaluation.scoring import score_bleu
from mt_cli.runs.opening import open_run
from mt_cli.training import trainer
from mt_cli.training.loss import Loss
from mt_cli.training.validator import Validation, Validator

EACH_UPDATE = sets("training.validate_every=1", "training.log_every=1")
SHORT = ("--max-steps", "12", *sets("training.validate_every=4"))
NAN = float("nan")

Script = Callable[..., None]
Disturb = Callable[..., None]


# Decisions, of which each can be worked out by hand because the scores are given


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    """Sets what validations find, by the number of the update from 1."""

    def write(*, bleu: Sequence[float], nll: Sequence[float] = ()) -> None:
        def validate(_: Validator, step: int, on_progress: object = None) -> Validation:
            score = replace(score_bleu(["a dog"], ["a dog"], lang="en"), score=bleu[step - 1])
            return Validation(step, nll[step - 1] if nll else 1.0, score, ["a dog"] * 20)

        monkeypatch.setattr(Validator, "validate", validate)

    return write


@pytest.mark.parametrize(("best_by", "best"), [("loss", 2), ("bleu", 3)])
def test_best_checkpoint_has_the_lowest_loss_or_the_highest_bleu(
    workspace: Workspace, run: Path, script: Script, best_by: str, best: int
) -> None:
    script(nll=[3.0, 1.0, 2.0, 4.0], bleu=[1.0, 2.0, 5.0, 3.0])
    flags = (*EACH_UPDATE, *sets(f"training.best_by={best_by}"), "--max-steps", 4)
    assert train(workspace, run, *flags).code == 0
    assert (run / "best.txt").read_text() == f"step-{best:08d}\n"
    assert status(run)["best_step"] == best


def test_loss_on_val_far_above_that_of_guessing_is_divergence(
    workspace: Workspace, run: Path, script: Script
) -> None:
    most = 3 * math.log(open_run(workspace.run).tokenizers.tgt.vocab_size)
    script(bleu=[1.0] * 3, nll=[most - 0.01, most + 0.01, 1.0])
    outcome = train(workspace, run, *EACH_UPDATE, "--max-steps", 3)
    assert (outcome.code, outcome.out) == (4, b"")
    assert status(run)["state"] == "diverged"
    assert (run / "best.txt").read_text() == (run / "last.txt").read_text() == "step-00000001\n"


def test_patience_counts_validations_in_a_row_and_holds_after_a_resume(
    workspace: Workspace, run: Path, script: Script
) -> None:
    # Of equal BLEU, the lower loss is better.
    script(bleu=[6.0, 4.0, 6.0, 6.0, 5.0, 9.0], nll=[2.0, 1.0, 1.0, 1.1, 1.0, 1.0])
    patient = (*EACH_UPDATE, *sets("training.patience=2"), "--max-steps", 6)
    assert train(workspace, run, *patient).code == 0
    assert (*ended(run), status(run)["best_step"]) == ("early_stop", 5, 3)
    assert train(workspace, run, *patient, "--resume").code == 0
    assert (*ended(run), status(run)["best_step"]) == ("early_stop", 5, 3)


def test_a_validation_at_a_time_limit_does_not_use_up_patience(
    workspace: Workspace, run: Path, script: Script, end_time_after: Callable[[float], None]
) -> None:
    script(bleu=[0.0, 29.0, 28.0, 30.1, 0.0, 30.15])
    flags = (*sets("training.validate_every=2", "training.patience=1"), "--max-steps", 6)
    end_time_after(3)
    assert train(workspace, run, *flags, "--time-limit", "1h").code == 0
    assert ended(run) == ("time_limit", 3)
    assert train(workspace, run, *flags, "--resume").code == 0
    assert (*ended(run), status(run)["best_step"]) == ("finished", 6, 6)


def test_without_an_interval_each_epoch_ends_with_a_validation(
    workspace: Workspace, run: Path
) -> None:
    flags = sets("training.validate_every=0", "training.max_epochs=3", "training.log_every=1")
    assert train(workspace, run, *flags).code == 0
    last_of_epoch = {each["epoch"]: each["step"] for each in records(run, "step")}
    assert sorted(last_of_epoch) == [1, 2, 3]
    assert steps_of(run, "validation") == list(last_of_epoch.values())


def test_time_of_earlier_sessions_counts_but_not_against_the_limit(
    workspace: Workspace, run: Path
) -> None:
    assert train(workspace, run, "--max-steps", 2).code == 0
    state = json.loads(checkpoint(run).joinpath("state.json").read_bytes())
    rehash(checkpoint(run), "state.json", json.dumps({**state, "elapsed_s": 1e6}).encode())
    assert train(workspace, run, "--max-steps", 4, "--resume", "--time-limit", "1h").code == 0
    assert ended(run) == ("finished", 4)
    assert 1e6 < status(run)["elapsed_s"] < 1e6 + 3600


# Numbers that are not finite


def spoil_gradient(loss: Loss) -> None:
    """The loss stays finite."""
    loss.minimized.register_hook(lambda gradient: gradient * NAN)  # type: ignore[no-untyped-call]


def send_sigterm(_: Loss) -> None:
    signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize(("log_every", "found_at"), [(1, 6), (100, 8)], ids=["logged", "unlogged"])
def test_gradient_of_nan_ends_training_at_the_next_look(
    workspace: Workspace, run: Path, disturb: Disturb, log_every: int, found_at: int
) -> None:
    disturb({6}, spoil_gradient)
    outcome = train(workspace, run, *SHORT, *sets(f"training.log_every={log_every}"))
    assert (outcome.code, outcome.out) == (4, b"")
    assert "the last good checkpoint is kept; lower training.peak_lr" in outcome.err
    assert ended(run) == ("diverged", found_at)
    assert checkpoint(run).name == "step-00000004"


def test_signal_after_a_gradient_of_nan_saves_no_such_weights(
    workspace: Workspace, run: Path, disturb: Disturb
) -> None:
    def spoil_gradient_and_stop(loss: Loss) -> None:
        spoil_gradient(loss)
        send_sigterm(loss)

    disturb({6}, spoil_gradient_and_stop)
    assert train(workspace, run, *SHORT).code == 4
    assert checkpoint(run).name == "step-00000004"
    tensors = safetensors.torch.load_file(checkpoint(run) / "model.safetensors")
    assert all(bool(tensor.isfinite().all()) for tensor in tensors.values())
    disturb((), send_sigterm)
    assert train(workspace, run, *SHORT, "--resume").code == 0
    assert status(run)["state"] == "finished"


# Damaged checkpoints


@pytest.fixture
def resumable(workspace: Workspace, run: Path) -> Path:
    """A run whose last checkpoint, of step 8, is another than its best, of step 4."""
    flags = (*sets("training.validate_every=4", "training.peak_lr=1e-30"), "--max-steps", 8)
    assert train(workspace, run, *flags).code == 0
    assert checkpoint(run, "best").name == "step-00000004"
    assert checkpoint(run).name == "step-00000008"
    return run


def with_nan(folder: Path) -> None:
    """Put a NaN among the weights, with sums that fit."""
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    next(iter(tensors.values())).view(-1)[0] = NAN
    rehash(folder, "model.safetensors", safetensors.torch.save(tensors))


def without_a_tensor(folder: Path) -> None:
    """Leave one of the optimizer's tensors out, with sums that fit."""
    tensors = safetensors.torch.load_file(folder / "state.safetensors")
    del tensors[next(name for name in tensors if name.endswith(":exp_avg"))]
    rehash(folder, "state.safetensors", safetensors.torch.save(tensors))


def with_a_flipped_bit(folder: Path) -> None:
    flip_a_bit(folder / "state.safetensors")


@pytest.mark.parametrize("damage", [with_nan, without_a_tensor, with_a_flipped_bit])
def test_resume_falls_back_to_the_newest_checkpoint_that_is_whole_and_finite(
    workspace: Workspace, resumable: Path, damage: Callable[[Path], None]
) -> None:
    damage(checkpoint(resumable))
    outcome = train(workspace, resumable, *SHORT, "--resume")
    assert outcome.code == 0, outcome.err
    assert f"warning: {resumable / 'checkpoints' / 'step-00000008'}" in outcome.err
    assert "warning: training continues from step-00000004" in outcome.err
    assert steps_of(resumable, "validation") == [4, 8, 12]
    assert checkpoint(resumable).name == "step-00000012"


def test_resume_without_a_usable_checkpoint_says_so_and_changes_nothing(
    workspace: Workspace, resumable: Path
) -> None:
    for folder in resumable.glob("checkpoints/*"):
        with_nan(folder)
    before = {path: path.read_bytes() for path in resumable.rglob("*.safetensors")}
    outcome = train(workspace, resumable, *SHORT, "--resume")
    assert (outcome.code, outcome.out) == (3, b"")
    assert "no other usable checkpoint; train again" in outcome.err
    assert {path: path.read_bytes() for path in resumable.rglob("*.safetensors")} == before


# Signals


def test_signal_in_start_up_leaves_a_run_that_says_so_and_can_be_resumed(
    workspace: Workspace, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count_steps = trainer.Trainer._count_steps

    def interrupted(self: trainer.Trainer) -> int:
        signal.raise_signal(signal.SIGTERM)
        return count_steps(self)

    with monkeypatch.context() as patch:
        patch.setattr(trainer.Trainer, "_count_steps", interrupted)
        outcome = train(workspace, run, *SHORT)
    assert (outcome.code, outcome.out) == (143, b"")
    assert "error" not in outcome.err
    assert "stopped before the first update; start it with --resume: mt-cli train" in outcome.err
    assert ended(run) == ("stopped", 0)
    assert train(workspace, run, *SHORT, "--resume").code == 0


def test_a_signal_after_the_last_update_stops_nothing(
    workspace: Workspace, run: Path, disturb: Disturb
) -> None:
    disturb({12}, send_sigterm)
    assert train(workspace, run, *SHORT).code == 0
    assert ended(run) == ("finished", 12)
