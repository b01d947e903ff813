"""Curves from metrics.jsonl, and damage that is named instead of drawn."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from workspace import Workspace

from mt_cli.artefacts.metrics import Record
from mt_cli.errors import DataError
from mt_cli.stages.curves import Curves, Point, curves_of, curves_of_run

STEP = {"kind": "step", "step": 10, "loss": 3.5, "nll": 3.25, "lr": 1e-3, "epoch": 1}
VALIDATION = {"kind": "validation", "step": 12, "nll": 3, "bleu": 1.5, "bleu_signature": "nrefs:1"}


def read(*contents: Mapping[str, object]) -> Curves:
    records = [
        Record(f"metrics.jsonl: line {number}", str(each["kind"]), int(str(each["step"])), each)
        for number, each in enumerate(contents, start=1)
    ]
    return curves_of(records, name="a", source=Path("metrics.jsonl"))


def without(record: Mapping[str, object], key: str) -> dict[str, object]:
    return {name: value for name, value in record.items() if name != key}


def test_each_curve_has_its_points_by_step() -> None:
    assert read(STEP, VALIDATION, {**STEP, "step": 20, "lr": 0.0}) == Curves(
        name="a",
        train_loss=(Point(10, 3.5), Point(20, 3.5)),
        train_nll=(Point(10, 3.25), Point(20, 3.25)),
        lr=(Point(10, 1e-3), Point(20, 0.0)),
        val_nll=(Point(12, 3.0),),
        bleu=(Point(12, 1.5),),
        bleu_signatures=("nrefs:1",),
    )


def test_records_of_a_kind_to_come_are_passed_over() -> None:
    assert read(STEP, {"kind": "weather", "step": 11, "sun": True}) == read(STEP)


def test_signatures_are_told_once_each() -> None:
    later = [
        {**VALIDATION, "step": step, "bleu_signature": name} for step, name in ((20, "new"), (30, "new"))
    ]
    assert read(VALIDATION, *later).bleu_signatures == ("nrefs:1", "new")


@pytest.mark.parametrize(
    ("record", "complaint"),
    [
        ({**STEP, "step": 11, "lr": None}, r"expected a number in 'lr', found None"),
        ({**STEP, "step": 11, "loss": True}, r"expected a number in 'loss', found True"),
        (without(VALIDATION, "bleu"), r"expected a number in 'bleu', found None"),
        (without(VALIDATION, "bleu_signature"), r"expected a text in 'bleu_signature', found None"),
        ({**STEP, "step": 9}, r"step 9 comes after step 10"),
        (STEP, r"step 10 comes after step 10"),
    ],
)
def test_record_that_cannot_be_drawn_is_named(record: Mapping[str, object], complaint: str) -> None:
    with pytest.raises(DataError, match=rf"^metrics\.jsonl: line 2: (damaged: )?{complaint}"):
        read(STEP, record)


@pytest.mark.parametrize("contents", [[], [{"kind": "other", "step": 1}]])
def test_nothing_to_draw_is_said(contents: list[Mapping[str, object]]) -> None:
    with pytest.raises(DataError, match=r"^metrics\.jsonl: holds no measurement yet; go on training"):
        read(*contents)


def test_curves_of_a_run_are_what_it_logged(workspace: Workspace) -> None:
    curves = curves_of_run(workspace.run)
    lines = [json.loads(line) for line in workspace.run.joinpath("metrics.jsonl").read_text().splitlines()]
    bleu = [(line["step"], line["bleu"]) for line in lines if line["kind"] == "validation"]
    assert curves.name == "tiny"
    assert [(point.step, point.value) for point in curves.bleu] == bleu
    assert len(curves.lr) == len(lines) - len(bleu)


def test_run_without_metrics_is_refused(workspace: Workspace, tmp_path: Path) -> None:
    run = workspace.copy_run(tmp_path / "run")
    run.joinpath("metrics.jsonl").unlink()
    with pytest.raises(DataError, match=r"run/metrics\.jsonl: no such file; only a folder that train wrote"):
        curves_of_run(run)
