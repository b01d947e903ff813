"""`mt-cli plot`."""

from pathlib import Path
from typing import Annotated

import typer

from mt_cli.cli.app import app, command
from mt_cli.cli.flags import OutputFlags
from mt_cli.machine.terminal import print_result


@command(app, "plot runs/sample -o curves.png", "plot runs/one runs/two -o curves.svg")
def plot(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Run folders, such as runs/sample, drawn together."),
    ],
    file: Annotated[
        Path,
        typer.Option("-o", "--output", metavar="FILE", help="The picture to write: .png or .svg."),
    ],
    output: OutputFlags,
) -> None:
    """Draw loss, BLEU and learning rate of trainings.

    Prints the picture's path; with --json, the curves too.
    """
    from mt_cli.pictures.curves import plot_runs

    drawn = plot_runs(runs, output=file)
    print_result(file, {"picture": file, "runs": drawn}, as_json=output.as_json)
