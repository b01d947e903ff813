"""metrics.jsonl: what training noted, without what a kill has cut or lost."""

import json
from pathlib import Path

import pytest

from mt_cli.errors import DataError
from mt_cli.runs.run import append_metrics, read_metrics, truncate_metrics

STEP = {"kind": "step", "step": 10, "loss": 3.5}
LATER = {"kind": "validation", "step": 12, "bleu": 1.5}


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    path = tmp_path / "metrics.jsonl"
    append_metrics(path, STEP)
    append_metrics(path, LATER)
    return path


@pytest.mark.parametrize("length", [1, 20])
def test_line_cut_short_is_left_out_and_forgotten(measured: Path, length: int) -> None:
    whole = measured.read_bytes()
    measured.write_bytes(whole + json.dumps(STEP).encode()[:length])
    assert read_metrics(measured) == [STEP, LATER]
    truncate_metrics(measured, after_step=12)
    assert measured.read_bytes() == whole
    truncate_metrics(measured, after_step=11)
    assert read_metrics(measured) == [STEP]


@pytest.mark.parametrize(
    "damaged", [b'{"kind": "st\n', b"\xff\xfe\n", b"\n", b"[1]\n", b'{"step": 3}\n']
)
def test_damaged_line_is_named(measured: Path, damaged: bytes) -> None:
    measured.write_bytes(measured.read_bytes() + damaged)
    with pytest.raises(DataError, match=r"metrics\.jsonl: line 3: "):
        read_metrics(measured)
