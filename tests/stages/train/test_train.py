"""The `train` command: limits, signals and resuming, and what a run folder holds afterwards."""

import json
import logging
import os
import pty
import re
import shlex
import shutil
import signal
import subprocess
import termios
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from workspace import MT_CLI, TIMEOUT_S, Outcome, Workspace

from mt_cli.artefacts.checkpoint import checkpoint_name
from mt_cli.artefacts.prepared import open_prepared
from mt_cli.artefacts.run import Run, open_run
from mt_cli.config import load_config
from mt_cli.machine.hardware import processor_name
from mt_cli.stages.train.pace import Pace
from mt_cli.stages.train.session import Session
from mt_cli.stages.train.table import HEADER

# Validations every 8 updates, about 4 an epoch: an end after 11 falls between two validations.
SHORT = (
    *("--set", "training.log_every=1", "--set", "training.validate_every=8", "--max-steps", "20"),
    *("--set", "training.r_drop=2", "--set", "training.weight_decay=0.1"),
)
FIRST_PART = 11
NARRATOR_LOG = "mt_cli.stages.train.narrator"


def train(workspace: Workspace, run: Path, *args: object, data: Path | None = None) -> Outcome:
    return workspace.call(
        "train", "tiny.toml", "--run", run, *args, *(() if data is None else ("--data", data))
    )


def records(run: Path, kind: str) -> list[dict[str, float]]:
    """Lines of metrics.jsonl, without what a clock says."""
    lines = [json.loads(line) for line in run.joinpath("metrics.jsonl").read_text().splitlines()]
    dropped = ("kind", "elapsed_s", "tgt_tokens_per_s", "validation_s", "seal")
    return [{k: v for k, v in line.items() if k not in dropped} for line in lines if line["kind"] == kind]


def status(run: Path) -> dict[str, object]:
    found = json.loads(run.joinpath("status.json").read_bytes())
    assert isinstance(found, dict)
    return found


