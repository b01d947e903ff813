"""Experiment trackers that get the curves too: TensorBoard, Trackio or Weights & Biases."""

import importlib
import logging
import re
import secrets
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from types import ModuleType
from typing import Any, Protocol

from mt_cli.config.schema import TrackerName
from mt_cli.errors import ResourceError, StoppedError
from mt_cli.machine.files import write_atomically
from mt_cli.runs.run import Run

log = logging.getLogger(__name__)
PROJECT = "mt_cli"
NAME = "tracker.txt"
"""File in a run folder that has the name by which a service knows the run."""
MODULES: dict[TrackerName, str] = {
    "tensorboard": "torch.utils.tensorboard", "trackio": "trackio", "wandb": "wandb",
}  # fmt: skip


class Tracker(Protocol):
    """Gets the curves of a run."""

    def log(self, values: Mapping[str, float], *, step: int) -> None:
        """Note `values` by name, measured after `step` updates."""
        ...

    def finish(self, *, has_failed: bool) -> None:
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


@contextmanager
def tracking(run: Run, *, after_step: int) -> Iterator[Tracker | None]:
    """The tracker that the config of `run` names; -1 is a new run, else it goes on after update
    `after_step`.

    Raises:
        ResourceError: a service does not answer, or wants to know who you are.
    """
    name = run.config.runtime.track
    if name == "none":
        yield None
        return
    module = importlib.import_module(MODULES[name])
    tracker: Tracker
    if name == "tensorboard":
        tracker = _EventFiles(
            module.SummaryWriter(str(run.folder / name), purge_step=after_step + 1)
        )
    else:
        tracker = _Service(module, run)
    has_failed = True
    try:
        yield tracker
        has_failed = False
    except StoppedError:  # it is saved, and goes on later
        has_failed = False
        raise
    finally:
        tracker.finish(has_failed=has_failed)


class _Service:
    """Trackio or Weights & Biases, whose interfaces are alike. What they print is no result: not
    for stdout.

    Training goes on where one of them fails.
    """

    def __init__(self, module: ModuleType, run: Run) -> None:
        self._module: Any = module
        self._is_wandb = (
            module.__name__ == "wandb"
        )  # which also wants an id, a folder and how it ended
        place = run.folder / NAME
        if not place.exists():  # a name of its own, for other runs have this folder's name too
            stem = re.sub(r"[^\w.-]", "_", run.folder.resolve().name)
            write_atomically(place, f"{stem}-{secrets.token_hex(4)}\n".encode())
        name = place.read_text(encoding="utf-8").strip()
        where = {"id": name, "dir": str(run.folder)} if self._is_wandb else {}
        config = run.config.model_dump(mode="json")
        try:
            with redirect_stdout(sys.stderr):
                self._module.init(
                    project=PROJECT, name=name, config=config, resume="allow", **where
                )
        except Exception as error:
            raise ResourceError(f"runtime.track '{module.__name__}': {error}") from error
        self._has_failed = False

    def log(self, values: Mapping[str, float], *, step: int) -> None:
        """Note them, unless the service has failed before."""
        self._call("log", values, step=step)

    def finish(self, *, has_failed: bool) -> None:
        """Tell the service that no more comes."""
        self._call("finish", **({"exit_code": int(has_failed)} if self._is_wandb else {}))

    def _call(self, name: str, *args: object, **options: object) -> None:
        if self._has_failed:
            return
        try:
            with redirect_stdout(sys.stderr):
                getattr(self._module, name)(*args, **options)
        except Exception as error:
            self._has_failed = True
            log.warning("%s gets no more curves: %s", self._module.__name__, error)


class _EventFiles:
    """TensorBoard's, in the run's folder; `purge_step` hides what a kill lost of later updates."""

    def __init__(self, writer: Any) -> None:  # noqa: ANN401
        self._writer = writer

    def log(self, values: Mapping[str, float], *, step: int) -> None:
        """Write them at once: what is only in memory is lost by a kill."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def finish(self, *, has_failed: bool) -> None:
        """Close the files."""
        self._writer.close()
