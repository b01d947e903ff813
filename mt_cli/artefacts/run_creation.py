"""A new run folder: built beside its place, and locked from the moment it exists.

Knows what a run begins with; `run` knows the rest.
"""

import errno
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from mt_cli.artefacts.files import (
    check_replaceable,
    is_free,
    replace_folder,
    sha256_bytes,
    sync_folder,
    write_atomically,
    write_error,
    write_json,
)
from mt_cli.artefacts.run import FORMAT, TOKENIZER, PreparedReference, Run, open_run
from mt_cli.artefacts.run_lock import busy, locked
from mt_cli.config import Config, dump_config
from mt_cli.errors import UsageError


@contextmanager
def created_run(
    folder: Path,
    config: Config,
    *,
    tokenizer_files: Mapping[str, bytes],
    prepared: PreparedReference,
    environment: Mapping[str, object],
    overwrite: bool = False,
) -> Iterator[Run]:
    """Create a run folder; no other process can train in it while the block lasts.

    Raises:
        UsageError: the folder exists and cannot be replaced: `overwrite` is off, it is no run folder, or a
            process is training there.
    """
    place = folder.resolve()
    # Built beside its place: a kill leaves either no run or a whole one.
    # The name is random, because a process on another machine may have this one's number.
    partial = place.with_name(f".{place.name}.{uuid.uuid4().hex}.partial")
    with ExitStack() as old:
        check_replaceable(
            folder,
            is_wanted=overwrite,
            own_files=("manifest.json", "config.toml"),  # prepared folders have a manifest too
            kind="a run folder",
            ways_out="--resume goes on with it, --overwrite starts anew, --run names another",
        )
        is_there = not is_free(place)
        if is_there:
            old.enter_context(locked(folder))
        if Path.cwd().is_relative_to(place):
            raise UsageError(f"{folder}: a new run takes the place of the folder you are in; name another")
        try:
            _fill(partial, config, tokenizer_files, prepared, environment)
            with locked(partial):  # the lock moves along with the folder
                if is_there:
                    replace_folder(place, partial)
                else:
                    _move_to_free_place(partial, place, folder)
                old.close()
                yield open_run(folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


def _fill(
    folder: Path,
    config: Config,
    tokenizer_files: Mapping[str, bytes],
    prepared: PreparedReference,
    environment: Mapping[str, object],
) -> None:
    """Write the files of a new run."""
    files = {"config.toml": dump_config(config).encode()}
    files |= {f"{TOKENIZER}{name}": data for name, data in tokenizer_files.items()}
    for name, data in files.items():
        write_atomically(folder / name, data)
    write_json(folder / "env.json", dict(environment))
    manifest = {
        "format": FORMAT,
        "sha256": {name: sha256_bytes(data) for name, data in files.items()},
        "prepared": {"folder": prepared.folder, "sha256": prepared.sha256},
    }
    write_json(folder / "manifest.json", manifest)


def _move_to_free_place(new: Path, place: Path, folder: Path) -> None:
    """Rename `new` to `place`, which was free a moment ago."""
    try:
        new.rename(place)
        sync_folder(place.parent)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):  # another process was a moment faster
            raise busy(folder) from None
        raise write_error(folder, error) from error
