"""The checkpoints of a run: which there are, which is the best and the last, and which nobody needs.

Of what is in a checkpoint, it asks only which one was the best then. Nothing here goes through a link.
"""

import logging
import os
import re
import shutil
from contextlib import suppress
from pathlib import Path

from mt_cli.artefacts.checkpoint import checkpoint_name, load_state
from mt_cli.artefacts.files import check_no_links, is_there, read_file, write_atomically
from mt_cli.artefacts.folders import opened_folder, recover
from mt_cli.errors import DataError, UsageError

log = logging.getLogger(__name__)

POINTERS = ("best", "last")
CHECKPOINTS = "checkpoints"
CHECKPOINT_NAME = re.compile(r"step-\d{8,}")
OWN_FOLDER = re.compile(r"step-\d{8,}|\.step-\d{8,}\.(([\d@a-f]+\.)?partial|old)")
MOST_POINTER_BYTES = 1 << 10
POINTER_READINGS = 5
"""A training that goes on meanwhile may have deleted the checkpoint that a pointer has just named."""


def checkpoint_names(run: Path) -> list[str]:
    """Names of the checkpoints in the run folder `run`, oldest first."""
    check_no_links(run / CHECKPOINTS, below=run)
    for aside in run.glob(f"{CHECKPOINTS}/.step-*.old"):
        recover(aside.with_name(aside.stem.removeprefix(".")))
    names = (path.name for path in run.glob(f"{CHECKPOINTS}/*"))
    return sorted(name for name in names if CHECKPOINT_NAME.fullmatch(name))


def find_checkpoint(run: Path, name: str) -> Path:
    """Folder of the checkpoint called `name`, which may be `best` or `last`.

    Raises:
        UsageError: there is none of that name.
        DataError: `best` or `last` points to one that is not there, or a link is on the way.
    """
    target = _target(run, name) if name in POINTERS else name
    names = checkpoint_names(run)
    if target is None or target not in names:
        found = [pointer for pointer in POINTERS if read_pointer(run, pointer) in names] + names
        hint = f"it has {', '.join(found)}" if found else "training saved none yet"
        raise UsageError(f"{run}: no checkpoint '{name}'; {hint}")
    return _real_place(run, target)


def named_checkpoint(run: Path, name: str) -> Path:
    """Folder of the checkpoint called `name`, of a run that others may have named: nothing is renamed there.

    Raises:
        DataError: none is there, the name is none of a checkpoint, or a link is on the way.
    """
    try:
        if CHECKPOINT_NAME.fullmatch(name) and (run / CHECKPOINTS / name).is_dir():
            return _real_place(run, name)
    except OSError as error:
        raise DataError(f"{run}: cannot be read: {error.strerror}") from error
    raise DataError(f"{run}: no checkpoint {name!r} is there")


def place_of_checkpoint(run: Path, *, step: int) -> Path:
    """Where the checkpoint after update `step` belongs.

    Raises:
        DataError: a link is on the way there.
    """
    return _real_place(run, checkpoint_name(step))


def read_pointer(run: Path, name: str) -> str | None:
    """Name of the checkpoint that `best` or `last` points to, if there is one.

    One flipped bit can make the name of one checkpoint that of another. So neither pointer is trusted alone:
    the last checkpoint is the newest, and the best one says so itself. (`last.txt` may lag behind or be
    missing: a process may have been killed after it had saved a checkpoint and before it wrote the pointer.)

    Raises:
        DataError: what it says is no such name, or not that of the best.
    """
    path = run / f"{name}.txt"
    if not is_there(path):
        return max(checkpoint_names(run), default=None) if name == "last" else None
    target = read_file(path, most=MOST_POINTER_BYTES).strip().decode(errors="replace")
    if not CHECKPOINT_NAME.fullmatch(target):
        raise DataError(f"{path}: names no checkpoint: {target!r}; write the name of one into it")
    if name == "last":
        return max([target, *checkpoint_names(run)])
    best = _best_according_to(run / CHECKPOINTS / target)
    if best not in (None, target):
        raise DataError(
            f"{path}: names {target}, which says that {best} is the best; write that name into it"
        )
    return target


def write_pointer(run: Path, name: str, *, step: int) -> None:
    """Let `best` or `last` point to the checkpoint after `step`."""
    write_atomically(run / f"{name}.txt", f"{checkpoint_name(step)}\n".encode())


def remove_unused_checkpoints(run: Path, *, last: int) -> None:
    """Delete checkpoints but the best and that of step `last`, and those that are unfinished.

    A newer one than `last` is unused too: it could not be used, so training went on from another. One that
    cannot be deleted stays, with a warning: nobody needs it to be gone.

    Raises:
        DataError: a link stands in place of the folder that holds them; what it points to is left alone.
    """
    used = {read_pointer(run, "best"), checkpoint_name(last)}
    with opened_folder(run / CHECKPOINTS) as folder:
        for name in os.listdir(folder):  # noqa: PTH208 — a descriptor is no path
            if OWN_FOLDER.fullmatch(name) and name not in used:
                try:
                    shutil.rmtree(name, dir_fd=folder)
                except OSError as error:
                    reason = error.strerror or error
                    log.warning("%s: cannot be deleted: %s", run / CHECKPOINTS / name, reason)


def _target(run: Path, pointer: str) -> str | None:
    """Name of the checkpoint that `pointer` points to, which is there; None if there is no pointer."""
    for _ in range(POINTER_READINGS):
        target = read_pointer(run, pointer)
        names = checkpoint_names(run)
        if target is None or target in names:
            return target
    raise DataError(
        f"{run / pointer}.txt: names {target}, which is not in {CHECKPOINTS}; there: "
        f"{', '.join(names) or 'none'}; write the name of one into it"
    )


def _best_according_to(checkpoint: Path) -> str | None:
    """Name of the best checkpoint by the time that `checkpoint` was saved; None if it cannot be asked."""
    with suppress(DataError):  # whoever loads it is told
        best = load_state(checkpoint).best_step
        return None if best is None else checkpoint_name(best)
    return None


def _real_place(run: Path, name: str) -> Path:
    folder = run / CHECKPOINTS / name
    check_no_links(folder, below=run)
    return folder
