"""`mt-cli report`."""

from pathlib import Path
from typing import Annotated

import typer

from mt_cli.commands.completion import complete_runs
from mt_cli.commands.flags import (
    BackendFlag,
    BatchSize,
    BeamSize,
    Checkpoint,
    DecodingPrecision,
    DeviceFlag,
    Json,
    LengthPenalty,
    NoRepeatNgram,
    PreparedDir,
    Quiet,
    ReplaceUnk,
    SplitNames,
    Threads,
    Verbose,
)
from mt_cli.commands.terminal import exit_codes, print_result, set_up_logging


@exit_codes
def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN [RUN]",
            help="A run folder, such as runs/sample, or two: the baseline, and another.",
            autocompletion=complete_runs,
        ),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="The page to write: .html.")],
    split: SplitNames = None,
    examples: Annotated[
        int, typer.Option("--examples", min=0, help="Sentences shown of each split, from worst to best.")
    ] = 30,
    data: PreparedDir = None,
    beam_size: BeamSize = None,
    length_penalty: LengthPenalty = None,
    backend: BackendFlag = "scratch",
    checkpoint: Checkpoint = "best",
    no_repeat_ngram: NoRepeatNgram = None,
    replace_unk: ReplaceUnk = None,
    batch_size: BatchSize = None,
    device: DeviceFlag = None,
    threads: Threads = None,
    precision: DecodingPrecision = None,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Show a run, or two side by side, on one page for any browser."""
    set_up_logging(is_quiet=quiet, is_verbose=verbose)
    from mt_cli.stages.report.report import write_report

    findings = write_report(
        runs,
        output=output,
        splits=split or (),
        num_examples=examples,
        data_dir=data,
        checkpoint=checkpoint,
        backend=backend,
        device=device or "auto",
        threads=threads or 0,
        search={
            "beam_size": beam_size,
            "length_penalty": length_penalty,
            "no_repeat_ngram": no_repeat_ngram,
            "replace_unk": replace_unk,
            "batch_size": batch_size,
            "precision": precision,
        },
    )
    print_result(output, {"page": str(output), **findings.as_json()}, as_json=as_json)
