"""metrics.jsonl: what was appended, and damage that is named."""

import json
from pathlib import Path

import pytest

from mt_cli.errors import DataError
from mt_cli.runs.run import Record, append_metrics, forget_metrics_after, read_metrics

STEP = {"kind": "step", "step": 10, "loss": 3.5}
LATER = {"kind": "validation", "step": 12, "bleu": 1.5}


def line(content: object) -> bytes:
    return json.dumps(content).encode() + b"\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "metrics.jsonl"
    append_metrics(path, STEP)
    append_metrics(path, LATER)
    return path


def contents(path: Path) -> list[object]:
    return [record.content for record in read_metrics(path)]


def test_records_are_what_was_appended(path: Path) -> None:
    assert list(read_metrics(path)) == [
        Record(f"{path}: line 1", "step", 10, STEP),
        Record(f"{path}: line 2", "validation", 12, LATER),
    ]


def test_no_file_has_no_records(tmp_path: Path) -> None:
    assert contents(tmp_path / "none") == []


@pytest.mark.parametrize("length", [1, 20, len(line(STEP)) - 1])
def test_line_cut_short_is_left_out_and_forgotten(path: Path, length: int) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole + line(STEP)[:length])
    assert contents(path) == [STEP, LATER]
    forget_metrics_after(path, 12)
    assert path.read_bytes() == whole


def test_what_is_later_is_forgotten(path: Path) -> None:
    forget_metrics_after(path, 11)
    assert contents(path) == [STEP]


@pytest.mark.parametrize(
    ("damaged", "complaint"),
    [
        (b'{"kind": "st\n', r"damaged: not valid JSON \(.*\); delete this line; the others are still good"),
        (b"\xff\xfe\n", r"damaged: not valid JSON"),
        (b"\n", r"damaged: not valid JSON"),
        (b'{"kind": "step", "step": 11, "nll": NaN}\n', r"damaged: not valid JSON \(NaN is no number\)"),
        (b"[1]\n", r"damaged: expected a JSON object, found \[1\]; delete this line"),
        (line({"step": 3}), r"damaged: expected a text in 'kind', found None"),
        (line({"kind": "step", "step": "3"}), r"damaged: expected a whole number in 'step', found '3'"),
        (line({"kind": "step", "step": True}), r"damaged: expected a whole number in 'step', found True"),
    ],
)
def test_damaged_line_is_named(path: Path, damaged: bytes, complaint: str) -> None:
    path.write_bytes(path.read_bytes() + damaged + line({**STEP, "step": 13}))
    for read in (lambda: list(read_metrics(path)), lambda: forget_metrics_after(path, 1)):
        with pytest.raises(DataError, match=rf"metrics\.jsonl: line 3: {complaint}"):
            read()
