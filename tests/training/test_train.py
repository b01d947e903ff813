"""The `train` command: limits, signals and resuming, and what a run folder holds afterwards."""

import json
import re
import shlex
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from started import Start
from torch import Tensor
from trained import checkpoint, ended, records, sets, status, steps_of, train, weights
from workspace import MT_CLI, TIMEOUT_S, Workspace

from mt_cli.config.load import load_config
from mt_cli.machine.locks import locked
from mt_cli.model.model import TranslationModel
from mt_cli.runs.checkpoint import checkpoint_name
from mt_cli.runs.opening import open_run
from mt_cli.runs.run import Run
from mt_cli.training import train as train_module
from mt_cli.training.loss import Loss

Disturb = Callable[..., None]

# Validations every 8 updates, about 4 an epoch: an end after 11 falls between two validations.
SHORT = (
    *sets("training.log_every=1", "training.validate_every=8"),
    *sets("training.r_drop=2", "training.weight_decay=0.1"),
    *("--max-steps", "20"),
)
FIRST_PART = 11
SOON = ("--time-limit", "0.001s")


@pytest.fixture
def finished(workspace: Workspace, run: Path) -> Path:
    """A copy of the workspace's run, to be changed."""
    return workspace.copy_run(run)


# Where training starts


def test_config_of_the_run_is_a_config_to_train_with(workspace: Workspace, run: Path) -> None:
    own = workspace.run / "config.toml"
    assert load_config(own) == load_config(workspace.folder / "tiny.toml")
    args = ("--run", run, "--data", workspace.prepared, "--max-steps", 2, "--json", "--quiet")
    outcome = workspace.call("train", own, *args)
    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out) == {"folder": str(run), **status(run)}
    assert (*ended(run), status(run)["best_step"]) == ("finished", 2, 2)


def test_existing_run_exits_2_and_names_the_ways_out(workspace: Workspace) -> None:
    outcome = train(workspace, Path("runs/tiny"))
    assert (outcome.code, outcome.out) == (2, b"")
    assert re.match(
        "error: runs/tiny already exists; .*--resume .*--overwrite .*--run ", outcome.err
    )


def test_overwrite_starts_anew(workspace: Workspace, finished: Path) -> None:
    finished.joinpath("eval").mkdir()
    assert train(workspace, finished, "--overwrite", "--max-steps", 2).code == 0
    assert not finished.joinpath("eval").exists()
    assert steps_of(finished, "validation") == [2]
    assert [path.name for path in finished.glob("checkpoints/*")] == ["step-00000002"]
    assert [path.name for path in finished.parent.glob("[!.]*")] == ["run"]


def test_a_prepared_folder_is_not_overwritten_for_a_run(workspace: Workspace, run: Path) -> None:
    shutil.copytree(workspace.prepared, run)
    outcome = train(workspace, run, "--overwrite")
    assert (outcome.code, outcome.out) == (2, b"")
    assert (run / "manifest.json").is_file()


@pytest.mark.parametrize("flag", ["--resume", "--overwrite"])
def test_run_that_another_process_trains_is_left_to_it(
    workspace: Workspace, finished: Path, flag: str
) -> None:
    with locked(finished):
        outcome = train(workspace, finished, flag)
    assert (outcome.code, outcome.out) == (2, b"")
    assert outcome.err.startswith(f"error: {finished}: another process ")
    assert weights(finished) == weights(workspace.run)


def test_resume_of_a_finished_run_changes_nothing(workspace: Workspace, finished: Path) -> None:
    """It may be named by its own config, anywhere."""
    outcome = workspace.call("train", finished / "config.toml", "--resume")
    assert (outcome.code, outcome.lines) == (0, [str(finished)])
    assert "to train longer, raise training.max_epochs" in outcome.err
    assert re.search(r"best +step \d+ of \d+: BLEU \d+\.\d\d on val", outcome.err)
    assert records(finished, "step") == records(workspace.run, "step")
    assert weights(finished) == weights(workspace.run)
    assert status(finished)["state"] == "finished"


@pytest.mark.parametrize(
    "option", ["training.optimizer=adam", "runtime.seed=99", "decoding.beam_size=2"]
)
def test_resume_with_another_kind_of_training_exits_2_and_names_the_key(
    workspace: Workspace, option: str
) -> None:
    outcome = train(workspace, workspace.run, "--resume", *sets(option))
    key, value = option.split("=")
    assert outcome.code == 2
    assert re.search(rf"{re.escape(key)} = .+, now \"?{value}\"?;", outcome.err)


