"""Folders that appear whole: built beside their place, put there in one step, and found again after a kill.

Knows names and what killed processes leave, nothing of what is in a folder.
"""

import logging
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from mt_cli.artefacts.exchange import exchange
from mt_cli.artefacts.files import (
    FOLDER,
    is_there,
    link_error,
    sync_folder,
)
from mt_cli.artefacts.leftovers import is_abandoned, partial_name
from mt_cli.artefacts.write_errors import write_error, write_errors_explained
from mt_cli.errors import UsageError

log = logging.getLogger(__name__)

MOMENT_S = 0.2
"""Longer than a living process leaves a name without its folder."""


def is_free(folder: Path) -> bool:
    """Whether `folder` does not exist, or is an empty folder."""
    return not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))


def check_replaceable(
    folder: Path, *, is_wanted: bool, own_files: Sequence[str], kind: str, ways_out: str
) -> None:
    """Make sure that `folder` is free, or may be replaced: it is `kind`, known by its `own_files`.

    Raises:
        UsageError: it is something else, or the folder that the user is in, or `is_wanted` is off; `ways_out`
            then says what to do.
    """
    recover(folder)
    if not is_free(folder):
        if not is_wanted:
            raise UsageError(f"{folder} exists; {ways_out}")
        if not all((folder / name).is_file() for name in own_files):
            raise UsageError(f"{folder} is not {kind}, so --overwrite leaves it alone; name another")
    if Path.cwd().is_relative_to(folder.resolve()):
        raise UsageError(f"{folder}: a new folder would take the place of the one you are in; name another")


def check_outside(folder: Path, inputs: Iterable[Path], *, way_out: str) -> None:
    """Make sure that `folder`, which will be replaced, holds none of `inputs`.

    Raises:
        UsageError: it does; `way_out` then says what to do.
    """
    for path in inputs:
        if path.resolve().is_relative_to(folder.resolve()):
            raise UsageError(f"{path} lies in {folder}, which would be replaced; {way_out}")


@contextmanager
def built_beside(folder: Path) -> Iterator[Path]:
    """Yield a new folder to fill, which then replaces `folder`; after an error nothing of it is left.

    Raises:
        ResourceError: it cannot be written; the old folder is still there.
    """
    recover(folder)
    place = folder.resolve()  # of a link, the folder behind it is replaced, not the link
    partial = place.with_name(partial_name(place.name))
    remove_leftovers_of(folder)
    shutil.rmtree(partial, ignore_errors=True)
    try:
        with write_errors_explained(folder, *place.parents):
            partial.mkdir(parents=True)
        with write_errors_explained(folder, partial):
            yield partial
        put_in_place(partial, place)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def put_in_place(new: Path, folder: Path, *, replaces: bool = True) -> None:
    """Give `new` the name of `folder`; an old `folder` then has the name of `new`.

    Raises:
        ResourceError: it cannot be renamed, or `replaces` is off and `folder` is not free; it is still there.
    """
    try:
        if not replaces or not folder.exists():
            new.rename(folder)
        elif not exchange(new, folder):
            _swap(new, folder)
        sync_folder(folder.parent)
    except OSError as error:
        raise write_error(folder, error) from error


def recover(folder: Path) -> None:
    """Put back the old `folder` if a process was killed after it had moved that aside, and before the end."""
    place = folder.resolve()
    if is_there(place) or not os.path.isdir(_aside(place)):  # noqa: PTH112 — a name may be too long
        return
    time.sleep(MOMENT_S)  # its maker may be alive and about to put the new one there
    if not is_there(place):
        with suppress(OSError):
            _aside(place).rename(place)
            log.warning("%s: put back; a process was killed while it replaced this folder", folder)


def remove_leftovers(folder: Path, *, of: str | None = None) -> None:
    """Remove what killed processes left in `folder` (of the entry `of`, where given).

    Partials of processes that run stay.
    """
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if is_abandoned(entry, of=of):
                remove(Path(entry.path))
    if of is not None and is_there(folder / of):
        remove(_aside(folder / of))


def remove_leftovers_of(folder: Path) -> None:
    """Remove what killed processes left of `folder` and of what was to replace it."""
    place = folder.resolve()
    remove_leftovers(place.parent, of=place.name)


def remove(path: Path) -> None:
    """Delete `path`, a file or a folder, if that can be done; of a link, only the link."""
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


@contextmanager
def opened_folder(folder: Path) -> Iterator[int]:
    """A descriptor of `folder`, which is no link; by it, what is inside can be deleted and nothing else.

    Raises:
        DataError: it is a link.
        OSError: there is no such folder.
    """
    if folder.is_symlink():
        raise link_error(folder)
    descriptor = os.open(folder, FOLDER | os.O_NOFOLLOW)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _aside(folder: Path) -> Path:
    """Where an old `folder` is for the moment in which the new one takes its name."""
    return folder.with_name(f".{folder.name}.old")


def _swap(new: Path, folder: Path) -> None:
    """Swap two names where the system cannot do it in one step; `recover` mends what a kill breaks."""
    old = _aside(folder)
    remove(old)
    folder.rename(old)
    try:
        new.rename(folder)
    except OSError:
        old.rename(folder)
        raise
    old.rename(new)
