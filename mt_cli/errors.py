"""The exceptions whose message is meant for the user, one class per exit code.

Imports nothing of ours, so that every module can import it.

    MtCliError
    ├── UsageError        2   a wrong command, flag, argument or place; also a ValueError
    ├── ConfigError       2   a config that cannot be used; also a ValueError
    ├── DataError         3   bad data, a corrupt or untrusted file
    │   └── PreparedDataError     running `prepare` (again) helps
    ├── DivergedError     4   training diverged
    ├── ResourceError     5   memory, disk, network, no such device
    │   └── OutOfMemoryError      smaller batches may help
    ├── CheckFailedError  6   a check found something wrong
    └── StoppedError    128+n signal n stopped the work; its state is saved
"""

from pathlib import Path


class MtCliError(Exception):
    """A failure that the user can understand; the CLI prints its message without a traceback."""

    exit_code: int = 1


class UsageError(MtCliError, ValueError):
    """The command or the call asks for something that cannot be done."""

    exit_code = 2


class ConfigError(MtCliError, ValueError):
    """A config file or an override is wrong."""

    exit_code = 2


class DataError(MtCliError):
    """A file is missing, malformed, altered or untrusted."""

    exit_code = 3


class PreparedDataError(DataError):
    """Prepared data is missing, damaged or from another config; run `prepare` (again)."""

    def __init__(self, message: str, folder: Path) -> None:
        """`folder` is the prepared folder, or that of a shard."""
        super().__init__(message)
        self.folder = folder


class DivergedError(MtCliError):
    """Training diverged: the loss is far above guessing, or something is not finite."""

    exit_code = 4


class ResourceError(MtCliError):
    """The machine lacks memory, disk space, network or the requested device."""

    exit_code = 5


class OutOfMemoryError(ResourceError):
    """The machine or its GPU has too little memory for a computation."""


class CheckFailedError(MtCliError):
    """A check ran and did not pass."""

    exit_code = 6


class StoppedError(MtCliError):
    """A signal stopped the work; what was done so far is saved."""

    def __init__(self, message: str, *, signal_number: int) -> None:
        super().__init__(message)
        self.signal_number = signal_number
        self.exit_code = 128 + signal_number