def test_flag_wins_over_set_and_set_over_the_file(workspace: Workspace, run: Path) -> None:
    settings = sets("training.max_steps=9", "training.max_epochs=7")
    assert train(workspace, run, *settings, "--max-steps", 2, "--seed", 5).code == 0
    config = load_config(run / "config.toml")
    assert (config.training.max_steps, config.training.max_epochs, config.runtime.seed) == (2, 7, 5)
    assert status(run)["total_steps"] == 2


@pytest.mark.parametrize(("fp32_s", "expected"), [(0.2, "bf16"), (0.11, "fp32"), (0.05, "fp32")])
def test_auto_takes_what_a_trial_shows_and_a_resumed_run_keeps_it(
    workspace: Workspace,
    run: Path,
    monkeypatch: pytest.MonkeyPatch,
    fp32_s: float,
    expected: str,
) -> None:
    seconds = {torch.float32: fp32_s, torch.bfloat16: 0.1}
    now = 0.0
    hidden = TranslationModel.hidden

    def timed(model: TranslationModel, src_ids: Tensor, tgt_in: Tensor) -> Tensor:
        nonlocal now
        now += seconds[model.dtype]
        return hidden(model, src_ids, tgt_in)

    auto = ("--precision", "auto", "--max-steps")
    with monkeypatch.context() as patch:
        patch.setattr("mt_cli.machine.device.fast_bf16", lambda: "BF16")
        patch.setattr(
            train_module,
            "time",
            SimpleNamespace(perf_counter=lambda: now, monotonic=time.monotonic),
        )
        patch.setattr(TranslationModel, "hidden", timed)
        assert train(workspace, run, *auto, 2).code == 0
        seconds = {torch.float32: 0.1, torch.bfloat16: fp32_s}
        assert train(workspace, run, *auto, 4, "--resume").code == 0
        facts = json.loads((run / "env.json").read_bytes())
        assert (facts["precision"], "resumed" in facts) == (expected, False)
        other = "fp32" if expected == "bf16" else "bf16"
        resumed = train(workspace, run, "--resume", "--precision", other, "--max-steps", 6)
        assert "continuing with a changed value" in resumed.err
        resumed = train(workspace, run, *auto, 8, "--resume")  # keeps what it has now
        assert "runtime.precision" not in resumed.err
    assert open_run(run).latest_environment()["precision"] == other


def test_missing_gpu_exits_5(workspace: Workspace, run: Path) -> None:
    outcome = train(workspace, run, "--device", "cuda")
    assert (outcome.code, outcome.out) == (5, b"")
    assert outcome.err.startswith("error: no CUDA device found")
    assert outcome.err.endswith("; use --device cpu or --device auto\n")


def test_a_corpus_that_changed_since_it_was_prepared_is_told(
    workspace: Workspace, tmp_path: Path
) -> None:
    own = shutil.copytree(workspace.folder / "corpus", tmp_path / "corpus")
    shutil.copy(workspace.folder / "tiny.toml", tmp_path)
    assert workspace.call("prepare", "tiny.toml", cwd=tmp_path).code == 0
    args = ("train", "tiny.toml", "--max-steps", 1, "--overwrite")
    path = own / "train.en"
    path.touch()  # newer, and the same
    assert "changed since" not in workspace.call(*args, cwd=tmp_path).err
    path.write_text(path.read_text().replace("a", "o"))
    told = workspace.call(*args, cwd=tmp_path).err
    assert "corpus/train.en" in told
    assert "mt-cli prepare tiny.toml" in told
    path.unlink()  # prepared data are enough
    outcome = workspace.call(*args, cwd=tmp_path)
    assert (outcome.code, "corpus/train.en" in outcome.err) == (0, False)


# Exact resume