def weights(run: Path, checkpoint: str = "last") -> bytes:
    name = run.joinpath(f"{checkpoint}.txt").read_text().strip()
    return run.joinpath("checkpoints", name, "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def uninterrupted(workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("train") / "uninterrupted"
    assert train(workspace, run, *SHORT).code == 0
    return run


@pytest.mark.parametrize("option", ["r_drop=2", "weight_decay=0.5"])
def test_each_ingredient_changes_what_is_trained(workspace: Workspace, tmp_path: Path, option: str) -> None:
    runs = tmp_path / "plain", tmp_path / "other"
    assert train(workspace, runs[0], "--max-steps", 2).code == 0
    assert train(workspace, runs[1], "--max-steps", 2, "--set", f"training.{option}").code == 0
    assert weights(runs[0]) != weights(runs[1])


@pytest.mark.parametrize(
    "option",
    [
        "training.optimizer=adam",
        "training.best_by=loss",
        "training.tokens_per_batch=200",
        "training.accumulation=2",
        "runtime.seed=5",
        "decoding.beam_size=2",
    ],
)
def test_resume_with_another_kind_of_training_exits_2_and_names_the_key(
    workspace: Workspace, option: str
) -> None:
    outcome = train(workspace, workspace.run, "--resume", "--set", option)
    assert outcome.code == 2
    assert f"began with another {option.split('=', maxsplit=1)[0]}" in outcome.err


class AtStep(logging.Handler):
    """Does something in the very moment in which a step is first logged."""

    def __init__(self, step: int, action: Callable[[], None]) -> None:
        super().__init__()
        self._beginning, self._actions = f"step {step} ", [action]

    def emit(self, record: logging.LogRecord) -> None:
        if self._actions and record.getMessage().startswith(self._beginning):
            self._actions.pop()()


@pytest.fixture
def at_step() -> Iterator[Callable[[int, Callable[[], None]], None]]:
    handlers: list[logging.Handler] = []

    def add(step: int, action: Callable[[], None]) -> None:
        handlers.append(AtStep(step, action))
        logging.getLogger(NARRATOR_LOG).addHandler(handlers[-1])

    yield add
    for handler in handlers:
        logging.getLogger(NARRATOR_LOG).removeHandler(handler)


# What a run holds


def test_stdout_is_the_run_folder_and_progress_is_on_stderr(workspace: Workspace) -> None:
    assert workspace.folder.joinpath("train.out").read_text() == "runs/tiny\n"
    said = workspace.folder.joinpath("train.err").read_text()
    assert "\nstep 10  epoch 4  loss " in said
    assert f"\n{HEADER}\n" in said
    assert "\n  reference    " in said
    assert "\r" not in said  # no progress bar where nobody watches


def test_training_begins_by_saying_what_it_trains(workspace: Workspace) -> None:
    said = workspace.folder.joinpath("train.err").read_text()
    total = status(workspace.run)["total_steps"]
    facts = dict(re.findall(r"^(\w+) {2,}(.+)$", said[: said.index("\nstep ")], flags=re.MULTILINE))
    train_split = open_prepared(workspace.prepared).split("train")
    parameters = sum(parameter.numel() for parameter in open_run(workspace.run).build_model().parameters())
    assert facts.pop("device").startswith(f"cpu: {processor_name()}, ")
    assert facts.pop("updates").startswith(f"{total}, 3 in an epoch; validation every 40")
    assert facts.pop("batches").startswith("240 tokens a side at most, in ")
    assert facts.pop("BLEU").startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert facts == {
        "run": "runs/tiny",
        "config": "tiny.toml",
        "precision": "fp32",
        "threads": "1",
        "pairs": f"{len(train_split):,} to train on, 20 to validate on",
        "parameters": f"{parameters:,}",
    }


def test_after_twenty_updates_the_time_left_and_the_memory_used_are_told(workspace: Workspace) -> None:
    said = workspace.folder.joinpath("train.err").read_text()
    told = r"\nexpected    \d+ s to the end, validations included\nmemory      [\d,]+ MB\nstep 20 "
    assert re.search(told, said)


def test_time_limit_that_comes_first_is_the_end_to_expect(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pace, "left_s", lambda _: 3600.0)
    said = train(workspace, tmp_path / "run", "--max-steps", 21, "--time-limit", "35m").err
    assert re.search(r"\nexpected    3[0-5] min to the time limit\n", said)


def test_each_validation_has_a_row_below_one_header(workspace: Workspace) -> None:
    said = workspace.folder.joinpath("train.err").read_text()
    found = records(workspace.run, "validation")
    rows = [line for line in said.splitlines() if re.match(r" *\d+ +\d+ +\d", line)]
    assert said.count(HEADER) == 1
    assert [int(row.split()[1]) for row in rows] == [each["step"] for each in found]
    assert [row.split()[3:5] for row in rows] == [[f"{e['nll']:.3f}", f"{e['bleu']:.2f}"] for e in found]
    assert [row.endswith("*") for row in rows] == [each["is_best"] for each in found]
    assert said.count("nrefs:1") == 1


def test_header_is_repeated_after_a_resume(workspace: Workspace, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert train(workspace, run, "--max-steps", 2).err.count(HEADER) == 1
    said = train(workspace, run, "--max-steps", 4, "--resume").err
    assert said.startswith(f"warning: {run} goes on with another training.max_steps than it began with\n")
    assert f"\nrun         {run}, resumed after update 2\n" in f"\n{said}"
    assert said.count(HEADER) == 1


def test_log_file_keeps_validations_as_pairs_of_key_and_value(workspace: Workspace) -> None:
    logged = workspace.run.joinpath("train.log").read_text()
    found = records(workspace.run, "validation")
    lines = re.findall(
        r"INFO valid step (\d+)  nll ([\d.]+)  BLEU ([\d.]+)  nrefs:1\|\S+  elapsed \d+ s", logged
    )
    assert lines == [(str(e["step"]), f"{e['nll']:.4f}", f"{e['bleu']:.2f}") for e in found]
    assert HEADER not in logged


def test_run_folder_holds_what_it_should(workspace: Workspace) -> None:
    run = workspace.run
    checkpoint = {"model.safetensors", "state.safetensors", "state.json", "manifest.json"}
    names = {run.joinpath(f"{pointer}.txt").read_text() for pointer in ("best", "last")}
    expected = {f"checkpoints/{name.strip()}/{file}" for name in names for file in checkpoint}
    expected |= {"manifest.json", "config.toml", "env.json", "status.json", "metrics.jsonl", "train.log"}
    expected |= {"best.txt", "last.txt", "tokenizer/tokenizer.json", "tokenizer/joint.model", "README.md"}
    assert {path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file()} == expected
    assert all(name == f"{name.strip()}\n" for name in names)


def test_status_says_that_it_finished(workspace: Workspace) -> None:
    found = status(workspace.run)
    assert (found["state"], found["step"]) == ("finished", found["total_steps"])
    assert found["best_step"] in [each["step"] for each in records(workspace.run, "validation")]


def test_metrics_have_steps_and_validations_in_order(workspace: Workspace) -> None:
    steps, validations = records(workspace.run, "step"), records(workspace.run, "validation")
    total = status(workspace.run)["total_steps"]
    assert [each["step"] for each in steps[:3]] == [10, 20, 30]
    assert steps[-1]["step"] == validations[-1]["step"] == total
    assert {"loss", "nll", "lr", "grad_norm", "epoch"} < set(steps[0])
    assert {"nll", "bleu", "bleu_signature", "is_best"} < set(validations[0])
    assert steps[-1]["loss"] < steps[0]["loss"] / 2


def test_best_checkpoint_is_that_of_the_highest_bleu(workspace: Workspace) -> None:
    validations = records(workspace.run, "validation")
    best = max(validations, key=lambda each: (each["bleu"], -each["step"]))
    assert workspace.run.joinpath("best.txt").read_text() == f"step-{best['step']:08d}\n"


def test_config_of_the_run_is_a_config_to_train_with(workspace: Workspace, tmp_path: Path) -> None:
    assert load_config(workspace.run / "config.toml") == load_config(workspace.folder / "tiny.toml")
    outcome = workspace.call(
        "train", workspace.run / "config.toml", "--run", tmp_path / "run", "--data", "data/prepared/tiny",
        "--max-steps", 1,
    )  # fmt: skip
    assert outcome.code == 0


def test_log_file_keeps_what_was_said(workspace: Workspace) -> None:
    logged = workspace.run.joinpath("train.log").read_text()
    said = workspace.folder.joinpath("train.err").read_text().splitlines()
    assert [
        line for line in said if line.startswith(("step ", "run ", "  source")) and line not in logged
    ] == []


def test_json_says_how_it_ended(workspace: Workspace, tmp_path: Path) -> None:
    outcome = train(workspace, tmp_path / "run", "--max-steps", 2, "--json", "--quiet")
    document = json.loads(outcome.out)
    assert document.pop("best_score") == status(tmp_path / "run")["best_score"]
    assert document == {"folder": str(tmp_path / "run"), "state": "finished", "step": 2, "best_step": 2}


# Existing runs


def test_existing_run_exits_2_and_names_the_ways_out(workspace: Workspace) -> None:
    outcome = train(workspace, Path("runs/tiny"))
    message = (
        "error: runs/tiny exists; --resume goes on with it, --overwrite starts anew, --run names another\n"
    )
    assert outcome == Outcome(2, b"", message)


def test_overwrite_starts_anew(workspace: Workspace, tmp_path: Path) -> None:
    run = workspace.copy_run(tmp_path / "run")
    run.joinpath("eval").mkdir()
    outcome = train(workspace, run, "--overwrite", "--max-steps", 2)
    assert outcome.code == 0
    assert not run.joinpath("eval").exists()
    assert [each["step"] for each in records(run, "validation")] == [2]
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_overwrite_leaves_alone_what_is_no_run(workspace: Workspace, tmp_path: Path) -> None:
    tmp_path.joinpath("thesis.txt").write_text("precious\n")
    outcome = train(workspace, tmp_path, "--overwrite")
    assert (outcome.code, outcome.out) == (2, b"")
    assert "is not a run folder, so --overwrite leaves it alone" in outcome.err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_resume_and_overwrite_exclude_each_other(workspace: Workspace) -> None:
    outcome = train(workspace, Path("runs/tiny"), "--resume", "--overwrite")
    assert (outcome.code, outcome.out) == (2, b"")
    assert "give one of them" in outcome.err


def test_resume_of_no_run_exits_2(workspace: Workspace, tmp_path: Path) -> None:
    outcome = train(workspace, tmp_path / "none", "--resume")
    assert (outcome.code, outcome.out) == (2, b"")
    assert f"{tmp_path / 'none'}: no such run folder" in outcome.err


def test_resume_with_another_model_exits_2_and_names_the_key(workspace: Workspace) -> None:
    outcome = train(workspace, Path("runs/tiny"), "--resume", "--set", "model.d_ff=32")
    assert (outcome.code, outcome.out) == (2, b"")
    assert outcome.err.startswith("error: runs/tiny began with another model.d_ff; --resume needs the same")


def test_resume_deletes_what_a_kill_left_of_a_checkpoint(workspace: Workspace, tmp_path: Path) -> None:
    run = workspace.copy_run(tmp_path / "run")
    left = run / "checkpoints" / "step-00000001"
    left.mkdir()
    (left / "model.safetensors").write_bytes(b"half")
    assert workspace.call("train", "tiny.toml", "--run", run, "--resume").code == 0
    assert not left.exists()


def test_resume_deletes_what_a_kill_left_of_the_run_that_it_replaced(
    workspace: Workspace, tmp_path: Path
) -> None:
    run = workspace.copy_run(tmp_path / "run")
    half_deleted = workspace.copy_run(tmp_path / f".run.{'a' * 32}.partial")
    (half_deleted / "train.log").unlink()
    assert workspace.call("train", "tiny.toml", "--run", run, "--resume").code == 0
    assert not half_deleted.exists()


def test_resume_lets_last_name_the_checkpoint_that_a_kill_has_kept_from_it(
    workspace: Workspace, tmp_path: Path
) -> None:
    run = workspace.copy_run(tmp_path / "run")
    last = (run / "last.txt").read_text()
    (run / "last.txt").write_text((run / "best.txt").read_text())
    assert workspace.call("train", "tiny.toml", "--run", run, "--resume").code == 0
    assert (run / "last.txt").read_text() == last


def test_resume_of_a_finished_run_changes_nothing(workspace: Workspace, tmp_path: Path) -> None:
    run = workspace.copy_run(tmp_path / "run")
    outcome = train(workspace, run, "--resume")
    assert (outcome.code, outcome.lines) == (0, [str(run)])
    assert records(run, "step") == records(workspace.run, "step")
    assert weights(run) == weights(workspace.run)
    assert status(run)["state"] == "finished"


def test_resumption_with_other_code_is_noted(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = workspace.copy_run(tmp_path / "run")
    before = (run / "env.json").read_bytes()
    monkeypatch.setattr("mt_cli.stages.train.train.describe_checkout", lambda: {"commit": "0" * 40})
    assert train(workspace, run, "--resume").code == 0
    assert (run / "env.json").read_bytes() == before  # it was finished: nothing is trained with other code
    step = status(run)["step"]
    assert isinstance(step, int)
    assert (
        train(workspace, run, "--resume", "--set", "training.max_epochs=100", "--max-steps", step + 1).code
        == 0
    )
    (noted,) = json.loads((run / "env.json").read_bytes())["resumed"]
    assert noted["after_step"] == step
    assert noted["commit"] == "0" * 40
    shown = workspace.call("inspect", run).out.decode()
    assert f"after_step {step:,}, " in shown


@pytest.mark.parametrize("flag", ["--resume", "--overwrite"])
def test_run_that_another_process_trains_is_left_to_it(
    workspace: Workspace, tmp_path: Path, flag: str
) -> None:
    run = workspace.copy_run(tmp_path / "run")
    with open_run(run).locked():
        outcome = train(workspace, run, flag)
    message = f"error: {run}: another process is training there; wait for its end\n"
    assert outcome == Outcome(2, b"", message)
    assert weights(run) == weights(workspace.run)


# Ends before the end


def end_by_sigterm() -> None:
    signal.raise_signal(signal.SIGTERM)


def end_by_accident() -> None:
    raise RuntimeError("the power is gone")


@pytest.mark.parametrize(
    ("interruption", "code", "state"),
    [(end_by_sigterm, 143, "stopped"), (end_by_accident, 1, "failed")],
    ids=["SIGTERM", "crash"],
)
def test_resumed_run_equals_the_uninterrupted_one(
    workspace: Workspace,
    uninterrupted: Path,
    tmp_path: Path,
    at_step: Callable[[int, Callable[[], None]], None],
    interruption: Callable[[], None],
    code: int,
    state: str,
) -> None:
    run = tmp_path / "run"
    at_step(FIRST_PART, interruption)
    assert train(workspace, run, *SHORT).code == code
    assert (status(run)["state"], status(run)["step"]) == (state, FIRST_PART)
    assert train(workspace, run, *SHORT, "--resume").code == 0
    assert status(run)["state"] == "finished"
    assert records(run, "step") == records(uninterrupted, "step")
    assert records(run, "validation") == records(uninterrupted, "validation")
    assert weights(run) == weights(uninterrupted)
    assert weights(run, "best") == weights(uninterrupted, "best")


def test_time_limit_between_two_validations_saves_where_training_stands(
    workspace: Workspace, uninterrupted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"

    def left_s(session: Session) -> float:
        return 60.0 if session._trainer.progress.step < FIRST_PART else -1.0

    with monkeypatch.context() as patch:
        patch.setattr(Session, "_limit_left_s", left_s)
        assert train(workspace, run, *SHORT, "--time-limit", "35m").code == 0
    assert (status(run)["state"], status(run)["step"]) == ("time_limit", FIRST_PART)
    assert (run / "last.txt").read_text() == f"{checkpoint_name(FIRST_PART)}\n"
    assert (run / "best.txt").read_text() == f"{checkpoint_name(8)}\n"
    assert train(workspace, run, *SHORT, "--resume").code == 0
    assert records(run, "validation") == records(uninterrupted, "validation")
    assert weights(run) == weights(uninterrupted)


@pytest.mark.parametrize("pointer", ["best", "last"])
def test_crash_before_a_pointer_is_written_loses_neither_the_checkpoint_nor_the_best(
    workspace: Workspace,
    uninterrupted: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    pointer: str,
) -> None:
    run = tmp_path / "run"
    point = Run.point

    def crash_at_sixteen(opened: Run, name: str, *, step: int) -> None:
        if (name, step) == (pointer, 16):
            end_by_accident()
        point(opened, name, step=step)

    with monkeypatch.context() as patch:
        patch.setattr(Run, "point", crash_at_sixteen)
        assert train(workspace, run, *SHORT).code == 1
    assert (run / "last.txt").read_text() == "step-00000008\n"
    assert train(workspace, run, *SHORT, "--resume").code == 0
    assert records(run, "validation") == records(uninterrupted, "validation")
    for each in ("best", "last"):
        assert weights(run, each) == weights(uninterrupted, each)


def test_what_was_measured_before_a_kill_without_a_checkpoint_is_forgotten(
    workspace: Workspace, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    assert train(workspace, run, "--max-steps", 1).code == 0
    for lost in ("best.txt", "last.txt"):
        run.joinpath(lost).unlink()
    shutil.rmtree(run / "checkpoints")
    run.joinpath("metrics.jsonl").write_text('{"kind": "step", "step": 9}\n{"kind": "st', encoding="utf-8")
    assert train(workspace, run, "--max-steps", 1, "--resume", "--set", "training.log_every=1").code == 0
    steps = [json.loads(line)["step"] for line in run.joinpath("metrics.jsonl").read_text().splitlines()]
    assert set(steps) == {1}


ENDLESS = ("--set", "training.max_epochs=1000", "--set", "training.log_every=1")


@dataclass(frozen=True)
class Stopped:
    """A training with a terminal as its stderr, ended by a signal after three updates or more."""

    run: Path
    code: int
    out: bytes
    shown: str


@pytest.fixture(scope="module")
def stopped(workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Stopped:
    run = tmp_path_factory.mktemp("stopped") / "run"
    terminal, stderr = pty.openpty()
    termios.tcsetwinsize(stderr, (24, 80))
    command = [*MT_CLI, "train", "tiny.toml", "--run", str(run), *ENDLESS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, cwd=workspace.folder) as process:
        os.close(stderr)
        shown, is_told = "", False
        for data in read_terminal(terminal):
            shown += data
            if not is_told and re.search(r" ([3-9]|\d\d+)/\d+ \[", shown):
                process.send_signal(signal.SIGTERM)
                is_told = True
        out, _ = process.communicate(timeout=TIMEOUT_S)
    return Stopped(run, process.returncode, out, shown)


def read_terminal(terminal: int) -> Iterator[str]:
    """What is written to a terminal until its last writer has left."""
    while True:
        try:
            data = os.read(terminal, 1 << 16)
        except OSError:
            break
        yield data.decode(errors="replace")
    os.close(terminal)


def test_progress_bar_takes_the_place_of_log_lines_on_a_terminal(stopped: Stopped) -> None:
    bars = re.findall(r"\r([^\r\n]* [1-9]\d*/\d+ \[[^\r\n]*)", stopped.shown)
    assert bars
    assert max(map(len, bars)) <= 80
    assert "loss=" in bars[-1]
    assert "tok/s=" in bars[-1]
    assert "\nstep 1 " not in stopped.shown.replace("\r", "\n")


def test_signal_saves_the_state_and_gives_its_code(workspace: Workspace, stopped: Stopped) -> None:
    assert (stopped.code, stopped.out) == (143, b"")
    step = status(stopped.run)["step"]
    assert isinstance(step, int)
    assert (status(stopped.run)["state"], step >= 3) == ("stopped", True)
    told, _, advised = stopped.shown.removesuffix("\r\n").rpartition(": mt-cli ")
    assert told.endswith(f"error: stopped at step {step}; the state is saved, --resume goes on from there")
    words = shlex.split(advised)
    assert words == ["train", "tiny.toml", *ENDLESS, "--run", str(stopped.run), "--resume"]
    resumed = workspace.call(*words, "--time-limit", "0s", "--json")
    assert resumed.code == 0, resumed.err
    assert json.loads(resumed.out)["step"] == step + 1


def test_time_limit_exits_0_with_a_usable_run(workspace: Workspace, tmp_path: Path) -> None:
    run = tmp_path / "run"
    outcome = train(workspace, run, "--time-limit", "0s")
    assert (outcome.code, outcome.lines) == (0, [str(run)])
    assert (status(run)["state"], status(run)["step"]) == ("time_limit", 1)
    assert workspace.call("translate", run, "--text", "Ein Hund.").code == 0


def test_training_that_ends_as_its_time_does_is_finished(workspace: Workspace, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert train(workspace, run, "--time-limit", "0s", "--max-steps", 1).code == 0
    assert (status(run)["state"], status(run)["step"]) == ("finished", 1)


def test_time_limit_that_is_none_exits_2_before_anything_begins(workspace: Workspace, tmp_path: Path) -> None:
    outcome = train(workspace, tmp_path / "run", "--time-limit", "soon")
    message = "error: --time-limit 'soon': expected a time such as 90s, 10m or 2h\n"
    assert outcome == Outcome(2, b"", message)
    assert not tmp_path.joinpath("run").exists()


def test_patience_ends_training_that_gains_nothing(workspace: Workspace, tmp_path: Path) -> None:
    run = tmp_path / "run"
    standstill = ("--set", "training.peak_lr=1e-30", "--set", "training.validate_every=1")
    outcome = train(workspace, run, *standstill, "--set", "training.patience=2")
    assert outcome.code == 0
    assert (status(run)["state"], status(run)["step"], status(run)["best_step"]) == ("early_stop", 3, 1)


@pytest.mark.parametrize("log_every", [1, 1000], ids=["logged", "unlogged"])
def test_diverged_training_exits_4_and_keeps_the_last_good_checkpoint(
    workspace: Workspace, tmp_path: Path, log_every: int
) -> None:
    run = tmp_path / "run"
    assert train(workspace, run, "--max-steps", 2).code == 0
    good = weights(run)
    settings = (
        "training.peak_lr=1e38", "training.clip_norm=0", "training.warmup_steps=0",
        "training.schedule=constant", "training.validate_every=5", f"training.log_every={log_every}",
    )  # fmt: skip
    wild = [arg for setting in settings for arg in ("--set", setting)]
    outcome = train(workspace, run, *wild, "--resume", "--max-steps", 30)
    assert (outcome.code, outcome.out) == (4, b"")
    assert "the last good checkpoint is kept; lower training.peak_lr" in outcome.err
    assert "Traceback" not in outcome.err
    assert status(run)["state"] == "diverged"
    assert weights(run) == weights(run, "best") == good


# Flags


def test_flag_wins_over_set_and_set_over_the_file(workspace: Workspace, tmp_path: Path) -> None:
    run = tmp_path / "run"
    settings = ("--set", "training.max_steps=9", "--set", "training.max_epochs=7")
    assert train(workspace, run, *settings, "--max-steps", 2, "--seed", 5).code == 0
    config = load_config(run / "config.toml")
    assert (config.training.max_steps, config.training.max_epochs, config.runtime.seed) == (2, 7, 5)
    assert status(run)["total_steps"] == 2


def test_seed_decides_the_weights(workspace: Workspace, tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        assert train(workspace, tmp_path / name, "--max-steps", 2, "--seed", seed).code == 0
    assert weights(tmp_path / "a") == weights(tmp_path / "b")
    assert weights(tmp_path / "a") != weights(tmp_path / "c")


def test_model_trained_on_the_torch_backend_decodes_on_either(workspace: Workspace, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert train(workspace, run, "--set", "model.backend=torch", "--max-steps", 40).code == 0
    source = workspace.corpus("test.de").read_bytes()
    cached, oracle = (
        workspace.call("translate", run, "--quiet", "--backend", backend, stdin=source)
        for backend in ("scratch", "torch")
    )
    assert (cached, cached.code) == (oracle, 0)
    assert len(set(cached.lines)) > 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("verb", ["train", "evaluate", "translate"])
def test_missing_gpu_exits_5(workspace: Workspace, tmp_path: Path, verb: str) -> None:
    args = ("tiny.toml", "--run", tmp_path / "run") if verb == "train" else ("runs/tiny",)
    outcome = workspace.call(verb, *args, "--device", "cuda")
    assert outcome == Outcome(5, b"", "error: no CUDA device found; use --device cpu, or auto\n")


# The prepared data


def test_data_not_prepared_exit_3_and_name_the_command(workspace: Workspace, tmp_path: Path) -> None:
    outcome = train(workspace, tmp_path / "run", data=tmp_path / "none")
    assert (outcome.code, outcome.out) == (3, b"")
    assert (
        f"{tmp_path / 'none'}: no prepared data; run: mt-cli prepare tiny.toml, and leave out --data"
        in outcome.err
    )
    assert not tmp_path.joinpath("run").exists()


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("tokenizer.vocab_size=400", "tokenizer.vocab_size was 420, is 400"),
        ("data.lowercase=true", "data.lowercase was false, is true"),
    ],
)
def test_data_prepared_otherwise_exit_3_and_name_the_keys(
    workspace: Workspace, tmp_path: Path, setting: str, complaint: str
) -> None:
    outcome = train(workspace, tmp_path / "run", "--set", setting)
    assert (outcome.code, outcome.out) == (3, b"")
    assert (
        f"prepared with another config: {complaint}; run: mt-cli prepare tiny.toml --set {setting}\n"
        in outcome.err
    )


def test_altered_data_exit_3_and_the_file_is_named(workspace: Workspace, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(workspace.prepared, data)
    ids = bytearray(data.joinpath("train.src.npy").read_bytes())
    ids[-1] ^= 1
    data.joinpath("train.src.npy").write_bytes(ids)
    outcome = train(workspace, tmp_path / "run", data=data)
    assert (outcome.code, outcome.out) == (3, b"")
    assert outcome.err.startswith(f"error: {data}/train.src.npy: altered or damaged")
