"""A stand-in for the shim: wraps Python's own functions where no C compiler is at hand.

Sees the calls that Python code makes, not those of libraries. It wraps them for the rest of the process.
"""

import builtins
import io
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import cast

from faults.plan import KILLS, Action, Plan
from mt_cli.artefacts import folders

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
WRITE_MODES = ("wb", "ab", "w", "a")
StrPath = str | os.PathLike[str]
Call = Callable[..., object]


def arm_stand_in(plan: Plan) -> None:
    """Let `plan` hold for this process from now on."""
    guard = _Guard(plan)
    for name in ("rename", "replace", "link", "symlink"):
        _wrap(os, name, guard, lambda _, to, *, dst_dir_fd=None, **_options: _place(to, dst_dir_fd))
    for name in ("unlink", "remove", "rmdir", "mkdir"):
        _wrap(os, name, guard, lambda path, *_, dir_fd=None: _place(path, dir_fd))
    _wrap(os, "open", guard, _place_to_write)
    _wrap(os, "fsync", guard, _path_of)
    _wrap(folders, "exchange", guard, lambda _, other: _place(other, None))
    real_open = io.open
    for module, name in ((os, "fdopen"), (io, "open"), (builtins, "open")):
        setattr(module, name, _opening(guard, real_open))


class _Guard:
    """Counts calls, and strikes."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan  # its memory has to outlive this call
        self._record = plan.record
        self._folder = Path(os.fsdecode(plan.record.folder))

    def enter(self, call: str, path: str) -> bool:
        """Count a call on `path`; whether the process is to die after it.

        Raises:
            OSError: the call is to fail.
        """
        record = self._record
        if not path.startswith("/") or path.startswith(("/dev/", "/proc/")):
            return False
        if not self.is_below(call, path):
            return False
        record.calls += 1
        is_due = record.calls == record.at
        if is_due:
            record.struck = f"{call} {path}".encode()
        if is_due and record.action == Action.KILL_BEFORE:
            self.die()
        is_past = record.calls > record.at and record.action == Action.FAIL_ON
        if is_past or (is_due and record.action in (Action.FAIL_ONCE, Action.FAIL_ON)):
            error = record.later if is_past else record.error
            raise OSError(error, os.strerror(error), path)
        return is_due and record.action in KILLS

    def is_below(self, call: str, path: str) -> bool:
        """Whether `path` is below the folder; if not, that is noted."""
        is_below = Path(path).is_relative_to(self._folder)
        if not is_below:
            self._record.elsewhere = self._record.elsewhere or f"{call} {path}".encode()
        return is_below

    @property
    def halves(self) -> bool:
        """Whether a write that is struck is cut in two."""
        return self._record.action == Action.KILL_MIDST

    def die(self) -> None:
        """End this process as `kill -9` does."""
        os.kill(os.getpid(), signal.SIGKILL)


def _wrap(module: object, name: str, guard: _Guard, where: Callable[..., str | None]) -> None:
    """Let a function of `module` be counted, on the path that `where` makes of its arguments."""
    real: Call = getattr(module, name)

    def call(*args: object, **options: object) -> object:
        path = where(*args, **options)
        is_last = path is not None and guard.enter(name, path)
        result = real(*args, **options)
        if is_last:
            guard.die()
        return result

    setattr(module, name, call)


def _opening(guard: _Guard, real: Call) -> Call:
    """`open`, which gives a file whose writes count."""

    def call(file: StrPath | int, mode: str = "r", *args: object, **options: object) -> object:
        if mode not in WRITE_MODES or file in (0, 1, 2):
            return real(file, mode, *args, **options)
        is_last = not isinstance(file, int) and guard.enter("open", _place(file, None))
        raw = _File(file, mode.replace("b", ""))
        raw.guard = guard
        guard.is_below("open", _path_of(raw.fileno()))  # a link may have led away
        if is_last:
            guard.die()
        binary = io.BufferedWriter(raw)
        encoding = cast("str | None", options.get("encoding"))
        return binary if "b" in mode else io.TextIOWrapper(binary, encoding=encoding)

    return call


class _File(io.FileIO):
    """A file whose writes count."""

    guard: _Guard

    def write(self, data: object, /) -> int:
        is_last = self.guard.enter("write", _path_of(self.fileno()))
        view = memoryview(cast("bytes", data)).cast("B")
        count = super().write(view[: len(view) // 2] if is_last and self.guard.halves else view)
        if is_last:
            self.guard.die()
        return count


def _place_to_write(path: StrPath, flags: int, *_: int, dir_fd: int | None = None) -> str | None:
    return _place(path, dir_fd) if flags & WRITING else None


def _place(path: StrPath, dir_fd: int | None) -> str:
    """Where `path` really is: links on the way are followed, one at the end is not."""
    whole = Path(_path_of(dir_fd) if dir_fd is not None else Path.cwd(), path)
    return str(whole.parent.resolve() / whole.name)


def _path_of(fd: int) -> str:
    return str(Path(f"/proc/self/fd/{fd}").readlink())
