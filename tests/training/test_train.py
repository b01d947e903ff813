"""The `train` command: limits, signals and resuming, and what a run folder holds afterwards."""

import json
import logging
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from workspace import MT_CLI, TIMEOUT_S, Outcome, Workspace

from mt_cli.config.load import load_config
from mt_cli.machine.files import locked
from mt_cli.runs.checkpoint import checkpoint_name
from mt_cli.runs.run import Run
from mt_cli.training.session import TimeLimit

# Validations every 8 updates, about 4 an epoch: an end after 11 falls between two validations.
SHORT = (
    *("--set", "training.log_every=1", "--set", "training.validate_every=8", "--max-steps", "20"),
    *("--set", "training.r_drop=2", "--set", "training.weight_decay=0.1"),
)
FIRST_PART = 11
MONITOR_LOG = "mt_cli.training.monitor"


def train(workspace: Workspace, run: Path, *args: object, data: Path | None = None) -> Outcome:
    return workspace.call(
        "train", "tiny.toml", "--run", run, *args, *(() if data is None else ("--data", data))
    )


def records(run: Path, kind: str) -> list[dict[str, float]]:
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


def weights(run: Path, checkpoint: str = "last") -> bytes:
    name = run.joinpath(f"{checkpoint}.txt").read_text().strip()
    return run.joinpath("checkpoints", name, "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def uninterrupted(workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("train") / "uninterrupted"
    assert train(workspace, run, *SHORT).code == 0
    return run


@pytest.mark.parametrize(
    "option",
    [
        "training.optimizer=adam",
        "training.best_by=loss",
        "training.tokens_per_batch=200",
        "training.accumulation=2",
        "runtime.seed=99",
        "decoding.beam_size=2",
    ],
)
def test_resume_with_another_kind_of_training_exits_2_and_names_the_key(
    workspace: Workspace, option: str
) -> None:
    outcome = train(workspace, workspace.run, "--resume", "--set", option)
    assert outcome.code == 2
    key, value = option.split("=")
    assert re.search(rf"{re.escape(key)} = .+, now \"?{value}\"?;", outcome.err)


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
        logging.getLogger(MONITOR_LOG).addHandler(handlers[-1])

    yield add
    for handler in handlers:
        logging.getLogger(MONITOR_LOG).removeHandler(handler)


def test_config_of_the_run_is_a_config_to_train_with(workspace: Workspace, tmp_path: Path) -> None:
    assert load_config(workspace.run / "config.toml") == load_config(workspace.folder / "tiny.toml")
    outcome = workspace.call(
        "train",
        workspace.run / "config.toml",
        *("--run", tmp_path / "run"),
        *("--data", "data/prepared/tiny"),
        *("--max-steps", 1),
    )
    assert outcome.code == 0


def test_json_says_how_it_ended(workspace: Workspace, tmp_path: Path) -> None:
    outcome = train(workspace, tmp_path / "run", "--max-steps", 2, "--json", "--quiet")
    document = json.loads(outcome.out)
    assert document == {"folder": str(tmp_path / "run"), **status(tmp_path / "run")}
    assert (document["state"], document["step"], document["best_step"]) == ("finished", 2, 2)


def test_existing_run_exits_2_and_names_the_ways_out(workspace: Workspace) -> None:
    outcome = train(workspace, Path("runs/tiny"))
    assert (outcome.code, outcome.out) == (2, b"")
    assert outcome.err.startswith("error: runs/tiny exists; ")
    assert all(flag in outcome.err for flag in ("--resume", "--overwrite", "--run"))


def test_overwrite_starts_anew(workspace: Workspace, tmp_path: Path) -> None:
    run = workspace.copy_run(tmp_path / "run")
    run.joinpath("eval").mkdir()
    outcome = train(workspace, run, "--overwrite", "--max-steps", 2)
    assert outcome.code == 0
    assert not run.joinpath("eval").exists()
    assert [each["step"] for each in records(run, "validation")] == [2]
    assert [path.name for path in tmp_path.glob("[!.]*")] == ["run"]


def test_resume_of_a_finished_run_changes_nothing(workspace: Workspace, tmp_path: Path) -> None:
    run = workspace.copy_run(tmp_path / "run")
    outcome = workspace.call("train", "tiny.toml", "--run", run, "--resume")
    assert (outcome.code, outcome.lines) == (0, [str(run)])
    assert "nothing is left to train; to train longer, raise training.max_epochs" in outcome.err
    assert re.search(r"best +step \d+ of \d+: BLEU \d+\.\d\d on val", outcome.err)
    assert f"next: mt-cli evaluate {run}\n" in outcome.err
    assert records(run, "step") == records(workspace.run, "step")
    assert weights(run) == weights(workspace.run)
    assert status(run)["state"] == "finished"


@pytest.mark.parametrize("flag", ["--resume", "--overwrite"])
def test_run_that_another_process_trains_is_left_to_it(
    workspace: Workspace, tmp_path: Path, flag: str
) -> None:
    run = workspace.copy_run(tmp_path / "run")
    with locked(run):
        outcome = train(workspace, run, flag)
    assert (outcome.code, outcome.out) == (2, b"")
    assert outcome.err.startswith(f"error: {run}: another process ")
    assert weights(run) == weights(workspace.run)


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


def test_a_signal_after_the_last_update_stops_nothing(
    workspace: Workspace, tmp_path: Path, at_step: Callable[[int, Callable[[], None]], None]
) -> None:
    run = tmp_path / "run"
    at_step(20, end_by_sigterm)
    assert train(workspace, run, *SHORT).code == 0
    assert (status(run)["state"], status(run)["step"]) == ("finished", 20)


@pytest.mark.parametrize("is_validated", [True, False])
def test_time_limit_between_two_validations_saves_where_training_stands(
    workspace: Workspace,
    uninterrupted: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_validated: bool,
) -> None:
    run = tmp_path / "run"

    num_asked = 0

    def left_s(limit: TimeLimit) -> float:
        """Time for `FIRST_PART` updates, each of which asks twice."""
        nonlocal num_asked
        num_asked += 1
        return 60.0 if num_asked < 2 * FIRST_PART else -1.0

    with monkeypatch.context() as patch:
        patch.setattr(TimeLimit, "left_s", left_s)
        flags = () if is_validated else ("--no-validate",)
        assert train(workspace, run, *SHORT, "--time-limit", "35m", *flags).code == 0
    assert (status(run)["state"], status(run)["step"]) == ("time_limit", FIRST_PART)
    assert (run / "last.txt").read_text() == f"{checkpoint_name(FIRST_PART)}\n"
    assert [each["step"] for each in records(run, "validation")] == [8, FIRST_PART][
        : 1 + is_validated
    ]
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
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    pointer: str,
) -> None:
    run = tmp_path / "run"
    point = Run.point
    # The first checkpoint is the best for some weights, the second for others.
    validations = records(uninterrupted, "validation")
    steps = [int(each["step"]) for each in validations if each["is_best"] or pointer == "last"]
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
    for each in ("best", "last"):
        assert weights(run, each) == weights(uninterrupted, each)


