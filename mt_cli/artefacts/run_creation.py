"""A new run folder: built beside its place, and locked from the moment it exists.

Knows what a run begins with; `run` knows the rest.
"""

import errno
import glob
import re
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from mt_cli.artefacts.files import MANIFEST, sha256_bytes, write_atomically
from mt_cli.artefacts.folders import check_replaceable, is_free, put_in_place, remove, remove_leftovers_of
from mt_cli.artefacts.run import TOKENIZER, Run, open_run
from mt_cli.artefacts.run_facts import ENVIRONMENT, write_facts
from mt_cli.artefacts.run_lock import busy, is_locked, locked
from mt_cli.artefacts.run_manifest import (
    ParentReference,
    PreparedReference,
    RunManifest,
    write_run_manifest,
)
from mt_cli.artefacts.write_errors import WriteError, write_errors_explained
from mt_cli.config import RUN_CONFIG, Config, dump_config

PARTIAL = re.compile(r".+\.[0-9a-f]{32}\.partial", re.DOTALL)
TAKEN = (errno.ENOTEMPTY, errno.EEXIST)
"""Why a folder cannot be given a name that another one has."""
LONG_S = 60.0
"""Longer than a living process takes from making a folder to locking it."""


@contextmanager
def created_run(
    folder: Path,
    config: Config,
    *,
    tokenizer_files: Mapping[str, bytes],
    prepared: PreparedReference,
    environment: Mapping[str, object],
    init_from: ParentReference | None = None,
    overwrite: bool = False,
) -> Iterator[Run]:
    """Create a run folder; no other process can train in it while the block lasts.

    Raises:
        UsageError: the folder exists and cannot be replaced: `overwrite` is off, it is no run folder, or a
            process is training there.
    """
    with ExitStack() as locks:
        check_replaceable(
            folder,
            is_wanted=overwrite,
            # Prepared folders have a manifest too, and exported models both of the others.
            own_files=(MANIFEST, RUN_CONFIG, ENVIRONMENT),
            kind="a run folder",
            ways_out="--resume goes on with it, --overwrite starts anew, --run names another",
        )
        is_new = is_free(folder)
        if not is_new:
            locks.enter_context(locked(folder))
        place = folder.resolve()
        # Built beside its place: a kill leaves either no run or a whole one.
        # The name is random, because a process on another machine may have this one's number.
        partial = place.with_name(f".{place.name}.{uuid.uuid4().hex}.partial")
        remove_abandoned(place)
        try:
            with write_errors_explained(folder, *place.parents):
                partial.mkdir(parents=True)
            with write_errors_explained(folder, partial, place):
                locks.enter_context(locked(partial))  # the lock moves along with the folder
                _fill(partial, config, tokenizer_files, prepared, environment, init_from)
                _put_in_place(partial, folder, place, is_new=is_new)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        yield open_run(folder)


def _put_in_place(partial: Path, folder: Path, place: Path, *, is_new: bool) -> None:
    """Let the run in `partial` take its `place`, which `folder` leads to.

    Raises:
        UsageError: another process has put a run there a moment ago.
        ResourceError: it cannot be renamed.
    """
    try:
        put_in_place(partial, place, replaces=not is_new)
    except WriteError as error:
        if is_new and isinstance(error.__cause__, OSError) and error.__cause__.errno in TAKEN:
            raise busy(folder) from None
        raise


def _fill(
    folder: Path,
    config: Config,
    tokenizer_files: Mapping[str, bytes],
    prepared: PreparedReference,
    environment: Mapping[str, object],
    init_from: ParentReference | None,
) -> None:
    """Write the files of a new run."""
    files = {RUN_CONFIG: dump_config(config).encode()}
    files |= {f"{TOKENIZER}{name}": data for name, data in tokenizer_files.items()}
    for name, data in files.items():
        write_atomically(folder / name, data)
    write_facts(folder, ENVIRONMENT, environment)
    hashes = {name: sha256_bytes(data) for name, data in files.items()}
    write_run_manifest(folder, RunManifest(format=1, sha256=hashes, prepared=prepared, init_from=init_from))


def remove_abandoned(folder: Path) -> None:
    """Remove runs that killed processes left beside `folder`, half made or half deleted.

    Those that are being made are locked, or empty for a moment.
    """
    place = folder.resolve()
    remove_leftovers_of(place)
    for path in place.parent.glob(f".{glob.escape(place.name)}.*.partial"):
        if not PARTIAL.fullmatch(path.name) or path.is_symlink():
            continue
        with suppress(OSError):  # its maker may have put it in place meanwhile
            is_old = any(path.iterdir()) or time.time() - path.stat().st_mtime > LONG_S
            if is_old and not is_locked(path):
                remove(path)
