"""`mt-cli export`."""

from pathlib import Path
from typing import Annotated

import typer

from mt_cli.cli.app import app, command
from mt_cli.cli.flags import Checkpoint, PreparedDir, RunPath
from mt_cli.config.schema import ExportTarget, Quantization
from mt_cli.errors import CheckFailedError
from mt_cli.machine.terminal import print_result


@command(app, "export runs/sample exported --to ctranslate2 --quantization int8")
def export(
    run: RunPath,
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="New folder for everything that translating needs."),
    ],
    as_json: bool,
    to: Annotated[
        ExportTarget,
        typer.Option(
            "--to",
            help="ctranslate2: for the faster CTranslate2 engine, needs its package; argos: adds a "
            "package for Argos Translate and LibreTranslate; run: a small copy of RUN.",
        ),
    ],
    quantization: Annotated[
        Quantization,
        typer.Option(
            "--quantization",
            metavar="NAME",
            help="Number format of the weights: none (float32), int8, int8_float32, int8_float16, "
            "int8_bfloat16, int16, float16 or bfloat16. With --to run: none or float16.",
        ),
    ] = "none",
    checkpoint: Checkpoint = "best",
    data: PreparedDir = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an earlier export in DIR.")
    ] = False,
    threads: Annotated[
        int, typer.Option("--threads", min=0, metavar="N", help="CPU threads for the comparison.")
    ] = 0,
) -> None:
    """Convert a model for another engine, or make a small copy.

    Then run and export translate lines of the validation split, and the command prints how many
    translations are identical. A copy with the same weights is not checked.
    """
    from mt_cli.export.export import export_run

    done = export_run(
        run,
        folder,
        to=to,
        checkpoint=checkpoint,
        quantization=quantization,
        data_dir=data,
        threads=threads,
        overwrite=overwrite,
    )
    text = str(folder)
    if done.proof is not None:
        text += f"\nval  identical  {done.proof['identical']} of {done.proof['n']} lines"
    print_result(text, done, as_json=as_json)
    if done.is_refuted:
        raise CheckFailedError(
            f"{folder}: the export differs from the run by more than rounding; do not use it"
        )