ENDLESS = ("--set", "training.max_epochs=1000", "--set", "training.log_every=1")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_signal_saves_the_state_and_gives_its_code(
    workspace: Workspace, tmp_path: Path, number: signal.Signals
) -> None:
    run = tmp_path / "run"
    command = [*MT_CLI, "train", "tiny.toml", "--run", str(run), *ENDLESS]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=workspace.folder
    ) as process:
        assert process.stderr is not None
        assert any(line.startswith("step 3 ") for line in process.stderr)
        process.send_signal(number)
        out, said = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, out) == (128 + number, "")
    step = status(run)["step"]
    assert isinstance(step, int)
    assert (status(run)["state"], step >= 3) == ("stopped", True)
    _, _, advised = said.rpartition(": python -m mt_cli ")  # as it was called
    words = shlex.split(advised)
    assert words == ["train", "tiny.toml", *ENDLESS, "--run", str(run), "--resume"]
    resumed = workspace.call(*words, "--time-limit", "0.001s", "--json")
    assert resumed.code == 0, resumed.err
    assert json.loads(resumed.out)["step"] == step + 1


def test_late_warm_up_and_a_model_that_learnt_nothing_are_warned_about(
    workspace: Workspace, tmp_path: Path
) -> None:
    late = ("--set", "training.warmup_steps=400", "--set", "training.max_epochs=2")
    outcome = workspace.call("train", "tiny.toml", "--run", tmp_path / "run", *late)
    assert outcome.code == 0
    assert "warning: training makes only" in outcome.err
    assert "training.warmup_steps = 0.1" in outcome.err
    assert "warning: the model " in outcome.err


def test_time_limit_exits_0_with_a_usable_run(workspace: Workspace, tmp_path: Path) -> None:
    run = tmp_path / "run"
    outcome = workspace.call("train", "tiny.toml", "--run", run, "--time-limit", "0.001s")
    assert (outcome.code, outcome.lines) == (0, [str(run)])
    assert f" train tiny.toml --run {run} --time-limit 0.001s --resume\n" in outcome.err
    assert (status(run)["state"], status(run)["step"]) == ("time_limit", 1)
    assert workspace.call("translate", run, "--text", "Ein Hund.").code == 0


