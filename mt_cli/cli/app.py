"""The program: registering commands, the single error boundary, and exit codes.

Commands import what they need when they run, so that `--help` loads neither torch nor spaCy.
"""

import inspect
import logging
import math
import re
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, MappingProxyType
from typing import Annotated, Any, Never

import typer
from pydantic import ValidationError
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from mt_cli import __version__
from mt_cli.cli.flags import FlagTable, parameters_of, setting_parameter, settings_given
from mt_cli.config.load import explain
from mt_cli.errors import MtCliError, ResourceError, StoppedError, UsageError
from mt_cli.machine.failures import SHORTAGE_HINTS, gpu_failure, reason_of, shortage
from mt_cli.machine.process import HANGUP, TERMINATING, bound_spinning, leave
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

0 success · 1 a bug · 2 wrong usage or config, no such run · 3 missing, bad or damaged file ·
4 training diverged · 5 not enough memory or disk, no network or device · 6 a check failed ·
129 terminal closed · 130 Ctrl-C · 141 reader closed the pipe · 143 SIGTERM ·
138, 140, 152 SIGUSR1, SIGUSR2, SIGXCPU
"""


WITH = "--with"
NUM_WORDS = {WITH: math.inf, "--train": 2, "--val": 2, "--test": 2}
"""Flags that take several words, and how many."""


class Command(TyperCommand):
    """A command that rejects repeated options and has options with several values."""

    def get_help(self, ctx: Any) -> str:  # noqa: ANN401
        """The help, without the braces and Python types that Typer adds to arguments."""
        text = re.sub(r"\{([A-Z .\[\]]+)\}(?:\.\.\.)?", r"\1", super().get_help(ctx))
        return re.sub(r"(?<=[A-Z.\]]) <[^>|]*>(?=\s)", lambda found: " " * len(found[0]), text)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401
        """Parse the command line; `--with a b` stands for `--with a --with b`.

        Raises:
            UsageError: an option with one value is given twice; switches may be repeated.
        """
        words: list[str] = []
        flag = ""
        num_left = 0.0  # words that still belong to the flag
        for word in args:
            if word.startswith("-"):
                flag, equals, _ = word.partition("=")
                num_left = NUM_WORDS.get(flag, 0) - bool(equals)
            elif num_left > 0:
                num_left -= 1
                if words[-1] != flag:
                    words.append(flag)
            words.append(word)
        _, _, given = self.make_parser(ctx).parse_args(list(words))
        for param, times in Counter(given).items():
            is_switch = getattr(param, "is_flag", False) and not param.secondary_opts
            if times > 1 and not param.multiple and not is_switch:
                ctx.fail(f"{'/'.join(param.opts + param.secondary_opts)} is given {times} times")
        return super().parse_args(ctx, words)


class Program(TyperGroup):
    """The program, or a group of commands; usage errors are reported like any other error.

    Without a command, it prints the help to stderr.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401
        """Parse the command line."""
        if args in ([], ["--"]):
            print_stderr(ctx.get_help())
            raise typer.Exit(UsageError.exit_code)
        return super().parse_args(ctx, args)

    def main(self, *args: Any, **extra: Any) -> Never:  # noqa: ANN401
        """Run the command line and exit the process."""
        extra["standalone_mode"] = False  # otherwise Typer reports errors in its own format
        try:
            code = super().main(*args, **extra)
        except TyperException as error:
            message = re.sub("^Invalid value for '([^']*)'", r"\1", error.format_message())
            message = " ".join(message.replace("Value error, ", "").rstrip(".").split())
            where = getattr(getattr(error, "ctx", None), "command_path", "mt-cli")
            print_stderr(f"error: {message[:1].lower()}{message[1:]}; see {where} --help")
            raise SystemExit(UsageError.exit_code) from None
        except SystemExit as leaving:
            if isinstance(leaving.__context__, BrokenPipeError):  # Typer would exit with 1
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
    "Build a translation model from scratch: prepare, train, evaluate, translate.",
    epilog=EXIT_CODES,
)


OUTPUT_FLAGS = {
    "as_json": (("--json",), "Print JSON to stdout instead of text."),
    "quiet": (("--quiet", "-q"), "Show only warnings and errors on stderr."),
    "verbose": (("--verbose", "-v"), "Show details on stderr."),
}


def command(
    group: typer.Typer,
    *examples: str,
    flags: FlagTable = MappingProxyType({}),
    settings: str = "SECTION.KEY=VALUE",
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a function as a command of `group`, with its parameters as flags.

    `examples` go to the end of the help. A parameter `settings` gets `--set`, plus `flags`, which
    stand for keys of the config. A parameter `as_json` gets `--json`.
    """

    def add(function: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(function).parameters
        parameters = []
        for name, parameter in own.items():
            if name not in ("settings", "as_json"):
                parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
        if "settings" in own:
            parameters += parameters_of(flags)
            parameters.append(setting_parameter(settings))
        for name, (words, text) in OUTPUT_FLAGS.items():
            kind = Annotated[bool, typer.Option(*words, help=text)]
            flag = inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=kind
            )
            parameters.append(flag)

        def run(**given: Any) -> None:  # noqa: ANN401
            set_up_logging(is_quiet=given.pop("quiet"), is_verbose=given.pop("verbose"))
            with _error_boundary():  # inside Typer, which would handle Ctrl-C itself
                if "settings" in own:
                    given["settings"] = settings_given(given, flags)
                function(**given)

        run.__name__ = function.__name__
        run.__doc__ = function.__doc__
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
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
    for number in (*TERMINATING, *HANGUP):
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
    """The single error boundary: every failure in the block becomes a message and an exit code."""
    try:
        yield
    except (TyperException, typer.Exit, SystemExit):
        raise
    except BaseException as error:
        message, code = message_and_code(error)
        if message:
            print_stderr(message)
        raise SystemExit(code) from None


def message_and_code(error: BaseException) -> tuple[str, int]:  # noqa: PLR0911 — one per kind
    """The message for the user, and the exit code."""
    match error:
        case BrokenPipeError():
            silence_stdout()
            return "", 128 + 13  # SIGPIPE, which Windows does not have
        case KeyboardInterrupt():
            # On a terminal, the cursor may be in the middle of a line.
            return "\ninterrupted" if is_terminal(
                sys.stderr
            ) else "interrupted", 128 + signal.SIGINT
        case SignalReceived():
            return "stopped", 128 + error.args[0]
        case StoppedError():
            return str(error), error.exit_code
        case MtCliError():
            return f"error: {error}", error.exit_code
        case ValidationError():
            return f"error: {'; '.join(explain(error))}", UsageError.exit_code
    lacking = shortage(error)
    if lacking is not None:
        return f"error: {lacking}; {SHORTAGE_HINTS[lacking]}", ResourceError.exit_code
    if failure := gpu_failure(error):
        log.debug("the GPU failed here", exc_info=error)
        where = "to see where, set CUDA_LAUNCH_BLOCKING=1 in the environment and add --verbose"
        return f"error: the GPU failed: {failure}; {where}", ResourceError.exit_code
    if isinstance(error, OSError):
        place = "" if error.filename is None else f"{error.filename}: "
        return f"error: {place}{reason_of(error)}", ResourceError.exit_code
    trace = "".join(traceback.format_exception(error)).rstrip()
    return f"{trace}\nerror: this is a bug in mt-cli; the lines above say where", 1
