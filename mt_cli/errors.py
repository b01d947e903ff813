"""The exceptions that mean "tell the user", one class for each exit code.

Knows nothing of the program; everything else may import it. Messages speak Python or the command
line, whichever the user speaks: see `Option`.

    MtCliError
    ├── UsageError        2   a wrong command, flag, argument or place; also a ValueError
    ├── ConfigError       2   a config that cannot be used; also a ValueError
    ├── DataError         3   bad data, a corrupt or untrusted file
    │   └── PreparedDataError     preparing the data (again) helps
    ├── DivergedError     4   training diverged
    ├── ResourceError     5   memory, disk, network, no such device
    │   └── OutOfMemoryError      smaller batches may help
    ├── CheckFailedError  6   a check found something wrong
    └── StoppedError    128+n signal n ended the work, whose state is saved
"""

import errno
import re
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Option:
    """An option that a message names: `beam_size=5` in Python, `--beam-size 5` on the command line."""

    name: str
    value: object = None
    """None names the option alone."""

    def __str__(self) -> str:
        return self.name if self.value is None else f"{self.name}={self.value!r}"

    @property
    def flag(self) -> str:
        """As the command line spells it."""
        flag = f"--{self.name.replace('_', '-')}"
        return flag if self.value is None else f"{flag} {self.value}"


class MtCliError(Exception):
    """A failure that its message explains; the command line prints it without a traceback.

    The arguments are the parts of the message, in order: text, and each `Option` that it names.
    """

    exit_code: int = 1

    def __str__(self) -> str:
        return "".join(map(str, self.args))

    def with_flags(self) -> str:
        """The message for the command line."""
        return "".join(part.flag if isinstance(part, Option) else str(part) for part in self.args)


class UsageError(MtCliError, ValueError):
    """The command or the call asks for something that cannot be done."""

    exit_code = 2


class ConfigError(MtCliError, ValueError):
    """A config file or an override is wrong."""

    exit_code = 2


class DataError(MtCliError):
    """A file is missing, malformed, altered or not to be trusted."""

    exit_code = 3


class PreparedDataError(DataError):
    """Prepared data are missing, damaged, or of another config; preparing them (again) helps."""


class DivergedError(MtCliError):
    """The training loss stopped being a number."""

    exit_code = 4


class ResourceError(MtCliError):
    """The machine lacks memory, disk, network or the device asked for."""

    exit_code = 5


class OutOfMemoryError(ResourceError):
    """There is too little memory for a computation, of the machine or of its GPU."""


class CheckFailedError(MtCliError):
    """A check ran and did not pass."""

    exit_code = 6


class StoppedError(MtCliError):
    """A signal asked for an end, and the work so far is saved."""

    def __init__(self, message: str, *, signal_number: int) -> None:
        super().__init__(message)
        self.signal_number = signal_number
        self.exit_code = 128 + signal_number


def command_line(*words: object) -> str:
    """A command of this program that an error advises, as a shell takes it."""
    return f"{program_name()} {shlex.join(map(str, words))}".rstrip()


def program_name() -> str:
    """What the user has to type to call this program: `mt-cli` where a shell finds it, else its
    path.
    """
    called = Path(sys.argv[0])
    if called.name == "__main__.py":
        return "python -m mt_cli"
    if called.stem != "mt-cli" or not called.is_file():
        return "mt-cli"
    found = shutil.which("mt-cli")
    if found is not None and Path(found).resolve() == called.resolve():
        return "mt-cli"
    here = Path.cwd()
    return shlex.quote(str(called.relative_to(here) if called.is_relative_to(here) else called))


DEMANDS = {
    r"a valid boolean.*": "true or false",
    r"a valid integer.*": "a whole number",
    r"a valid number.*": "a number",
    r"a valid string": "text in quotes",
    r"a valid dictionary.*": "a table",
    r"a valid tuple": "a list",
    r"greater than or equal to (\S+)": r"\1 or more",
    r"less than or equal to (\S+)": r"\1 or less",
    r"greater than (\S+)": r"more than \1",
    r"less than (\S+)": r"less than \1",
    r"have at most (\d+) items.*": r"at most \1 values",
    r"(.*)": r"\1",
}
"""Pydantic's words for what a value should be, and ours, which name no types of Python."""


def demand(message: str) -> str:
    """A message of pydantic's in our words, such as `expected 1 or more`."""
    message = re.sub(r"Input is not a valid path.*", "expected a path in quotes", message)
    for words, ours in DEMANDS.items():
        message = re.sub(f"(?:Input|Tuple) should (?:be )?{words}", f"expected {ours}", message)
    return message


# What the machine ran out of, as an exception of Python or of a library says it

MEMORY = "out of memory"
THREADS = "the system lets this process start no more threads"
SHORTAGE_HINTS = {
    MEMORY: "use a smaller batch or model, or raise the limit (ulimit -v)",
    THREADS: "use fewer (OMP_NUM_THREADS=1), or raise the limit (ulimit -u, ulimit -v)",
}
WORDS = {
    "can't allocate memory": MEMORY,
    "cannot allocate memory": MEMORY,
    "unable to allocate": MEMORY,
    "bad_alloc": MEMORY,
    "could not create a primitive": MEMORY,  # oneDNN
    "cublas_status_alloc_failed": MEMORY,
    "failed to map segment from shared object": MEMORY,
    "out of memory": MEMORY,
    "can't start new thread": THREADS,
    "resource temporarily unavailable": THREADS,
}
"""What libraries say, in lower case, and what they mean."""


def shortage(error: BaseException) -> str | None:
    """What `error` says the machine lacks, `MEMORY` or `THREADS`; None if it speaks of something
    else.
    """
    if isinstance(error, MemoryError):
        return MEMORY
    if isinstance(error, OSError):
        return {errno.ENOMEM: MEMORY, errno.EAGAIN: THREADS}.get(error.errno or 0)
    if not isinstance(error, RuntimeError | ImportError | SystemError):
        return None
    said = str(error).lower()
    return next((meaning for words, meaning in WORDS.items() if words in said), None)
