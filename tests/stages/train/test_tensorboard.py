"""Event files, written to a stand-in where TensorBoard is not installed."""

import importlib.util
import sys
from pathlib import Path

import pytest
from workspace import Workspace

from mt_cli.training.monitor import event_writer


def test_train_without_tensorboard_exits_5_and_names_the_command_to_install_it(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    outcome = workspace.call("train", "tiny.toml", "--run", tmp_path / "run", "--tensorboard")
    assert (outcome.code, outcome.out) == (5, b"")
    assert outcome.err.startswith("error: --tensorboard needs the package tensorboard, which cannot be ")
    assert outcome.err.endswith("run: pip install 'mt_cli[tensorboard]'\n")
    assert not tmp_path.joinpath("run").exists()


@pytest.mark.skipif(importlib.util.find_spec("tensorboard") is None, reason="TensorBoard is not installed")
def test_tensorboard_reads_what_was_written(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with event_writer(tmp_path, after_step=0) as events:
        events.add_scalar("train/loss", 3.5, 20)
    read = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [(event.step, event.value) for event in read.Scalars("train/loss")] == [(20, 3.5)]
