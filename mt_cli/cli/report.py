"""`mt-cli report`."""

from pathlib import Path
from typing import Annotated

import typer

from mt_cli.cli.app import app, command
from mt_cli.cli.flags import DecodingFlags, OutputFlags, TestSetFlags
from mt_cli.machine.terminal import print_result


@command(
    app,
    "report runs/sample -o report.html",
    "report runs/one runs/two -o report.html --examples 60",
)
def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN [RUN]",
            help="A run folder, such as runs/sample, or two: the baseline, and another.",
        ),
    ],
    file: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="The page to write: .html.")
    ],
    decoding: DecodingFlags,
    output: OutputFlags,
    test_sets: TestSetFlags,
    examples: Annotated[
        int, typer.Option(min=0, metavar="N", help="Sentences shown of each split, worst and best.")
    ] = 30,
) -> None:
    """Show a run, or two side by side, on one page for any browser.

    Prints the page's path; with --json, what the page shows too.
    """
    from mt_cli.evaluation.report import write_report

    findings = write_report(
        runs, decoding.options(), test_sets.choice(), output=file, num_examples=examples
    )
    print_result(file, {"page": file, **findings}, as_json=output.as_json)
