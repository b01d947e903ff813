"""The program's looks: its help pages and its complaints about wrong use, one style for all verbs.

Knows Typer's commands, none of ours by name.
"""

import re
from typing import Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from mt_cli.commands.help_pages import PAGES
from mt_cli.commands.terminal import fail, print_aside
from mt_cli.errors import UsageError
from mt_cli.machine.memory_limit import check_address_space

TYPES = {
    "int": "N",
    "int range": "N",
    "float": "X",
    "float range": "X",
    "str": "TEXT",
    "path": "PATH",
    "file": "FILE",
    "directory": "DIR",
}
"""Typer's names of types, and ours; choices are shown as they are."""

WIDEST_CHOICES = 40
"""Letters of the choices that are shown beside a flag."""
WORDS = {
    r"Input should be a valid integer.*": "expected a whole number",
    r"Input should be a valid number.*": "expected a number",
    r"Input should be greater than or equal to (\S+)": r"expected \1 or more",
    r"Input should be less than or equal to (\S+)": r"expected \1 or less",
    r"Input should be (.*)": r"expected \1",
}
"""Pydantic's words for a value that a flag does not take, and ours."""


class Verb(TyperCommand):
    """A command whose help page ends with what `PAGES` says of it."""

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override] # noqa: ANN401
        """Do it, if there is room for the libraries that it loads."""
        check_address_space()
        return super().invoke(ctx)

    def collect_usage_pieces(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        """`[OPTIONS]` and the arguments' names."""
        return ["[OPTIONS]", *(_argument_name(param) for param in _arguments(self, ctx))]

    def format_options(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override] # noqa: ANN401
        """The arguments and the options, each with its help."""
        names = {param.name: _argument_name(param) for param in _arguments(self, ctx)}
        arguments, options = [], []
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and param.name in names:
                arguments.append((names[param.name], record[1]))
            elif record is not None:
                options.append(_option_row(*record))
        for title, rows in (("Arguments", arguments), ("Options", options)):
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def format_epilog(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override] # noqa: ANN401
        """The end of the page, as it stands."""
        _write_page(ctx, formatter)


class Program(TyperGroup):
    """The program, or a group of its verbs: wrong use is told like any other error, with exit code 2."""

    def main(self, *args: Any, **extra: Any) -> NoReturn:  # noqa: ANN401
        """Run the command line and leave the process."""
        extra["standalone_mode"] = False  # or Typer would tell errors in its own way
        try:
            code = super().main(*args, **extra)
        except TyperException as error:
            message = _in_plain_words(error.format_message()).rstrip(".")
            where = getattr(getattr(error, "ctx", None), "command_path", "mt-cli")
            fail(f"error: {message[:1].lower()}{message[1:]}; see {where} --help", UsageError.exit_code)
        except SystemExit as leaving:
            if isinstance(leaving.__context__, BrokenPipeError):  # where Typer would leave with 1
                raise leaving.__context__ from None
            raise
        raise SystemExit(code if isinstance(code, int) else 0)

    def format_epilog(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override] # noqa: ANN401
        """The end of the page, as it stands."""
        _write_page(ctx, formatter)


def show_help_without_verb(ctx: typer.Context) -> None:
    """Where no verb is given, show the help on stderr and leave with exit code 2."""
    if ctx.invoked_subcommand is None:
        print_aside(ctx.get_help())
        raise typer.Exit(UsageError.exit_code)


def _arguments(command: TyperCommand, ctx: typer.Context) -> list[Any]:
    return [param for param in command.get_params(ctx) if param.param_type_name == "argument"]


def _argument_name(param: Any) -> str:  # noqa: ANN401
    return str(param.metavar or param.name.upper())


def _option_row(names: str, text: str) -> tuple[str, str]:
    """Such as `--threads N` for Typer's `--threads <int range>`; many choices stand in the text."""
    match = re.search(r"<([^<>]+)>$", names)
    if match is None:
        return names, text
    kind = match[1]
    if len(kind) > WIDEST_CHOICES and "|" in kind:
        return f"{names[: match.start()]}NAME", f"One of {kind.replace('|', ', ')}. {text}"
    return f"{names[: match.start()]}{TYPES.get(kind, kind)}", text


def _in_plain_words(message: str) -> str:
    """Typer's `message`, in which pydantic's words for a wrong value are ours."""
    message = re.sub("^Invalid value for '([^']*)'", r"\1", message).replace("Value error, ", "")
    for pattern, words in WORDS.items():
        message = re.sub(pattern, words, message)
    return message


def _write_page(ctx: typer.Context, formatter: Any) -> None:  # noqa: ANN401
    names: list[str] = []
    inner: Any = ctx
    while inner.parent is not None:
        names.insert(0, str(inner.command.name))
        inner = inner.parent
    page = PAGES.get(" ".join(names))
    if page is not None:
        formatter.write(f"\n{page}\n")
