"""The tables of docs/results.md: rows, figures, order and marks."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from recorded import HYPS, OTHERS, REFS, change_json, counts
from records.page import BEGIN, END, results_page
from records.record import Record
from records.results import add
from records.sentence_statistics import bleu_of, p_value, pack
from records.tables import NO_RECORDS, results_tables
from records.taking import configs_in
from records.training_changes import TrainingChange

from mt_cli.errors import DataError


def no_changes(_: str) -> tuple[TrainingChange, ...]:
    """Every commit is as new as the last change."""
    return ()


def seeded(record: Record, seed: int, *, bleu: float) -> Record:
    """`record` with another seed and another BLEU."""
    config: dict[str, Any] = json.loads(json.dumps(record.config))
    config["runtime"]["seed"] = seed
    evaluations = tuple(replace(each, bleu=replace(each.bleu, score=bleu)) for each in record.evaluations)
    return replace(record, config=config, evaluations=evaluations)


def rows_below(title: str, text: str) -> list[list[str]]:
    """Cells of the table below a heading."""
    block = text.partition(f"### {title}\n")[2].partition("\n### ")[0]
    rows = [line.strip("| ").split(" | ") for line in block.splitlines() if line.startswith("| ")]
    return rows[2:]


def test_table_has_a_row_for_each_search_and_its_figures(record: Record, repository: Path) -> None:
    text = results_tables([record], configs_in(repository / "configs"), no_changes)
    beam, greedy = record.evaluations
    name = "`configs/tiny.toml`, fp32"
    assert [row[:6] for row in rows_below("files, test, de to en", text)] == [
        [name, "greedy", "4", f"{greedy.bleu.score:.2f}", "–", f"± {greedy.bleu.half_width:.2f}"],
        [name, "beam 2, alpha 0.5", "4", f"{beam.bleu.score:.2f}", "–", f"± {beam.bleu.half_width:.2f}"],
    ]
    (training,) = rows_below("How they were trained", text)
    assert training[:3] == [name, "4", f"{record.parameters:,}"]
    assert training[-1] == f"`{record.commit[:9]}`"
    assert f"- BLEU's signature: `{greedy.bleu.signature}`" in text


def test_seeds_of_a_config_are_one_row_of_scores_and_one_each_of_training(
    record: Record, repository: Path
) -> None:
    seeds = [seeded(record, seed, bleu=bleu) for seed, bleu in ((3, 42.0), (1, 41.0), (2, 40.0))]
    text = results_tables(seeds, configs_in(repository / "configs"), no_changes)
    greedy, _ = rows_below("files, test, de to en", text)
    assert greedy[2:5] == ["1, 2, 3", "41.00 (41.00, 40.00, 42.00)", "1.00"]
    assert [row[1] for row in rows_below("How they were trained", text)] == ["1", "2", "3"]


@pytest.mark.parametrize(
    ("prepared", "is_noted"), [(("a", "b"), True), (("a", "a"), False), (("a", None), False)]
)
def test_seeds_of_data_that_were_prepared_apart_are_noted(
    record: Record, repository: Path, prepared: tuple[str | None, ...], is_noted: bool
) -> None:
    seeds = [
        replace(seeded(record, seed, bleu=40.0), prepared_sha256=sha256)
        for seed, sha256 in enumerate(prepared)
    ]
    text = results_tables(seeds, configs_in(repository / "configs"), no_changes)
    assert ("1. The seeds were trained on data that were prepared apart" in text) == is_noted
    assert ("`configs/tiny.toml`, fp32 (1)" in text) == is_noted


def test_best_row_of_a_search_is_first_and_the_next_is_tested_against_it(
    record: Record, repository: Path
) -> None:
    text = (repository / "configs" / "tiny.toml").read_text()
    (repository / "configs" / "other.toml").write_text(text.replace("d_ff = 128", "d_ff = 256"))
    published = configs_in(repository / "configs")
    scored = {"tiny": counts(HYPS), "other": counts(OTHERS)}
    records = []
    for name, each in scored.items():
        of_set = tuple(
            replace(e, n=len(REFS), statistics=pack(each), bleu=replace(e.bleu, score=bleu_of(each)))
            for e in record.evaluations
        )
        config = published[name].model_dump(mode="json", exclude_none=True)
        records.append(replace(record, config_name=name, config=config, evaluations=of_set))
    rows = rows_below("files, test, de to en", results_tables(records, published, no_changes))
    p = p_value(scored["tiny"], scored["other"])
    order = sorted(scored, key=lambda name: -bleu_of(scored[name]))
    expected = [f"`configs/{name}.toml`, fp32" for name in order]
    assert [row[0] for row in rows] == [*expected, *expected]
    assert [row[1] for row in rows] == ["greedy"] * 2 + ["beam 2, alpha 0.5"] * 2
    assert [row[6] for row in rows] == ["–", f"{p:.4f}"] * 2

    # A row of another seed between the two is not tested, and does not come between them.
    middle = sum(map(bleu_of, scored.values())) / 2
    changed: dict[str, Any] = json.loads(json.dumps(records[0].config))
    changed["training"]["r_drop"] = 0.5
    other_seed = seeded(replace(records[0], config=changed), 9, bleu=middle)
    rows = rows_below("files, test, de to en", results_tables([*records, other_seed], published, no_changes))
    assert [row[2] for row in rows] == ["4", "9", "4"] * 2
    assert [row[6] for row in rows] == ["–", "–", f"{p:.4f}"] * 2


def test_other_lines_under_one_name_are_refused(record: Record, repository: Path) -> None:
    greedy = record.evaluations[1]
    other = replace(greedy, sha256={**greedy.sha256, "ref.txt": "0" * 64})
    changed = replace(seeded(record, 5, bleu=40.0), evaluations=(other,))
    with pytest.raises(DataError, match="files, test, de to en: records of 2 different texts"):
        results_tables([record, changed], configs_in(repository / "configs"), no_changes)


def test_config_that_is_gone_is_said_to_be(record: Record) -> None:
    text = results_tables([record], {}, no_changes)
    assert "`tiny` (a config that is gone), fp32" in text
    assert "configs/tiny.toml" not in text


def test_other_trainings_of_a_config_that_is_gone_have_rows_of_their_own(record: Record) -> None:
    config = json.loads(json.dumps(record.config))
    config["training"] |= {"r_drop": 0.5, "optimizer": "muon"}  # which no config can have today
    text = results_tables([record, replace(record, config=config)], {}, no_changes)
    gone = "`tiny` (a config that is gone)"
    names = {row[0] for row in rows_below("files, test, de to en", text)}
    assert names == {
        f"{gone}, fp32",
        f'{gone} with `training.optimizer = "muon"`, `training.r_drop = 0.5`, fp32',
    }


def test_page_without_records_says_so(repository: Path) -> None:
    assert f"{BEGIN}\n\n{NO_RECORDS}\n\n{END}" in results_page(repository)


def test_row_of_older_code_is_marked_with_the_reason(
    own_run: Path, repository: Path, history: Mapping[str, str]
) -> None:
    add([own_run], root=repository)
    text = results_page(repository)
    assert text.count("`configs/tiny.toml`, fp32 (1)") == 3
    assert "1. **Trained by older code**: today the same config and seed give another model. " in text
    assert f" `{history['change'][:9]}`: Batches are new.\n" in text


def test_training_that_went_on_with_older_code_or_elsewhere_is_marked(
    record: Record, repository: Path
) -> None:
    change = TrainingChange("c" * 40, "Batches are new.")
    resumed = [{"after_step": 7, "commit": "b" * 40, "processor": "AMD EPYC 9654", "gpu": None}]
    own = replace(record, environment={**record.environment, "resumed": resumed})

    def missed(commit: str) -> tuple[TrainingChange, ...]:
        return (change,) if commit == "b" * 40 else ()

    text = results_tables([own], configs_in(repository / "configs"), missed)
    assert "`configs/tiny.toml`, fp32 (1, 2)" in text
    assert "1. **Trained by older code**" in text
    assert f"2. Seed 4, from update 7 on: commit {'b' * 9}, processor AMD EPYC 9654.\n" in f"{text}\n"


def test_training_that_went_on_with_uncommitted_changes_is_marked(record: Record, repository: Path) -> None:
    resumed = [{"after_step": 600, "commit_modified": True}]
    own = replace(record, environment={**record.environment, "commit_modified": False, "resumed": resumed})
    text = results_tables([own], configs_in(repository / "configs"), no_changes)
    assert "1. Trained with changes that were not committed." in text
    assert "from update 600" not in text  # nothing else changed


@pytest.mark.parametrize(
    ("environment", "commit", "note"),
    [
        ({"commit_modified": True}, None, "1. Trained with changes that were not committed."),
        ({}, "0" * 40, "1. The history of this repository does not tell"),
    ],
)
def test_row_of_uncertain_code_is_marked(
    own_run: Path,
    repository: Path,
    history: Mapping[str, str],
    environment: dict[str, object],
    commit: str | None,
    note: str,
) -> None:
    change_json(own_run / "env.json", commit=commit or history["after"], **environment)
    add([own_run], root=repository)
    assert note in results_page(repository)
