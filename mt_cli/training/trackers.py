"""Experiment trackers: TensorBoard, Trackio, Weights & Biases."""

import logging
import re
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from typing import Any

from mt_cli.config.schema import TrackerName
from mt_cli.errors import ResourceError
from mt_cli.machine.files import write_atomically
from mt_cli.machine.process import import_extra
from mt_cli.runs.run import Run

log = logging.getLogger(__name__)

Tracker = Callable[[Mapping[str, float], int], None]
"""Takes values by name, and the step at which they were measured."""
MODULES: dict[TrackerName, str] = {
    "tensorboard": "torch.utils.tensorboard",
    "trackio": "trackio",
    "wandb": "wandb",
}
ID_FILE = "tracker.txt"
"""File in a run folder with the run's name at the tracking service."""


def import_tracker(name: TrackerName) -> Any:  # noqa: ANN401 — a module without types
    """The module of the tracker `name`; None for "none"."""
    if name == "none":
        return None
    return import_extra(MODULES[name], extra=name, needed_by=f"runtime.track '{name}'")


@contextmanager
def tracking(run: Run, *, after_step: int) -> Iterator[Tracker | None]:
    """The tracker in the config of `run`; a resumed run continues after update `after_step`.

    Raises:
        ResourceError: a service does not answer, or needs a login.
    """
    name = run.config.runtime.track
    module = import_tracker(name)
    if name == "none":
        yield None
    elif name == "tensorboard":
        # Hide later updates that were logged before a kill.
        writer = module.SummaryWriter(str(run.folder / name), purge_step=after_step + 1)

        def write(values: Mapping[str, float], step: int) -> None:
            for key, value in values.items():
                writer.add_scalar(key, value, step)
            writer.flush()  # a kill loses what is only in memory

        try:
            yield write
        finally:
            writer.close()
    else:
        service = _Service(module, run)
        try:
            yield lambda values, step: service.call("log", values, step=step)
        finally:
            service.call("finish")


class _Service:
    """Trackio or Weights & Biases, which share an interface; training continues if they fail.

    Their output goes to stderr, because stdout is for the result.
    """

    def __init__(self, module: Any, run: Run) -> None:  # noqa: ANN401
        self._module = module
        self._has_failed = False
        path = run.folder / ID_FILE
        if not path.exists():  # other runs may have folders of the same name
            stem = re.sub(r"[^\w.-]", "_", run.folder.resolve().name)
            write_atomically(path, f"{stem}-{secrets.token_hex(4)}\n".encode())
        name = path.read_text(encoding="utf-8").strip()
        own = {"id": name, "dir": str(run.folder)} if module.__name__ == "wandb" else {}
        config = run.config.model_dump(mode="json")
        try:
            with redirect_stdout(sys.stderr):
                module.init(project="mt_cli", name=name, config=config, resume="allow", **own)
        except Exception as error:
            raise ResourceError(f"runtime.track '{module.__name__}': {error}") from error

    def call(self, name: str, *args: object, **options: object) -> None:
        """Call the service's function `name`, unless a call has failed before."""
        if self._has_failed:
            return
        try:
            with redirect_stdout(sys.stderr):
                getattr(self._module, name)(*args, **options)
        except Exception as error:
            self._has_failed = True
            log.warning("stopped logging to %s: %s", self._module.__name__, error)
