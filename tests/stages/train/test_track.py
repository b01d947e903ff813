"""`runtime.track`: what curves are told, and by whom; stand-ins take the place of missing packages."""

import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from workspace import Workspace

from mt_cli.training.track import MODULES

SERVICES = ("trackio", "wandb")


def train(workspace: Workspace, run: Path, track: str, *args: object) -> tuple[int, str]:
    outcome = workspace.call(
        "train", "tiny.toml", "--run", run, "--set", f"runtime.track={track}", "--max-steps", 40, *args
    )
    assert outcome.code != 0 or outcome.lines == [str(run)]
    return outcome.code, outcome.err


class Curves:
    """What Trackio or Weights & Biases would have been told."""

    def __init__(self) -> None:
        self.opened: list[dict[str, object]] = []
        self.logged: dict[int, list[str]] = {}
        self.is_finished = False

    def init(self, **options: object) -> None:
        print("what a service prints of itself")
        self.opened.append(options)
        self.is_finished = False

    def log(self, values: dict[str, float], *, step: int) -> None:
        self.logged.setdefault(step, []).extend(values)

    def finish(self) -> None:
        self.is_finished = True


@pytest.fixture(params=SERVICES)
def service(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[str, Curves]:
    curves = Curves()
    calls = {name: getattr(curves, name) for name in ("init", "log", "finish")}
    monkeypatch.setitem(sys.modules, request.param, SimpleNamespace(__name__=request.param, **calls))
    return request.param, curves


def test_a_service_is_told_what_metrics_jsonl_is_told(
    workspace: Workspace, service: tuple[str, Curves], tmp_path: Path
) -> None:
    name, curves = service
    assert train(workspace, tmp_path / "mine", name)[0] == 0
    assert curves.is_finished
    assert set(curves.logged) == {10, 20, 30, 40}
    assert "train/loss" in curves.logged[10]
    nll, bleu = curves.logged[40][-2:]
    assert nll == "val/nll"
    assert bleu.startswith("val/BLEU (nrefs:1|case:mixed|")
    (opened,) = curves.opened
    assert (opened["project"], opened["name"]) == ("mt_cli", "mine")


def test_a_resumed_run_goes_on_under_its_name(
    workspace: Workspace, service: tuple[str, Curves], tmp_path: Path
) -> None:
    name, curves = service
    train(workspace, tmp_path / "mine", name)
    assert train(workspace, tmp_path / "mine", name, "--max-steps", 60, "--resume")[0] == 0
    first, second = curves.opened
    assert {key: first[key] for key in first if key != "config"} == {
        key: second[key] for key in second if key != "config"
    }
    assert second["resume"] == "allow"
    assert max(curves.logged) == 60


@pytest.mark.parametrize("name", MODULES)
def test_a_package_that_is_missing_exits_5_with_the_command_that_installs_it(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    monkeypatch.setitem(sys.modules, MODULES[name], None)  # type: ignore[index]
    code, err = train(workspace, tmp_path / "run", name)
    assert code == 5
    assert err.startswith(f"error: runtime.track '{name}' needs the package {name}, which cannot be imported")
    assert err.endswith(f"run: pip install 'mt_cli[{name}]'\n")
    assert not tmp_path.joinpath("run").exists()


@pytest.mark.skipif(importlib.util.find_spec("tensorboard") is None, reason="TensorBoard is not installed")
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
    assert run.name == "mine"
