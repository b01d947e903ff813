"""Where measurements go beside metrics.jsonl: TensorBoard, Trackio or Weights & Biases."""

import importlib
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from typing import Any, Protocol

from mt_cli.config.schema import TrackerName
from mt_cli.errors import ResourceError
from mt_cli.runs.run import Run

PROJECT = "mt_cli"
MODULES: dict[TrackerName, str] = {
    "tensorboard": "torch.utils.tensorboard", "trackio": "trackio", "wandb": "wandb",
}  # fmt: skip


class Tracker(Protocol):
    """Shows curves."""

    def log(self, values: Mapping[str, float], *, step: int) -> None:
        """Note `values` by name, measured after `step` updates."""
        ...

    def finish(self) -> None:
        """Write what is not written yet."""
        ...


def check_tracker(name: TrackerName) -> None:
    """Make sure that what is asked for can be imported, before anything is made.

    Raises:
        ResourceError: it is not installed.
    """
    if name == "none":
        return
    try:
        importlib.import_module(MODULES[name])
    except ImportError as error:
        raise ResourceError(
            f"runtime.track '{name}' needs the package {name}, which cannot be imported ({error}); "
            f"run: pip install 'mt_cli[{name}]'"
        ) from error


def open_tracker(run: Run, *, after_step: int) -> Tracker | None:
    """What the config of `run` asks for; it goes on `after_step` updates, or begins after -1."""
    name = run.config.runtime.track
    if name == "none":
        return None
    module = importlib.import_module(MODULES[name])
    if name == "tensorboard":
        return _EventFiles(module.SummaryWriter(str(run.folder / name), purge_step=after_step + 1))
    return _Service(module, run)


class _Service:
    """Trackio or Weights & Biases, whose interfaces are alike. What they print is no result: not for stdout.

    A run is known by its folder's name, and goes on under it.
    """

    def __init__(self, module: Any, run: Run) -> None:  # noqa: ANN401
        self._module = module
        where = {"id": run.folder.name, "dir": str(run.folder)} if module.__name__ == "wandb" else {}
        config = run.config.model_dump(mode="json")
        with redirect_stdout(sys.stderr):
            module.init(project=PROJECT, name=run.folder.name, config=config, resume="allow", **where)

    def log(self, values: Mapping[str, float], *, step: int) -> None:
        """See `Tracker`."""
        self._module.log(values, step=step)

    def finish(self) -> None:
        """See `Tracker`."""
        with redirect_stdout(sys.stderr):
            self._module.finish()


class _EventFiles:
    """TensorBoard's, in the run's folder; `purge_step` hides what a kill lost of later updates."""

    def __init__(self, writer: Any) -> None:  # noqa: ANN401
        self._writer = writer

    def log(self, values: Mapping[str, float], *, step: int) -> None:
        """See `Tracker`."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def finish(self) -> None:
        """See `Tracker`."""
        self._writer.close()
