"""Which records are seeds of one system, and how two systems are tested."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from recorded import HYPS, OTHERS, counts
from records.record import Record
from records.sentence_statistics import p_value, pack
from records.systems import Row, file_name, p_between, systems_of
from records.taking import configs_in


def test_file_is_named_after_config_changes_precision_and_seed(record: Record, repository: Path) -> None:
    published = configs_in(repository / "configs")
    assert file_name(record, published) == "tiny-fp32-seed4.json"
    changed: dict[str, Any] = json.loads(json.dumps(record.config))
    changed["training"]["r_drop"] = 0.5
    own = replace(record, config=changed)
    assert file_name(own, published) == "tiny-r_drop-0.5-fp32-seed4.json"
    (system,) = systems_of([own], published)
    assert system.name == "`configs/tiny.toml` with `training.r_drop = 0.5`, fp32"


def test_seeds_are_tested_together_sentence_by_sentence(record: Record, repository: Path) -> None:
    (system,) = systems_of([record], configs_in(repository / "configs"))
    (given,) = [each for each in record.evaluations if each.search == "greedy"]

    def row(*hyps_of_seeds: list[str]) -> Row:
        each = [replace(given, n=len(hyps), statistics=pack(counts(hyps))) for hyps in hyps_of_seeds]
        return Row(system, "greedy", dict(enumerate(each)))

    mixed = [*OTHERS[:12], *HYPS[12:]]
    summed = p_value(counts(HYPS) + counts(HYPS), counts(OTHERS) + counts(mixed))
    assert p_between(row(HYPS, HYPS), row(OTHERS, mixed)) == summed
    # A seed that only one of them has takes no part.
    assert p_between(row(HYPS), row(OTHERS, mixed)) == p_value(counts(HYPS), counts(OTHERS))
    assert p_between(row(HYPS), replace(row(OTHERS), evaluations={9: given})) is None
