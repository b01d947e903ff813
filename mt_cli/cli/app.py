"""The program: its commands, the one error boundary, and exit codes.

Each command's work is a function of the layers below, imported when it runs, so that `--help` loads
neither torch nor spaCy.
"""

import functools
import logging
import re
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Annotated, Any, Never

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from mt_cli import __version__
from mt_cli.cli.flags import expanded
from mt_cli.errors import MtCliError, ResourceError, StoppedError, UsageError
from mt_cli.machine.files import reason_of
from mt_cli.machine.process import (
    SHORTAGE_HINTS,
    TERMINATING,
    bound_spinning,
    gpu_failure,
    leave,
    shortage,
)
from mt_cli.machine.terminal import (
    is_terminal,
    print_lines,
    print_stderr,
    set_up_logging,
    silence_stdout,
)

log = logging.getLogger(__name__)
EXIT_CODES = """\
Exit codes:

0 done · 1 a bug · 2 wrong use or config · 3 bad data or a damaged file · 4 training diverged ·
5 lack of memory, disk, network or device · 6 a check failed · 129 the terminal closed ·
130 Ctrl-C · 141 the reader closed the pipe · 143 SIGTERM · 138, 140, 152 SIGUSR1, SIGUSR2, SIGXCPU
"""


WITH = "--with"
"""The flag that takes all words up to the next flag."""


class Command(TyperCommand):
    """A command whose help names files and numbers, not Python's types."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401
        """Take the words of the command line; `--with a b` stands for `--with a --with b`."""
        words: list[str] = []
        is_listed = False
        for word in args:
            if is_listed and not word.startswith("-") and words[-1] != WITH:
                words.append(WITH)
            is_listed = word == WITH or (is_listed and not word.startswith("-"))
            words.append(word)
        return super().parse_args(ctx, words)

    def get_help(self, ctx: Any) -> str:  # noqa: ANN401
        """The text of `--help`."""
        text = re.sub(r"\{([A-Z .\[\]]+)\}(?:\.\.\.)?", r"\1", super().get_help(ctx))
        # Spaces replace them, so that columns stay aligned.
        return re.sub(r"(?<=[A-Za-z.\]]) <[^>|]*>(?=\s)", lambda found: " " * len(found[0]), text)


class Program(TyperGroup):
    """The program, or a group of its commands; wrong use is reported like any other error.

    Without a command, its help comes on stderr.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401
        """Take the words of the command line."""
        if args in ([], ["--"]):
            print_stderr(ctx.get_help())
            raise typer.Exit(UsageError.exit_code)
        return super().parse_args(ctx, args)

    def main(self, *args: Any, **extra: Any) -> Never:  # noqa: ANN401
        """Run the command line and leave the process."""
        extra["standalone_mode"] = False  # or Typer would tell errors in its own way
        try:
            code = super().main(*args, **extra)
        except TyperException as error:
            message = re.sub("^Invalid value for '([^']*)'", r"\1", error.format_message())
            message = message.replace("Value error, ", "").rstrip(".")
            where = getattr(getattr(error, "ctx", None), "command_path", "mt-cli")
            _fail(
                f"error: {message[:1].lower()}{message[1:]}; see {where} --help",
                UsageError.exit_code,
            )
        except SystemExit as leaving:
            if isinstance(leaving.__context__, BrokenPipeError):  # where Typer would leave with 1
                raise leaving.__context__ from None
            raise
        raise SystemExit(code if isinstance(code, int) else 0)


def new_app(name: str, help: str, *, epilog: str = "") -> typer.Typer:
    """A group of commands."""
    return typer.Typer(
        name=name,
        help=help,
        epilog=epilog,
        context_settings={"help_option_names": ["-h", "--help"]},
        cls=Program,
        invoke_without_command=True,  # --version
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )


app = new_app(
    "mt-cli",
    "From nothing to a scored translation model: prepare, train, evaluate, translate.",
    epilog=EXIT_CODES,
)


def command(
    group: typer.Typer, *examples: str
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a function a command of `group`; its help ends with `examples`."""

    def add(function: Callable[..., None]) -> Callable[..., None]:
        flags = expanded(function)

        @functools.wraps(flags)
        def run(**given: Any) -> None:  # noqa: ANN401
            set_up_logging(is_quiet=bool(given.get("quiet")), is_verbose=bool(given.get("verbose")))
            with _error_boundary():  # here, because Typer would report Ctrl-C in its own way
                flags(**given)

        epilog = "\n\n".join(["Examples:", *(f"mt-cli {example}" for example in examples)])
        group.command(epilog=epilog, cls=Command)(run)
        return function

    return add


@app.callback()
def _top(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    if version:
        print_lines(f"mt-cli {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command line."""
    bound_spinning()
    for number in (*TERMINATING, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _terminate)
    try:
        with _error_boundary():
            app()
    except SystemExit as leaving:
        leave(leaving.code if isinstance(leaving.code, int) else 1)
        raise


class SignalReceived(BaseException):
    """A signal arrived where no handler saves state; unwinding removes temporary files."""


def _terminate(number: int, frame: FrameType | None) -> Never:
    raise SignalReceived(number)


@contextmanager
def _error_boundary() -> Iterator[None]:
    """The one error boundary: every failure in the block becomes a message and an exit code."""
    try:
        yield
    except BrokenPipeError:
        silence_stdout()
        raise SystemExit(128 + 13) from None  # SIGPIPE, which Windows does not have
    except KeyboardInterrupt:
        if is_terminal(sys.stderr):
            print_stderr("")  # what stands there does not end in a line end
        _fail("interrupted", 128 + signal.SIGINT)
    except SignalReceived as received:
        _fail("stopped", 128 + received.args[0])
    except StoppedError as error:
        _fail(error.with_flags(), error.exit_code)
    except MtCliError as error:
        _fail(f"error: {error.with_flags()}", error.exit_code)
    except (TyperException, typer.Exit):
        raise
    except Exception as error:
        lacking = shortage(error)
        if lacking is not None:
            _fail(f"error: {lacking}; {SHORTAGE_HINTS[lacking]}", ResourceError.exit_code)
        if failure := gpu_failure(error):
            log.debug("the GPU failed here", exc_info=error)
            where = "with --verbose, and CUDA_LAUNCH_BLOCKING=1 in the environment, it says where"
            _fail(f"error: the GPU cannot go on: {failure}; {where}", ResourceError.exit_code)
        if isinstance(error, OSError):
            place = "" if error.filename is None else f" ({error.filename})"
            _fail(f"error: {reason_of(error)}{place}", ResourceError.exit_code)
        print_stderr("".join(traceback.format_exception(error)).rstrip())
        _fail("error: this is a bug in mt-cli; the lines above say where", 1)


def _fail(message: str, code: int) -> Never:
    """End the process with `code` and `message` on stderr."""
    print_stderr(message)
    raise SystemExit(code) from None
