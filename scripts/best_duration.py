"""How long `scripts/best` takes on this machine, told from the first minute of its first training.

usage: python scripts/best_duration.py RUN FIRST_CONFIG [CONFIG...]     RUN has begun FIRST_CONFIG
"""

import json
import sys
import tomllib
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from statistics import median

VALIDATIONS_AND_TRANSLATIONS = 1.15
"""They take so much longer than the updates alone: 1.12 to 1.16 on two cores with AMX."""


def expected_s(run: Path, configs: Iterable[Path]) -> float:
    """Seconds for the trainings of `configs`, the first of which `run` has begun, and what goes with them.

    All have the same batches and like models, so that an epoch takes a time in proportion to its pairs.
    """
    first, *others = (_passes(config) for config in configs)
    status = json.loads((run / "status.json").read_bytes())
    whole_run = _update_s(run) * status["total_steps"]
    return whole_run * (first + sum(others)) / first * VALIDATIONS_AND_TRANSLATIONS


def _update_s(run: Path) -> float:
    """Seconds of an update. The median: some of the first wait for kernels of new shapes."""
    records = map(json.loads, (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    logged = [(each["step"], each["elapsed_s"]) for each in records if each["kind"] == "step"]
    return median(
        (after_s - before_s) / (after - before)
        for (before, before_s), (after, after_s) in pairwise([(0, 0.0), *logged])
    )


def _passes(config: Path) -> int:
    """How often a training goes through as many pairs as the corpus has."""
    values = tomllib.loads(config.read_text(encoding="utf-8"))
    return int(values["training"]["max_epochs"]) * (1 + len(values["data"].get("more", {})))


if __name__ == "__main__":
    run, *configs = map(Path, sys.argv[1:])
    minutes = round(expected_s(run, configs) / 60)
    print(f"All of it takes about {minutes // 60} h {minutes % 60:02} min here, if nothing else runs.")
