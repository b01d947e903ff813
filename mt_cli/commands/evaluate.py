"""`mt-cli evaluate`."""

import sys

from mt_cli.commands.flags import (
    BackendFlag,
    BatchSize,
    BeamSize,
    Checkpoint,
    DecodingPrecision,
    DeviceFlag,
    Json,
    LengthPenalty,
    ModelPaths,
    NoRepeatNgram,
    OwnReferences,
    OwnSources,
    PreparedDir,
    Quiet,
    ReplaceUnk,
    SplitNames,
    Threads,
    Verbose,
)
from mt_cli.commands.reranking import RerankWeightsFlag, RerankWith, reranking_of
from mt_cli.commands.score_table import scores_as_lines, scores_as_table
from mt_cli.commands.terminal import exit_codes, is_terminal, print_result, set_up_logging


@exit_codes
def evaluate(
    runs: ModelPaths,
    split: SplitNames = None,
    src: OwnSources = None,
    ref: OwnReferences = None,
    data: PreparedDir = None,
    beam_size: BeamSize = None,
    length_penalty: LengthPenalty = None,
    rerank_with: RerankWith = None,
    rerank_weights: RerankWeightsFlag = None,
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

    assessments = score_splits(
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
        reranking=reranking_of(rerank_with, rerank_weights, beam_size),
    )
    document = {"splits": {name: each.as_json() for name, each in assessments.items()}}
    print_result(
        scores_as_table(assessments) if is_terminal(sys.stdout) else scores_as_lines(assessments),
        document,
        as_json=as_json,
    )
