"""`mt-cli evaluate`."""

from pathlib import Path
from typing import Annotated

import typer

from mt_cli.commands.completion import complete_splits
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
    RunPaths,
    Threads,
    Verbose,
)
from mt_cli.commands.terminal import exit_codes, print_result, set_up_logging


@exit_codes
def evaluate(
    runs: RunPaths,
    split: Annotated[
        list[str] | None,
        typer.Option(
            "--split",
            metavar="NAME",
            help="Split to score; every test split by default.",
            autocompletion=complete_splits,
        ),
    ] = None,
    src: Annotated[
        Path | None, typer.Option("--src", metavar="FILE", help="Sources of your own, with --ref.")
    ] = None,
    ref: Annotated[
        Path | None, typer.Option("--ref", metavar="FILE", help="Their references, line by line.")
    ] = None,
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
    """Translate test sets and score them with sacreBLEU."""
    set_up_logging(is_quiet=quiet, is_verbose=verbose)
    from mt_cli.stages.evaluate import score_splits

    scores = score_splits(
        runs,
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
        splits=split or (),
        src_path=src,
        ref_path=ref,
        data_dir=data,
    )
    rows = [f"{name}  {metric}" for name, each in scores.items() for metric in (each.bleu, each.chrf)]
    print_result(
        "\n".join(rows), {"splits": {name: each.as_json() for name, each in scores.items()}}, as_json=as_json
    )
