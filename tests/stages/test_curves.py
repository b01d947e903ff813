"""Curves from metrics.jsonl, and damage that is named instead of drawn."""

import json
from pathlib import Path

import pytest
from workspace import Workspace

from mt_cli.errors import DataError
from mt_cli.stages.curves import Curves, Point, curves_of_run, read_curves

STEP = {"kind": "step", "step": 10, "loss": 3.5, "nll": 3.25, "lr": 1e-3, "epoch": 1}
VALIDATION = {"kind": "validation", "step": 12, "nll": 3, "bleu": 1.5, "bleu_signature": "nrefs:1"}


def read(*records: object) -> Curves:
    content = "".join(json.dumps(record) + "\n" for record in records)
    return read_curves(content.encode(), name="a", source=Path("metrics.jsonl"))


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


def test_last_line_that_is_unfinished_is_left_out() -> None:
    content = json.dumps(STEP).encode() + b'\n{"kind": "st'
    assert read_curves(content, name="a", source=Path("m")) == read(STEP)


def without(record: dict[str, object], key: str) -> dict[str, object]:
    return {name: value for name, value in record.items() if name != key}


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b'{"kind": "st', r"not valid JSON \(.*\); the file is damaged"),
        (b"\xff\xfe", r"not valid JSON"),
        (b"", r"not valid JSON"),
        (b"[1]", r"expected a JSON object, found \[1\]"),
        (b'{"step": 3}', r"expected a text in 'kind', found None"),
        (b'{"kind": "step", "step": "3"}', r"expected a whole number in 'step', found '3'"),
        (
            json.dumps({**STEP, "step": 11, "lr": None}).encode(),
            r"expected a number in 'lr', found None",
        ),
        (
            json.dumps({**STEP, "step": 11, "nll": float("nan")}).encode(),
            r"expected a number in 'nll', found nan",
        ),
        (json.dumps({**STEP, "step": 11, "loss": True}).encode(), r"expected a number in 'loss', found True"),
        (json.dumps(without(VALIDATION, "bleu")).encode(), r"expected a number in 'bleu', found None"),
        (
            json.dumps(without(VALIDATION, "bleu_signature")).encode(),
            r"expected a text in 'bleu_signature', found None",
        ),
        (
            json.dumps({**STEP, "step": 9}).encode(),
            r"step 9 comes after step 10; the file is damaged",
        ),
        (json.dumps(STEP).encode(), r"step 10 comes after step 10; the file is damaged"),
    ],
)
def test_damaged_line_is_named(line: bytes, complaint: str) -> None:
    content = json.dumps(STEP).encode() + b"\n" + line + b"\n"
    with pytest.raises(DataError, match=rf"^some/metrics\.jsonl: line 2: {complaint}"):
        read_curves(content, name="a", source=Path("some/metrics.jsonl"))


@pytest.mark.parametrize("content", [b"", b'{"kind": "step"', b'{"kind": "other", "step": 1}\n'])
def test_nothing_to_draw_is_said(content: bytes) -> None:
    with pytest.raises(DataError, match=r"^m: holds no measurement yet; go on training"):
        read_curves(content, name="a", source=Path("m"))


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
