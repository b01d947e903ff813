"""The command line: one program, and the verbs it has.

`mt_cli.commands` owns their flags; every piece of work is a function of `mt_cli.stages`, imported when
its command runs, so that `--help` loads neither torch nor spaCy.
"""

from typing import Annotated

import typer

from mt_cli import __version__
from mt_cli.commands.compare import compare
from mt_cli.commands.config import config
from mt_cli.commands.doctor import doctor
from mt_cli.commands.evaluate import evaluate
from mt_cli.commands.export import export
from mt_cli.commands.inspect import inspect
from mt_cli.commands.plot import plot
from mt_cli.commands.prepare import prepare
from mt_cli.commands.program import Program, Verb, show_help_without_verb
from mt_cli.commands.report import report
from mt_cli.commands.score import score
from mt_cli.commands.terminal import exit_codes, print_lines
from mt_cli.commands.train import train
from mt_cli.commands.translate import translate
from mt_cli.machine.signals import termination_raised

app = typer.Typer(
    name="mt-cli",
    help="From nothing to a scored translation model: prepare, train, evaluate, translate.",
    context_settings={"help_option_names": ["-h", "--help"]},
    cls=Program,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print_lines(f"mt-cli {__version__}")
        raise typer.Exit


@app.callback()
def _top(
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version.")
    ] = False,
) -> None:
    show_help_without_verb(ctx)


for command in (prepare, train, plot, evaluate, compare, report, translate, score, inspect, doctor, export):
    app.command(cls=Verb)(command)
app.add_typer(config)


@exit_codes
def main() -> None:
    """Run the command line."""
    with termination_raised():
        app()
