"""What a session decides: which checkpoint is the best, when to score, and when to end.

The scores of the validation split are given, so that each decision can be worked out by hand.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from damage import rehash
from tiny import CPU
from workspace import Outcome, Workspace

from mt_cli.data.prepared import open_prepared
from mt_cli.errors import DataError
from mt_cli.evaluation.scoring import score_bleu
from mt_cli.runs.opening import open_run
from mt_cli.training.distributed import World
from mt_cli.training.session import Session, TimeLimit
from mt_cli.training.validator import Validation, Validator

EACH_UPDATE = ("--set", "training.validate_every=1", "--set", "training.log_every=1")

Script = Callable[..., None]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    """Sets what validations find, by the number of the update from 1."""

    def write(*, bleu: Sequence[float], nll: Sequence[float] = ()) -> None:
        def validate(_: Validator, step: int, on_progress: object = None) -> Validation:
            score = replace(score_bleu(["a dog"], ["a dog"], lang="en"), score=bleu[step - 1])
            return Validation(step, nll[step - 1] if nll else 1.0, score, ["a dog"], [])

        monkeypatch.setattr(Validator, "validate", validate)

    return write


def train(workspace: Workspace, run: Path, *args: object) -> Outcome:
    return workspace.call("train", "tiny.toml", "--run", run, *args)


def status(run: Path) -> dict[str, object]:
    found = json.loads(run.joinpath("status.json").read_bytes())
    assert isinstance(found, dict)
    return found


def steps_of(run: Path, kind: str) -> list[tuple[int, int]]:
    """Step, and epoch where there is one, of each line of that kind in metrics.jsonl."""
    lines = [json.loads(line) for line in run.joinpath("metrics.jsonl").read_text().splitlines()]
    return [(line["step"], line.get("epoch", 0)) for line in lines if line["kind"] == kind]


@pytest.mark.parametrize(("best_by", "best"), [("loss", 2), ("bleu", 3)])
def test_best_checkpoint_has_the_lowest_loss_or_the_highest_bleu(
    workspace: Workspace, tmp_path: Path, script: Script, best_by: str, best: int
) -> None:
    script(nll=[3.0, 1.0, 2.0, 4.0], bleu=[1.0, 2.0, 5.0, 3.0])
    run = tmp_path / "run"
    outcome = train(
        workspace, run, *EACH_UPDATE, "--set", f"training.best_by={best_by}", "--max-steps", 4
    )
    assert outcome.code == 0, outcome.err
    assert (run / "best.txt").read_text() == f"step-{best:08d}\n"
    assert status(run)["best_step"] == best


def test_loss_on_val_far_above_that_of_guessing_is_divergence(
    workspace: Workspace, tmp_path: Path, script: Script
) -> None:
    most = 3 * math.log(open_run(workspace.run).tokenizers.tgt.vocab_size)
    script(bleu=[1.0] * 3, nll=[most - 0.01, most + 0.01, 1.0])
    run = tmp_path / "run"
    outcome = train(workspace, run, *EACH_UPDATE, "--max-steps", 3)
    assert (outcome.code, outcome.out) == (4, b"")
    assert status(run)["state"] == "diverged"
    assert (run / "best.txt").read_text() == (run / "last.txt").read_text() == "step-00000001\n"


def test_of_equal_bleu_the_lower_loss_is_better_and_keeps_patience(
    workspace: Workspace, tmp_path: Path, script: Script
) -> None:
    script(bleu=[0.0] * 6, nll=[5.0, 4.0, 3.0, 3.5, 3.1, 2.0])
    run, patient = tmp_path / "run", ("--set", "training.patience=2", "--max-steps", 6)
    assert train(workspace, run, *EACH_UPDATE, *patient).code == 0
    ended = status(run)
    assert (ended["state"], ended["step"], ended["best_step"]) == ("early_stop", 5, 3)


def test_patience_counts_validations_in_a_row_and_holds_after_a_resume(
    workspace: Workspace, tmp_path: Path, script: Script
) -> None:
    script(bleu=[5.0, 4.0, 6.0, 5.0, 4.0, 9.0])
    run, patient = tmp_path / "run", ("--set", "training.patience=2", "--max-steps", 6)
    assert train(workspace, run, *EACH_UPDATE, *patient).code == 0
    ended = status(run)
    assert (ended["state"], ended["step"], ended["best_step"]) == ("early_stop", 5, 3)
    assert train(workspace, run, *EACH_UPDATE, *patient, "--resume").code == 0
    again = status(run)
    assert (again["state"], again["step"], again["best_step"]) == ("early_stop", 5, 3)


def test_a_validation_at_a_time_limit_does_not_use_up_patience(
    workspace: Workspace, tmp_path: Path, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An uninterrupted training compares update 4 with 2, so a resumed one does so too."""
    script(bleu=[0.0, 29.0, 30.2, 30.1, 0.0, 30.15])
    run = tmp_path / "run"
    flags = ("--set", "training.validate_every=2", "--set", "training.patience=1")
    steps = iter([1, 1, 2, 2, 3, 3])
    with monkeypatch.context() as patch:  # each update asks twice
        patch.setattr(TimeLimit, "left_s", lambda _: 2.5 - next(steps))
        assert train(workspace, run, *flags, "--max-steps", 6, "--time-limit", "1h").code == 0
    assert (status(run)["state"], status(run)["step"]) == ("time_limit", 3)
    assert train(workspace, run, *flags, "--max-steps", 6, "--resume").code == 0
    ended = status(run)
    assert (ended["state"], ended["step"], ended["best_step"]) == ("finished", 6, 3)


def test_only_the_first_process_reads_checkpoints(workspace: Workspace, tmp_path: Path) -> None:
    """The others get what it read, so all begin alike, however late one of them comes."""
    folder = workspace.copy_run(tmp_path / "run")
    for checkpoint in folder.glob("checkpoints/*/model.safetensors"):
        checkpoint.unlink()
    run = open_run(folder)
    prepared = open_prepared(workspace.prepared, run.config)

    def begin(world: World) -> Session:
        limit = TimeLimit(began_at=0.0, seconds=None, validates_at_end=True)
        return Session(run, prepared, CPU, world, environment={}, time_limit=limit)

    begin(World(rank=1, size=2))
    with pytest.raises(DataError, match=r"model\.safetensors"):
        begin(World(rank=0, size=2))


def test_without_an_interval_each_epoch_ends_with_a_validation(
    workspace: Workspace, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    options = ("training.validate_every=0", "training.max_epochs=3", "training.log_every=1")
    flags = [flag for option in options for flag in ("--set", option)]
    assert train(workspace, run, *flags).code == 0
    last_of_epoch = {epoch: step for step, epoch in steps_of(run, "step")}
    assert sorted(last_of_epoch) == [1, 2, 3]
    assert [step for step, _ in steps_of(run, "validation")] == list(last_of_epoch.values())


def test_time_of_earlier_sessions_counts_but_not_against_the_limit(
    workspace: Workspace, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    assert train(workspace, run, "--max-steps", 2).code == 0
    checkpoint = run / "checkpoints" / "step-00000002"
    state = json.loads(checkpoint.joinpath("state.json").read_bytes())
    rehash(checkpoint, "state.json", json.dumps({**state, "elapsed_s": 1e6}).encode())
    assert train(workspace, run, "--max-steps", 4, "--resume", "--time-limit", "1h").code == 0
    ended = status(run)
    assert (ended["state"], ended["step"]) == ("finished", 4)
    assert isinstance(ended["elapsed_s"], float)
    assert 1e6 < ended["elapsed_s"] < 1e6 + 3600