@pytest.fixture(scope="module")
def uninterrupted(workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("train") / "uninterrupted"
    assert train(workspace, run, *SHORT).code == 0
    return run


def end_by_sigterm(_: Loss) -> None:
    signal.raise_signal(signal.SIGTERM)


def end_by_accident(*_: object) -> None:
    raise RuntimeError("the power is gone")


@pytest.mark.parametrize(
    ("update", "interruption", "code", "state", "reason"),
    [
        (FIRST_PART, end_by_sigterm, 143, "stopped", "SIGTERM"),
        (FIRST_PART + 1, end_by_accident, 1, "failed", "the power is gone"),
    ],
    ids=["SIGTERM", "crash"],
)
def test_resumed_run_equals_the_uninterrupted_one(
    workspace: Workspace,
    uninterrupted: Path,
    run: Path,
    disturb: Disturb,
    update: int,
    interruption: Callable[[Loss], None],
    code: int,
    state: str,
    reason: str,
) -> None:
    disturb({update}, interruption)
    assert train(workspace, run, *SHORT).code == code
    assert ended(run) == (state, FIRST_PART)
    assert reason in str(status(run)["reason"])
    disturb((), interruption)
    assert train(workspace, run, *SHORT, "--resume").code == 0
    assert status(run)["state"] == "finished"
    assert records(run, "step") == records(uninterrupted, "step")
    assert records(run, "validation") == records(uninterrupted, "validation")
    assert weights(run) == weights(uninterrupted)
    assert weights(run, "best") == weights(uninterrupted, "best")


def test_time_limit_between_two_validations_saves_where_training_stands(
    workspace: Workspace,
    uninterrupted: Path,
    run: Path,
    end_time_after: Callable[[float], None],
) -> None:
    end_time_after(FIRST_PART)
    outcome = train(workspace, run, *SHORT, "--time-limit", "35m")
    assert (outcome.code, outcome.lines) == (0, [str(run)])
    assert ended(run) == ("time_limit", FIRST_PART)
    assert checkpoint(run).name == checkpoint_name(FIRST_PART)
    assert steps_of(run, "validation") == [8, FIRST_PART]
    assert train(workspace, run, *SHORT, "--resume").code == 0
    due = [each for each in records(run, "validation") if each["step"] != FIRST_PART]
    expected = records(uninterrupted, "validation")
    for each in (*due, *expected):  # the one that was not due may have been the best so far
        each.pop("is_best")
    assert due == expected
    assert weights(run) == weights(uninterrupted)


@pytest.mark.parametrize("pointer", ["best", "last"])
def test_crash_before_a_pointer_is_written_loses_neither_the_checkpoint_nor_the_best(
    workspace: Workspace,
    uninterrupted: Path,
    run: Path,
    monkeypatch: pytest.MonkeyPatch,
    pointer: str,
) -> None:
    point = Run.point
    # The first checkpoint is the best for some weights, the second for others.
    validations = records(uninterrupted, "validation")
    steps = [each["step"] for each in validations if each["is_best"] or pointer == "last"]
    crashed = checkpoint_name(steps[-1])

    def crash_at_last(opened: Run, name: str, *, to: str) -> None:
        if (name, to) == (pointer, crashed):
            end_by_accident()
        point(opened, name, to=to)

    with monkeypatch.context() as patch:
        patch.setattr(Run, "point", crash_at_last)
        assert train(workspace, run, *SHORT).code == 1
    assert (run / "checkpoints" / crashed).exists()
    last = run / "last.txt"
    assert not last.exists() or last.read_text() != f"{crashed}\n"
    assert train(workspace, run, *SHORT, "--resume").code == 0
    assert records(run, "validation") == records(uninterrupted, "validation")
    assert weights(run, "best") == weights(uninterrupted, "best")
    assert weights(run) == weights(uninterrupted)


ENDLESS = sets("training.max_epochs=1000", "training.log_every=1")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_signal_saves_the_state_gives_its_code_and_advises_the_way_on(
    workspace: Workspace, run: Path, start: Start, number: signal.Signals
) -> None:
    command = [*MT_CLI, "train", "tiny.toml", "--run", str(run), *ENDLESS]
    process = start(*command, cwd=workspace.folder)
    assert process.stderr is not None
    assert any(line.startswith("step 3 ") for line in process.stderr)
    process.send_signal(number)
    out, said = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, out) == (128 + number, "")
    state, step = ended(run)
    assert (state, step >= 3) == ("stopped", True)
    _, _, advised = said.rpartition(": python -m mt_cli ")  # as it was called
    words = shlex.split(advised)
    assert words == ["train", "tiny.toml", *ENDLESS, "--run", str(run), "--resume"]
    resumed = workspace.call(*words, *SOON, "--json")
    assert resumed.code == 0, resumed.err
    assert json.loads(resumed.out)["step"] == step + 1
