"""`mt-cli plot`."""

from pathlib import Path
from typing import Annotated

import typer

from mt_cli.commands.flags import Json, Quiet, Verbose
from mt_cli.commands.terminal import exit_codes, print_result, set_up_logging


@exit_codes
def plot(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Run folders, such as runs/sample, drawn together.")
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="The picture to write: .png or .svg.")
    ],
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Draw loss, BLEU and learning rate of trainings."""
    set_up_logging(is_quiet=quiet, is_verbose=verbose)
    from mt_cli.stages.plot import plot_runs

    drawn = plot_runs(runs, output=output)
    document = {"picture": str(output), "runs": [curves.as_json() for curves in drawn]}
    print_result(output, document, as_json=as_json)