def test_nothing_is_validated_at_a_time_limit_without_validation(
    workspace: Workspace, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    flags = ("--time-limit", "0.001s", "--no-validate")
    outcome = workspace.call("train", "tiny.toml", "--run", run, *flags)
    assert outcome.code == 0, outcome.err
    assert (status(run)["state"], status(run)["step"]) == ("time_limit", 1)
    assert records(run, "validation") == []
    assert not (run / "best.txt").exists()


def test_run_is_resumed_by_its_own_name_anywhere(workspace: Workspace, tmp_path: Path) -> None:
    run = workspace.copy_run(tmp_path / "elsewhere")
    for name in (run, run / "config.toml"):
        outcome = workspace.call("train", name, "--resume")
        assert (outcome.code, outcome.lines) == (0, [str(run)]), outcome.err
        assert "nothing is left to train" in outcome.err


@pytest.mark.parametrize("log_every", [1, 1000], ids=["logged", "unlogged"])
def test_diverged_training_exits_4_and_keeps_the_last_good_checkpoint(
    workspace: Workspace, tmp_path: Path, log_every: int
) -> None:
    run = tmp_path / "run"
    assert train(workspace, run, "--max-steps", 2).code == 0
    good = weights(run)
    settings = (
        "training.peak_lr=1e38",
        "training.clip_norm=0",
        "training.warmup_steps=0",
        "training.schedule=constant",
        "training.validate_every=5",
        f"training.log_every={log_every}",
    )
    wild = [arg for setting in settings for arg in ("--set", setting)]
    outcome = train(workspace, run, *wild, "--resume", "--max-steps", 30)
    assert (outcome.code, outcome.out) == (4, b"")
    assert "the last good checkpoint is kept; lower training.peak_lr" in outcome.err
    assert "Traceback" not in outcome.err
    assert status(run)["state"] == "diverged"
    assert weights(run) == weights(run, "best") == good


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


def test_model_trained_on_the_torch_backend_decodes_on_either(
    workspace: Workspace, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    assert train(workspace, run, "--set", "model.backend=torch", "--max-steps", 40).code == 0
    source = workspace.corpus("test.de").read_bytes()
    cached, oracle = (
        workspace.call("translate", run, "--quiet", "--backend", backend, stdin=source)
        for backend in ("scratch", "torch")
    )
    assert (cached, cached.code) == (oracle, 0)
    assert len(set(cached.lines)) > 1


@pytest.mark.parametrize("verb", ["train", "evaluate", "translate"])
def test_missing_gpu_exits_5(workspace: Workspace, tmp_path: Path, verb: str) -> None:
    args = ("tiny.toml", "--run", tmp_path / "run") if verb == "train" else ("runs/tiny",)
    outcome = workspace.call(verb, *args, "--device", "cuda")
    assert (outcome.code, outcome.out) == (5, b"")
    assert outcome.err.startswith("error: no CUDA device found")
    assert outcome.err.endswith("; use --device cpu, or auto\n")


def test_data_not_prepared_exit_3_and_name_the_command(
    workspace: Workspace, tmp_path: Path
) -> None:
    outcome = train(workspace, tmp_path / "run", data=tmp_path / "none")
    assert (outcome.code, outcome.out) == (3, b"")
    assert f"{tmp_path / 'none'}: no prepared data" in outcome.err
    assert "mt-cli prepare tiny.toml, and leave out --data" in outcome.err
    assert not tmp_path.joinpath("run").exists()


def test_loss_on_val_that_rises_again_is_called_overfitting(
    workspace: Workspace, tmp_path: Path
) -> None:
    run = workspace.copy_run(tmp_path / "run")
    lines = [json.loads(line) for line in run.joinpath("metrics.jsonl").read_text().splitlines()]
    for line in lines:
        if line["kind"] == "validation" and line["step"] < status(run)["step"]:
            line["nll"] = 0.01
    run.joinpath("metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    outcome = workspace.call("train", "tiny.toml", "--run", run, "--resume")
    assert "warning: the model overfits: its loss on val has risen from 0.010 to " in outcome.err


def test_data_that_a_run_was_trained_on_are_replaced_by_force_alone(workspace: Workspace) -> None:
    before = workspace.folder.joinpath("data/prepared/tiny/manifest.json").read_bytes()
    refused = workspace.call("prepare", "tiny.toml", "--set", "tokenizer.vocab_size=430")
    assert (refused.code, "holds what runs/tiny was trained on" in refused.err) == (2, True), (
        refused.err
    )
    assert workspace.folder.joinpath("data/prepared/tiny/manifest.json").read_bytes() == before


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


def test_a_rate_that_jumps_with_another_length_is_told(
    workspace: Workspace, tmp_path: Path
) -> None:
    run = workspace.copy_run(tmp_path / "run")
    args = ("--resume", "--run", run, "--set", "training.log_every=10")
    longer = workspace.call(
        "train", "tiny.toml", *args, "--set", "training.max_epochs=168", "--time-limit", "0.001s"
    )
    found = re.search(r"learning rate goes from (\S+) to (\S+)", longer.err)
    assert found is not None
    before, after = map(float, found.groups())
    assert 0 <= before < 1e-3 < after
