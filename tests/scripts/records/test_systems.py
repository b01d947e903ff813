"""Which records are seeds of one system, and how two systems are tested."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from recorded import HYPS, OTHERS, counts
from records.record import Record
from records.sentence_statistics import p_value, pack
from records.systems import Row, file_name, p_between, systems_of
from records.taking import configs_in

from mt_cli.errors import DataError


def test_file_is_named_after_config_changes_precision_and_seed(record: Record, repository: Path) -> None:
    published = configs_in(repository / "configs")
    assert file_name(record, published) == "tiny-fp32-seed4.json"
    changed: dict[str, Any] = json.loads(json.dumps(record.config))
    changed["training"]["r_drop"] = 0.5
    own = replace(record, config=changed)
    assert file_name(own, published) == "tiny-r_drop-0.5-fp32-seed4.json"
    (system,) = systems_of([own], published)
    assert system.name == "`configs/tiny.toml` with `training.r_drop = 0.5`, fp32"


def test_files_of_many_changes_differ_where_their_last_change_does(record: Record, repository: Path) -> None:
    published = configs_in(repository / "configs")
    names = set()
    for r_drop in (1.0, 5.0):
        config: dict[str, Any] = json.loads(json.dumps(record.config))
        config["model"] |= {
            "d_model": 96,
            "num_heads": 3,
            "encoder_layers": 2,
            "decoder_layers": 3,
            "d_ff": 96,
        }
        config["training"] |= {"label_smoothing": 0.2, "r_drop": r_drop}
        names.add(file_name(replace(record, config=config), published))
    assert len(names) == 2
    assert all(len(name) < 150 for name in names)


def test_seeds_are_tested_together_sentence_by_sentence(record: Record, repository: Path) -> None:
    (system,) = systems_of([record], configs_in(repository / "configs"))
    (given,) = [each for each in record.evaluations if each.search == "greedy"]

    def row(*hyps_of_seeds: list[str]) -> Row:
        each = [replace(given, n=len(hyps), statistics=pack(counts(hyps))) for hyps in hyps_of_seeds]
        return Row(system, "greedy", dict(enumerate(each)))

    mixed = [*OTHERS[:12], *HYPS[12:]]
    summed = p_value(counts(HYPS) + counts(HYPS), counts(OTHERS) + counts(mixed))
    assert p_between(row(HYPS, HYPS), row(OTHERS, mixed)) == summed
    # The means of other seeds are not what the sum of the common ones tests.
    assert p_between(row(HYPS), row(OTHERS, mixed)) is None
    assert p_between(row(HYPS), replace(row(OTHERS), evaluations={9: given})) is None


def test_trainings_on_another_kind_of_device_are_a_system_of_their_own(
    record: Record, repository: Path
) -> None:
    published = configs_in(repository / "configs")
    on_gpu = replace(record, environment={**record.environment, "device": "cuda:0"})
    assert file_name(on_gpu, published) == "tiny-fp32-cuda-seed4.json"
    names = [system.name for system in systems_of([record, on_gpu], published)]
    assert names == ["`configs/tiny.toml`, fp32", "`configs/tiny.toml`, fp32 on cuda"]


def test_a_fine_tuned_model_has_a_file_of_its_own(record: Record, repository: Path) -> None:
    tuned = replace(record, init_from="runs/my parent")
    name = file_name(tuned, configs_in(repository / "configs"))
    assert name == "tiny-from-my_parent-fp32-seed4.json"


def test_two_records_of_one_seed_are_refused(record: Record, repository: Path) -> None:
    with pytest.raises(
        DataError, match="two records are of tiny with seed 4, trained with the same settings"
    ):
        systems_of([record, replace(record, weights_sha256="0" * 64)], configs_in(repository / "configs"))
