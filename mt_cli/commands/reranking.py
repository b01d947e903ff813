"""The flags of reranking, for `translate` and `evaluate`, and what they come to.

Knows their spelling, not how translations are chosen.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mt_cli.commands.completion import complete_runs
from mt_cli.errors import UsageError

if TYPE_CHECKING:  # torch is imported when something is translated
    from mt_cli.translation.reranker import Reranking

RerankWith = Annotated[
    Path | None,
    typer.Option(
        "--rerank-with",
        metavar="RUN",
        help="A run of the other direction, which chooses among the beams: 20, unless --beam-size says "
        "otherwise.",
        autocompletion=complete_runs,
    ),
]
RerankWeightsFlag = Annotated[
    str | None,
    typer.Option(
        "--rerank-weights",
        metavar="LAMBDA,MU",
        help="For --rerank-with: weights of its log-probability and of each token. [default: 0.3,0.25]",
    ),
]


def reranking_of(run_dir: Path | None, weights: str | None, beam_size: int | None) -> "Reranking | None":
    """How to rerank, if that is asked for; all of `beam_size` are candidates.

    Raises:
        UsageError: `weights` are no two numbers, there is no run for them, or but one beam.
    """
    if run_dir is None:
        if weights is not None:
            raise UsageError("--rerank-weights is an option of --rerank-with; give that too")
        return None
    from mt_cli.translation.reranker import Reranking, RerankWeights

    num_candidates = beam_size or Reranking.num_candidates
    if num_candidates < 2:
        raise UsageError("--rerank-with chooses among beams; --beam-size has to be 2 or more")
    if weights is None:
        return Reranking(run_dir, RerankWeights(), num_candidates)
    try:
        reverse, length = (float(each) for each in weights.split(","))
    except ValueError:
        reverse = length = math.nan
    if not (math.isfinite(reverse) and math.isfinite(length)):
        raise UsageError(f"--rerank-weights {weights!r}: expected two numbers, LAMBDA,MU, such as 0.3,0.25")
    return Reranking(run_dir, RerankWeights(reverse, length), num_candidates)


def check_direction(reranking: "Reranking | None", *, of: Sequence[Path]) -> None:
    """Make sure that the reranking run, if there is one, translates back what the runs `of` translate.

    Raises:
        UsageError: it does not, or there is no such run.
    """
    if reranking is not None:
        from mt_cli.artefacts.exported_run import open_any_runs

        reranking.open_run(of=open_any_runs(of)[0])
