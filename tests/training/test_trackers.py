"""`runtime.track`: the curves that trackers get; stand-ins replace packages that are missing."""

import importlib.util
import re
import signal
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
import trained
from trained import sets, status
from workspace import Outcome, Workspace

from mt_cli.training.trackers import MODULES


def train(workspace: Workspace, run: Path, track: str, *args: object) -> Outcome:
    steps = () if "--max-steps" in args else ("--max-steps", 40)
    outcome = trained.train(workspace, run, *sets(f"runtime.track={track}"), *steps, *args)
    assert outcome.code != 0 or outcome.lines == [str(run)]
    return outcome


@pytest.fixture(params=("trackio", "wandb"))
def service(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Mock:
    """A package that sends curves away."""
    module = Mock(__name__=request.param)
    monkeypatch.setitem(sys.modules, request.param, module)
    return module


def test_a_service_is_told_what_metrics_jsonl_is_told(
    workspace: Workspace, service: Mock, run: Path
) -> None:
    service.init.side_effect = lambda **_: print("what a service prints of itself")
    assert train(workspace, run, service.__name__).code == 0
    service.finish.assert_called_once()
    calls = service.log.call_args_list
    assert {call.kwargs["step"] for call in calls} == {10, 20, 30, 40}
    assert "train/loss" in calls[0].args[0]
    *_, nll, bleu = calls[-1].args[0]
    assert nll == "val/nll"
    assert bleu.startswith("val/BLEU (nrefs:1|case:mixed|")


@pytest.mark.parametrize("where", ["log", "finish"])
def test_training_goes_on_where_a_service_fails(
    workspace: Workspace, service: Mock, run: Path, where: str
) -> None:
    getattr(service, where).side_effect = OSError("no network")
    outcome = train(workspace, run, service.__name__)
    assert outcome.code == 0
    warning = f"warning: stopped logging to {service.__name__}: no network\n"
    assert outcome.err.count(warning) == 1
    assert status(run)["state"] == "finished"


def test_a_service_that_cannot_be_reached_is_an_error_of_the_machine(
    workspace: Workspace, service: Mock, run: Path
) -> None:
    service.init.side_effect = OSError("no network")
    outcome = train(workspace, run, service.__name__)
    said = f"error: runtime.track '{service.__name__}': no network"
    assert (outcome.code, outcome.err.splitlines()[-1]) == (5, said)


def test_a_run_that_is_stopped_or_diverges_is_ended_with_the_service(
    workspace: Workspace, service: Mock, run: Path
) -> None:
    wild = sets("training.peak_lr=1e30", "training.clip_norm=0")
    assert train(workspace, run, service.__name__, *wild).code == 4
    service.finish.assert_called_once()
    service.log.side_effect = lambda *_, **__: signal.raise_signal(signal.SIGTERM)
    assert train(workspace, run, service.__name__, "--overwrite").code == 128 + signal.SIGTERM
    assert service.finish.call_count == 2


def test_a_resumed_run_keeps_its_name_and_another_gets_its_own(
    workspace: Workspace, service: Mock, run: Path
) -> None:
    train(workspace, run, service.__name__)
    assert train(workspace, run, service.__name__, "--max-steps", 60, "--resume").code == 0
    assert service.log.call_args.kwargs["step"] == 60
    train(workspace, run, service.__name__, "--overwrite")
    opened = [call.kwargs for call in service.init.call_args_list]
    first, second, other = (options["name"] for options in opened)
    assert first == second != other
    assert re.fullmatch("run-[0-9a-f]{8}", first)
    assert opened[1]["resume"] == "allow"


@pytest.mark.parametrize("name", MODULES)
def test_a_package_that_is_missing_exits_5_with_the_command_that_installs_it(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, run: Path, name: str
) -> None:
    monkeypatch.setitem(sys.modules, MODULES[name], None)  # type: ignore[index]
    outcome = train(workspace, run, name)
    assert outcome.code == 5
    assert f"runtime.track '{name}' needs a package" in outcome.err
    assert f"mt_cli[{name}]" in outcome.err
    assert not run.exists()


@pytest.mark.skipif(
    importlib.util.find_spec("tensorboard") is None, reason="TensorBoard is not installed"
)
def test_tensorboard_reads_what_was_written(workspace: Workspace, run: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    assert train(workspace, run, "tensorboard").code == 0
    read = EventAccumulator(str(run / "tensorboard")).Reload()
    assert [event.step for event in read.Scalars("train/loss")] == [10, 20, 30, 40]


@pytest.mark.skipif(importlib.util.find_spec("trackio") is None, reason="Trackio is not installed")
def test_trackio_reads_what_was_written(
    workspace: Workspace, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(run.parent / "trackio"))
    assert train(workspace, run, "trackio").code == 0
    import trackio

    (found,) = trackio.Api().runs("mt_cli")
    assert found.name.startswith("run-")
