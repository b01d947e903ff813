"""`mt-cli export`."""

from pathlib import Path
from typing import Annotated

import typer

from mt_cli.commands.flags import Checkpoint, Json, PreparedDir, Quiet, RunPath, Threads, Verbose
from mt_cli.commands.terminal import exit_codes, print_result, set_up_logging
from mt_cli.config import ExportTarget, Quantization
from mt_cli.errors import CheckFailedError


@exit_codes
def export(
    run: RunPath,
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="New folder, which then holds all that translating needs.")
    ],
    to: Annotated[
        ExportTarget,
        typer.Option(
            "--to", help="ctranslate2 is a faster engine, whose package it needs; run is a small copy of RUN."
        ),
    ],
    quantization: Annotated[
        Quantization,
        typer.Option(
            "--quantization", help="How matrices are stored; none is float32. With --to run: none or float16."
        ),
    ] = "none",
    checkpoint: Checkpoint = "best",
    data: PreparedDir = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier export in DIR.")] = False,
    threads: Threads = None,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Convert a model for another engine, or make a small copy.

    The run and the export then translate the validation split, and the number of lines that are the same is
    printed. A copy of the same weights needs no such proof.
    """
    set_up_logging(is_quiet=quiet, is_verbose=verbose)
    from mt_cli.stages.export.export import export_run

    done = export_run(
        run,
        folder,
        to=to,
        checkpoint=checkpoint,
        quantization=quantization,
        data_dir=data,
        threads=threads or 0,
        overwrite=overwrite,
    )
    print_result(str(done), done.as_json(), as_json=as_json)
    if done.is_refuted:
        raise CheckFailedError(
            f"{folder}: only the lines counted above are the same, though the weights are not quantised; "
            "do not use it, and report this as a bug"
        )
