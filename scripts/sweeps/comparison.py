"""Scores of several variants and seeds as one table, with the spread and what may be said about differences.

Knows numbers, not how they came about.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

NOTICEABLE = 0.6
"""BLEU: what seeds alone make; a smaller difference is none, unless the paired test says otherwise."""
T_975 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""Student's t, two-sided 95 %, for 1, 2, ... degrees of freedom; the last serves for more (cautious)."""


@dataclass(frozen=True)
class Result:
    """A finished training."""

    variant: str
    seed: int
    bleu: float
    """Of the best checkpoint on the validation split, searched as the config says."""
    nll: float
    """Of the same checkpoint, per target token."""
    beam_bleu: float | None
    seconds: float


def table(variants: Sequence[str], results: Sequence[Result]) -> str:
    """Markdown: a row for each of `variants` that has results, compared with the first.

    A difference is the mean over the seeds that both have.
    """
    has_beam = any(result.beam_bleu is not None for result in results)
    of = {name: {r.seed: r for r in results if r.variant == name} for name in variants}
    heads = [
        "variant",
        "seeds",
        "nll",
        "BLEU",
        *(["beam"] if has_beam else []),
        "difference",
        "verdict",
        "seconds",
    ]
    rows = [heads, ["---"] * len(heads)]
    for name, by_seed in of.items():
        if not by_seed:
            continue
        scores = list(by_seed.values())
        differences = [
            result.bleu - of[variants[0]][seed].bleu
            for seed, result in by_seed.items()
            if seed in of[variants[0]]
        ]
        is_first = name == variants[0] or not differences
        beams = [score.beam_bleu for score in scores if score.beam_bleu is not None]
        rows.append(
            [
                name,
                str(len(scores)),
                f"{statistics.mean(score.nll for score in scores):.3f}",
                spread([score.bleu for score in scores]),
                *([spread(beams) if beams else "–"] if has_beam else []),
                "" if is_first else f"{statistics.mean(differences):+.2f}",
                "" if is_first else verdict(differences),
                f"{statistics.mean(score.seconds for score in scores):.0f}",
            ]
        )
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def spread(scores: Sequence[float]) -> str:
    """Mean and, of several, standard deviation."""
    if len(scores) == 1:
        return f"{scores[0]:.2f}"
    return f"{statistics.mean(scores):.2f} ± {statistics.stdev(scores):.2f}"


def verdict(differences: Sequence[float]) -> str:
    """What paired `differences` of BLEU, one for each seed, allow to be said.

    Of several, a t test decides; a single one is exploratory, and none below what seeds alone make.
    """
    mean = statistics.mean(differences)
    if len(differences) == 1:
        if abs(mean) < NOTICEABLE:
            return "none"
        return "better (one seed)" if mean > 0 else "worse (one seed)"
    t = T_975[min(len(differences) - 1, len(T_975)) - 1]
    if abs(mean) <= t * statistics.stdev(differences) / len(differences) ** 0.5:
        return "none"
    return "better" if mean > 0 else "worse"
