"""`runtime.track`: the curves that trackers get; stand-ins replace packages that are missing."""

import importlib.util
import json
import os
import re
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from workspace import Workspace

from mt_cli.training.trackers import MODULES

SERVICES = ("trackio", "wandb")


def train(workspace: Workspace, run: Path, track: str, *args: object) -> tuple[int, str]:
    outcome = workspace.call(
        "train",
        "tiny.toml",
        "--run",
        run,
        "--set",
        f"runtime.track={track}",
        "--max-steps",
        40,
        *args,
    )
    assert outcome.code != 0 or outcome.lines == [str(run)]
    return outcome.code, outcome.err


class Curves:
    """What Trackio or Weights & Biases would have been told."""

    def __init__(self) -> None:
        self.opened: list[dict[str, object]] = []
        self.logged: dict[int, list[str]] = {}
        self.finished: list[dict[str, object]] = []
        self.fails_at = self.stops_at = ""

    def fail(self, where: str) -> None:
        if where == self.fails_at:
            raise OSError("no network")
        if where == self.stops_at:
            os.kill(os.getpid(), signal.SIGTERM)

    def init(self, **options: object) -> None:
        print("what a service prints of itself")
        self.fail("init")
        self.opened.append(options)

    def log(self, values: dict[str, float], *, step: int) -> None:
        self.fail("log")
        self.logged.setdefault(step, []).extend(values)

    def finish(self, **options: object) -> None:
        self.fail("finish")
        self.finished.append(options)


@pytest.fixture(params=SERVICES)
def service(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[str, Curves]:
    curves = Curves()
    calls = {name: getattr(curves, name) for name in ("init", "log", "finish")}
    monkeypatch.setitem(
        sys.modules, request.param, SimpleNamespace(__name__=request.param, **calls)
    )
    return request.param, curves


def test_a_service_is_told_what_metrics_jsonl_is_told(
    workspace: Workspace, service: tuple[str, Curves], tmp_path: Path
) -> None:
    name, curves = service
    assert train(workspace, tmp_path / "mine", name)[0] == 0
    assert curves.finished == [{"exit_code": 0} if name == "wandb" else {}]
    assert set(curves.logged) == {10, 20, 30, 40}
    assert "train/loss" in curves.logged[10]
    nll, bleu = curves.logged[40][-2:]
    assert nll == "val/nll"
    assert bleu.startswith("val/BLEU (nrefs:1|case:mixed|")
    (opened,) = curves.opened
    assert opened["project"] == "mt_cli"
    assert re.fullmatch("mine-[0-9a-f]{8}", str(opened["name"]))


@pytest.mark.parametrize("where", ["log", "finish"])
def test_training_goes_on_where_a_service_fails(
    workspace: Workspace, service: tuple[str, Curves], tmp_path: Path, where: str
) -> None:
    name, curves = service
    curves.fails_at = where
    code, err = train(workspace, tmp_path / "mine", name)
    assert code == 0
    assert err.count(f"warning: {name} gets no more curves: no network\n") == 1
    status = json.loads(tmp_path.joinpath("mine", "status.json").read_bytes())
    assert status["state"] == "finished"


def test_a_service_that_cannot_be_reached_is_an_error_of_the_machine(
    workspace: Workspace, service: tuple[str, Curves], tmp_path: Path
) -> None:
    name, curves = service
    curves.fails_at = "init"
    code, err = train(workspace, tmp_path / "mine", name)
    assert (code, err.splitlines()[-1]) == (5, f"error: runtime.track '{name}': no network")


def test_a_diverged_run_is_a_failed_one(
    workspace: Workspace, service: tuple[str, Curves], tmp_path: Path
) -> None:
    name, curves = service
    broken = ("--set", "training.peak_lr=1e30", "--set", "training.clip_norm=0")
    assert train(workspace, tmp_path / "mine", name, *broken)[0] != 0
    assert curves.finished == [{"exit_code": 1} if name == "wandb" else {}]


def test_a_stopped_run_is_no_failed_one(
    workspace: Workspace, service: tuple[str, Curves], tmp_path: Path
) -> None:
    name, curves = service
    curves.stops_at = "log"
    assert train(workspace, tmp_path / "mine", name)[0] == 128 + signal.SIGTERM
    assert curves.finished == [{"exit_code": 0} if name == "wandb" else {}]


def test_a_resumed_run_keeps_its_name_and_another_gets_its_own(
    workspace: Workspace, service: tuple[str, Curves], tmp_path: Path
) -> None:
    name, curves = service
    train(workspace, tmp_path / "mine", name)
    assert train(workspace, tmp_path / "mine", name, "--max-steps", 60, "--resume")[0] == 0
    assert max(curves.logged) == 60
    train(workspace, tmp_path / "mine", name, "--overwrite")
    first, second, other = (options["name"] for options in curves.opened)
    assert first == second != other
    assert curves.opened[1]["resume"] == "allow"


@pytest.mark.parametrize("name", MODULES)
def test_a_package_that_is_missing_exits_5_with_the_command_that_installs_it(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    monkeypatch.setitem(sys.modules, MODULES[name], None)  # type: ignore[index]
    code, err = train(workspace, tmp_path / "run", name)
    assert code == 5
    assert err.startswith(
        f"error: runtime.track '{name}' needs the package {name}, which cannot be imported"
    )
    assert err.endswith(f"run: pip install 'mt_cli[{name}]'\n")
    assert not tmp_path.joinpath("run").exists()


@pytest.mark.skipif(
    importlib.util.find_spec("tensorboard") is None, reason="TensorBoard is not installed"
)
def test_tensorboard_reads_what_was_written(workspace: Workspace, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    assert train(workspace, tmp_path / "run", "tensorboard")[0] == 0
    read = EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    assert [event.step for event in read.Scalars("train/loss")] == [10, 20, 30, 40]


@pytest.mark.skipif(importlib.util.find_spec("trackio") is None, reason="Trackio is not installed")
def test_trackio_reads_what_was_written(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    assert train(workspace, tmp_path / "mine", "trackio")[0] == 0
    import trackio

    (run,) = trackio.Api().runs("mt_cli")
    assert run.name.startswith("mine-")
