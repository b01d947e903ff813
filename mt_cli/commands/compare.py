"""`mt-cli compare`."""

from pathlib import Path
from typing import Annotated

import typer

from mt_cli.commands.comparison_text import comparison_as_text
from mt_cli.commands.flags import (
    BatchSize,
    BeamSize,
    Checkpoint,
    DecodingPrecision,
    DeviceFlag,
    Json,
    LengthPenalty,
    OwnReferences,
    OwnSources,
    PreparedDir,
    Quiet,
    SplitNames,
    Threads,
    Verbose,
)
from mt_cli.commands.terminal import exit_codes, print_result, set_up_logging


@exit_codes
def compare(
    systems: Annotated[
        list[Path],
        typer.Argument(
            metavar="BASELINE SYSTEM...",
            help="Runs, exported models, or files of translations; the first is the baseline.",
        ),
    ],
    split: SplitNames = None,
    src: OwnSources = None,
    ref: OwnReferences = None,
    data: PreparedDir = None,
    examples: Annotated[
        int,
        typer.Option("--examples", min=0, help="Sentences shown of those that gained most, and lost most."),
    ] = 3,
    resamples: Annotated[
        int, typer.Option("--resamples", min=100, help="Resamples of the paired bootstrap.")
    ] = 1000,
    trials: Annotated[
        int, typer.Option("--trials", min=100, help="Trials of the approximate randomisation.")
    ] = 10_000,
    beam_size: BeamSize = None,
    length_penalty: LengthPenalty = None,
    checkpoint: Checkpoint = "best",
    batch_size: BatchSize = None,
    device: DeviceFlag = None,
    threads: Threads = None,
    precision: DecodingPrecision = None,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Test whether one system is better than another, and show where."""
    set_up_logging(is_quiet=quiet, is_verbose=verbose)
    from mt_cli.stages.compare.compare import compare_systems

    comparisons = compare_systems(
        systems,
        splits=split or (),
        src_path=src,
        ref_path=ref,
        data_dir=data,
        checkpoint=checkpoint,
        device=device or "auto",
        threads=threads or 0,
        search={
            "beam_size": beam_size,
            "length_penalty": length_penalty,
            "batch_size": batch_size,
            "precision": precision,
        },
        resamples=resamples,
        trials=trials,
    )
    print_result(
        "\n\n".join(comparison_as_text(each, examples=examples) for each in comparisons.values()),
        {"splits": {name: each.as_json() for name, each in comparisons.items()}},
        as_json=as_json,
    )
