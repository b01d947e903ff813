"""A case: a folder of its own in which commands run and faults are made, and what every command must do.

Knows nothing of any one fault.
"""

import contextlib
import hashlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from faults.child import Ended, forked
from faults.plan import Plan, Strike
from faults.shim import Arm

BUG = 1
"""The exit code that no fault may lead to."""
TIME_LIMIT_S = 300.0
"""Of a command; longer is a hang, on a busy machine too."""
CLIPPED = 600


class BrokenPromiseError(Exception):
    """A fault was not survived; the message says what went wrong."""


@dataclass(frozen=True)
class Site:
    """What all cases share."""

    template: Path
    """The folder that each case begins with a copy of: see `workspace`."""
    scratch: Path
    """Where cases are made."""
    arm: Arm
    seed: int
    is_quick: bool

    @contextlib.contextmanager
    def case(self, name: str, *, start: Path | None = None) -> Iterator["Case"]:
        """A new case, gone after the block; it begins with a copy of `start`, by default the template.

        A change of what lies beside its folder breaks a promise.

        Raises:
            BrokenPromiseError: something beside the case's folder was changed.
        """
        root = self.scratch / f"{os.getpid()}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"
        shutil.rmtree(root, ignore_errors=True)
        case = Case(root, self.arm)
        shutil.copytree(start or self.template, case.folder, symlinks=True)
        case.beside.mkdir()
        (case.beside / "kept.txt").write_text("Nobody may change this.\n")
        (case.beside / "checkpoints" / "step-00000001").mkdir(parents=True)
        before = tree_of(case.beside)
        try:
            yield case
            if tree_of(case.beside) != before:
                raise BrokenPromiseError("a file outside of the folder was changed")
        finally:
            shutil.rmtree(root, ignore_errors=True)


class Case:
    """A folder in which commands run, one beside it which nobody may change, and a count of faults."""

    def __init__(self, root: Path, arm: Arm) -> None:
        self.folder, self.beside = root / "inside", root / "beside"
        self.tried = 1
        """Faults that this case stands for."""
        self.failed: list[str] = []
        """What went wrong, for each that was not survived; a `BrokenPromiseError` adds itself."""
        self._streams, self._arm = root / "streams", arm

    def call(
        self,
        *args: object,
        strike: Strike | None = None,
        stdin: bytes = b"",
        before: Callable[[], None] | None = None,
        time_limit_s: float = TIME_LIMIT_S,
    ) -> Ended:
        """Run `mt-cli` with `args` in the case's folder, and hold it to what every command must do.

        `before` is called first, in the command's own process, which it may change.

        Raises:
            BrokenPromiseError: a traceback, exit code 1, a hang, or a file changed outside of the folder.
        """
        from mt_cli.cli import main

        def work() -> int:
            sys.argv = ["mt-cli", *map(str, args)]
            if before is not None:
                before()
            try:
                main()
            except SystemExit as end:
                return end.code if isinstance(end.code, int) else 0 if end.code is None else BUG
            return 0

        ended = self.run(work, strike=strike, stdin=stdin, time_limit_s=time_limit_s)
        check_manners(ended, " ".join(map(str, args)))
        return ended

    def run(
        self,
        work: Callable[[], int],
        *,
        strike: Strike | None = None,
        stdin: bytes = b"",
        time_limit_s: float = TIME_LIMIT_S,
    ) -> Ended:
        """Run `work` in a child whose calls below the case's folder are struck as `strike` says."""
        return forked(
            work,
            folder=self.folder,
            streams=self._streams,
            plan=Plan(strike or Strike(), folder=self.folder),
            arm=self._arm,
            stdin=stdin,
            time_limit_s=time_limit_s,
        )

    def succeed(self, *args: object, stdin: bytes = b"", before: Callable[[], None] | None = None) -> Ended:
        """Run `mt-cli` with `args`, which has to succeed.

        Raises:
            BrokenPromiseError: it did not.
        """
        ended = self.call(*args, stdin=stdin, before=before)
        expect(ended.code == 0, f"{' '.join(map(str, args))} ended with {ended.code}: {clipped(ended.err)}")
        return ended


def check_manners(ended: Ended, command: str) -> None:
    """Make sure that a command ended as every command must, whatever was done to it.

    Raises:
        BrokenPromiseError: a traceback, exit code 1, a hang, or a file changed outside of its folder.
    """
    shown = f"{command}: {clipped(ended.err)}"
    expect(not ended.is_hang, f"hangs: {shown}")
    expect("Traceback" not in ended.err and b"Traceback" not in ended.out, f"a traceback: {shown}")
    expect(ended.code != BUG, f"exit code {BUG}: {shown}")
    expect(not ended.seen.elsewhere, f"changes a file outside: {ended.seen.elsewhere}: {command}")


def expect(holds: bool, otherwise: str) -> None:
    """Make sure that something `holds`.

    Raises:
        BrokenPromiseError: it does not.
    """
    if not holds:
        raise BrokenPromiseError(otherwise)


def expect_code(ended: Ended, *expected: int) -> None:
    """Make sure that a command ended with one of the `expected` exit codes.

    Raises:
        BrokenPromiseError: it did not.
    """
    codes = " or ".join(map(str, expected))
    expect(ended.code in expected, f"ends with {ended.code}, not {codes}: {clipped(ended.err)}")


def clipped(text: str) -> str:
    """The end of `text`, on one line."""
    return " / ".join(text.split("\n"))[-CLIPPED:]


def tree_of(folder: Path) -> dict[str, object]:
    """What lies below `folder`: of each name, its content, its link or that it is a folder."""
    return {str(path.relative_to(folder)): _content(path) for path in sorted(folder.rglob("*"))}


def _content(path: Path) -> object:
    if path.is_symlink():
        return "link", str(path.readlink())
    return path.read_bytes() if path.is_file() else "folder"
