"""`mt-cli evaluate`."""

from pathlib import Path
from typing import Annotated

import typer

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
from mt_cli.commands.terminal import exit_codes, print_json, print_lines, set_up_logging


@exit_codes
def evaluate(
    runs: RunPaths,
    split: Annotated[
        list[str] | None,
        typer.Option("--split", metavar="NAME", help="Split to score; every test split by default."),
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
    from mt_cli.stages.evaluate import chosen_checkpoints
    from mt_cli.stages.evaluate import evaluate as run_stage
    from mt_cli.translation.translator import Translator

    checkpoints = chosen_checkpoints(runs, checkpoint)
    translator = Translator.load(
        runs,
        checkpoint=checkpoints,
        backend=backend,
        beam_size=beam_size,
        length_penalty=length_penalty,
        no_repeat_ngram=no_repeat_ngram,
        replace_unk=replace_unk,
        batch_size=batch_size,
        device=device or "auto",
        precision=precision,
        threads=threads or 0,
    )
    variant = [part for part, usual in ((backend, "scratch"), (checkpoint, "best")) if part != usual]
    scores = run_stage(
        runs,
        translator,
        decoding="-".join([translator.search_name, *variant]),
        checkpoints=checkpoints,
        splits=split or (),
        src_path=src,
        ref_path=ref,
        data_dir=data,
    )
    if as_json:
        print_json({"splits": {name: each.as_json() for name, each in scores.items()}})
    else:
        for name, each in scores.items():
            print_lines(f"{name}  {each.bleu}\n{name}  {each.chrf}")
