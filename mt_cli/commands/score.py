"""`mt-cli score`."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from mt_cli.commands.flags import (
    BatchSize,
    Checkpoint,
    DecodingPrecision,
    DeviceFlag,
    Json,
    Quiet,
    RunPaths,
    Threads,
    Verbose,
)
from mt_cli.commands.terminal import exit_codes, is_terminal, json_text, print_lines, set_up_logging

if TYPE_CHECKING:  # torch is imported when something is scored
    from mt_cli.stages.score import ScoredPair


@exit_codes
def score(
    runs: RunPaths,
    src: Annotated[str, typer.Option("--src", metavar="FILE", help="Sources; - is stdin.")],
    tgt: Annotated[
        str, typer.Option("--tgt", metavar="FILE", help="Their translations, line by line; - is stdin.")
    ],
    normalise: Annotated[
        bool,
        typer.Option("--normalise", help="Divide by the number of target tokens, </s> included."),
    ] = False,
    checkpoint: Checkpoint = "best",
    batch_size: BatchSize = None,
    device: DeviceFlag = None,
    threads: Threads = None,
    precision: DecodingPrecision = None,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Print the log-probability of given translations, line by line."""
    set_up_logging(is_quiet=quiet, is_verbose=verbose)
    from mt_cli.machine.progress import ProgressDisplay
    from mt_cli.stages.score import open_pairs, score_pairs
    from mt_cli.stages.translate import count_lines
    from mt_cli.translation.pair_scorer import PairScorer

    with open_pairs(src, tgt) as (sources, translations):
        scorer = PairScorer.load(
            runs,
            checkpoint=checkpoint,
            device=device or "auto",
            threads=threads or 0,
            search={"batch_size": batch_size, "precision": precision},
        )
        as_line = _as_json if as_json else _as_text
        # On a terminal the scores themselves show how far it is.
        total, is_hidden = count_lines(sources), is_terminal(sys.stdout)
        with ProgressDisplay("scoring", unit="lines", total=total, is_hidden=is_hidden) as progress:
            for pairs in score_pairs(scorer, sources, translations):
                print_lines("\n".join(as_line(pair, normalise=normalise) for pair in pairs))
                progress.update(len(pairs))


def _value(pair: "ScoredPair", *, normalise: bool) -> float:
    return pair.score.per_token if normalise else pair.score.log_prob


def _as_text(pair: "ScoredPair", *, normalise: bool) -> str:
    return f"{_value(pair, normalise=normalise):.4f}"


def _as_json(pair: "ScoredPair", *, normalise: bool) -> str:
    return json_text(
        {
            "source": pair.source,
            "translation": pair.translation,
            "score": _value(pair, normalise=normalise),
            "log_prob": pair.score.log_prob,
            "tokens": pair.score.num_tokens,
        }
    )
