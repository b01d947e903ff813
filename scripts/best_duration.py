"""How long `scripts/best` takes on this machine, told from the first minute of its first training.

usage: python scripts/best_duration.py RUN FIRST_CONFIG [CONFIG...]     RUN has begun FIRST_CONFIG
"""

import sys
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from statistics import median

from mt_cli.artefacts.metrics import read_metrics
from mt_cli.artefacts.run_facts import STATUS, read_facts
from mt_cli.config import load_config

VALIDATIONS_AND_TRANSLATIONS = 1.15
"""They take so much longer than the updates alone: measured on two cores with AMX."""


def expected_s(run: Path, configs: Iterable[Path]) -> float | None:
    """Seconds for the trainings of `configs`, the first of which `run` has begun, and what goes with them.

    All have the same batches and like models, so that an epoch takes a time in proportion to its pairs. None
    if `run` is not far enough to tell.
    """
    first, *others = (_passes(config) for config in configs)
    update_s = _update_s(run)
    total_steps = read_facts(run, STATUS).get("total_steps")
    if update_s is None or not isinstance(total_steps, int):
        return None
    return update_s * total_steps * (first + sum(others)) / first * VALIDATIONS_AND_TRANSLATIONS


def _update_s(run: Path) -> float | None:
    """Seconds of an update. The median: some of the first wait for kernels of new shapes."""
    logged = [
        (each.step, each.number("elapsed_s"))
        for each in read_metrics(run / "metrics.jsonl")
        if each.kind == "step"
    ]
    steps = [
        (after_s - before_s) / (after - before)
        for (before, before_s), (after, after_s) in pairwise([(0, 0.0), *logged])
    ]
    return median(steps) if steps else None


def _passes(config: Path) -> int:
    """How often a training goes through as many pairs as the corpus has."""
    loaded = load_config(config)
    return loaded.training.max_epochs * (1 + len(loaded.data.more))


if __name__ == "__main__":
    run, *configs = map(Path, sys.argv[1:])
    seconds = expected_s(run, configs)
    if seconds is None:
        print("How long it takes cannot be told: this machine made no update in a minute.")
    else:
        hours, minutes = divmod(round(seconds / 60), 60)
        print(f"All of it takes about {hours} h {minutes:02} min here, if nothing else runs.")
