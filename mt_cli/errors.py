"""The exceptions that mean "tell the user", one class for each exit code.

Knows nothing of the program; everything else may import it.

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


class MtCliError(Exception):
    """A failure that its message explains; the command line prints it without a traceback."""

    exit_code: int = 1


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
