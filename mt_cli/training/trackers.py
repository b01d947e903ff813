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
ID_FILE = "tracker.txt"
"""File in a run folder with the name by which a service knows the run."""
MODULES: dict[TrackerName, str] = {
    "tensorboard": "torch.utils.tensorboard",
    "trackio": "trackio",
    "wandb": "wandb",
}


class Tracker(Protocol):
    """Gets the curves of a run."""

    def log(self, values: Mapping[str, float], *, step: int) -> None:
        """Note `values` by name, measured after `step` updates."""
        ...


def check_tracker(name: TrackerName) -> None:
    """Make sure that the tracker `name` can be imported, before anything is made.

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
    """The tracker that the config of `run` names; a resumed run goes on after update `after_step`.

    Raises:
        ResourceError: a service does not answer, or wants to know who you are.
    """
    name = run.config.runtime.track
    if name == "none":
        yield None
    elif name == "tensorboard":
        module = importlib.import_module(MODULES[name])
        # What a kill lost of later updates is hidden.
        writer = module.SummaryWriter(str(run.folder / name), purge_step=after_step + 1)
        try:
            yield _TensorBoard(writer)
        finally:
            writer.close()
    else:
        service = _Service(importlib.import_module(MODULES[name]), run)
        exit_code = 1
        try:
            yield service
            exit_code = 0
        except StoppedError:  # the state is saved, and training goes on later
            exit_code = 0
            raise
        finally:
            service.finish(exit_code)


class _TensorBoard:
    def __init__(self, writer: Any) -> None:  # noqa: ANN401
        self._writer = writer

    def log(self, values: Mapping[str, float], *, step: int) -> None:
        """Write `values` at once: what is only in memory is lost by a kill."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()


class _Service:
    """Trackio or Weights & Biases, whose interfaces are alike; training goes on where they fail.

    What they print goes to stderr, because stdout carries the result.
    """

    def __init__(self, module: ModuleType, run: Run) -> None:
        self._module = module
        self._is_wandb = module.__name__ == "wandb"
        self._has_failed = False
        path = run.folder / ID_FILE
        if not path.exists():  # other runs may have folders of the same name
            stem = re.sub(r"[^\w.-]", "_", run.folder.resolve().name)
            write_atomically(path, f"{stem}-{secrets.token_hex(4)}\n".encode())
        options: dict[str, object] = {
            "project": "mt_cli",
            "name": path.read_text(encoding="utf-8").strip(),
            "config": run.config.model_dump(mode="json"),
            "resume": "allow",
        }
        if self._is_wandb:
            options |= {"id": options["name"], "dir": str(run.folder)}
        try:
            with redirect_stdout(sys.stderr):
                module.init(**options)
        except Exception as error:
            raise ResourceError(f"runtime.track '{module.__name__}': {error}") from error

    def log(self, values: Mapping[str, float], *, step: int) -> None:
        """Send `values`."""
        self._call("log", values, step=step)

    def finish(self, exit_code: int) -> None:
        """End the run there; Weights & Biases also shows whether it failed."""
        if self._is_wandb:
            self._call("finish", exit_code=exit_code)
        else:
            self._call("finish")

    def _call(self, name: str, *args: object, **options: object) -> None:
        """Call the service's function `name`, unless the service has failed before."""
        if self._has_failed:
            return
        try:
            with redirect_stdout(sys.stderr):
                getattr(self._module, name)(*args, **options)
        except Exception as error:
            self._has_failed = True
            log.warning("%s gets no more curves: %s", self._module.__name__, error)
