"""metrics.jsonl: lines with seals, and damage that is named."""

import json
import logging
from pathlib import Path

import pytest
from damage import accepted_flips

from mt_cli.artefacts.json_files import sealed
from mt_cli.artefacts.metrics import (
    Record,
    append_metrics,
    forget_metrics_after,
    read_metrics,
    seal_metrics,
)
from mt_cli.errors import DataError

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


def test_each_line_is_json_with_a_seal_of_its_own(path: Path) -> None:
    assert [json.loads(each) for each in path.read_text().splitlines()] == [sealed(STEP), sealed(LATER)]


def test_every_changed_bit_is_noticed(path: Path) -> None:
    assert accepted_flips(path, lambda: contents(path)) == []


def test_lost_line_end_is_noticed(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(DataError, match=r"line 2: damaged: it does not end where its JSON ends"):
        list(read_metrics(path))


@pytest.mark.parametrize("length", range(1, len(line(sealed(STEP)))))
def test_line_cut_short_is_left_out_and_forgotten(path: Path, length: int) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole + line(sealed(STEP))[:length])
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
        (line({**STEP, "sael": "0"}), r"unknown key 'sael' and no seal: damaged; delete this line"),
        (
            line({**sealed(STEP), "loss": 3.25}),
            r"altered or damaged: its seal does not fit; delete this line; the others",
        ),
    ],
)
def test_damaged_line_is_named(path: Path, damaged: bytes, complaint: str) -> None:
    path.write_bytes(path.read_bytes() + damaged + line(sealed({**STEP, "step": 13})))
    for read in (lambda: list(read_metrics(path)), lambda: forget_metrics_after(path, 1)):
        with pytest.raises(DataError, match=rf"metrics\.jsonl: line 3: {complaint}"):
            read()


@pytest.mark.parametrize("key", ["loss", "bleu"])
def test_value_that_is_no_number_is_named(key: str) -> None:
    record = Record("m: line 1", "step", 10, {**STEP, "loss": "3.5"})
    with pytest.raises(DataError, match=rf"m: line 1: damaged: expected a number in '{key}'"):
        record.number(key)
    with pytest.raises(DataError, match=r"m: line 1: damaged: expected a text in 'step', found 10"):
        record.text("step")


def test_lines_of_early_versions_are_read_with_a_warning_and_sealed_on_request(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.write_bytes(line(STEP) + line(LATER) + b'{"ki')
    with caplog.at_level(logging.WARNING):
        assert contents(path) == [STEP, LATER]
    assert f"mt-cli inspect {path.parent} --seal" in caplog.text
    assert seal_metrics(path)
    assert path.read_bytes() == line(sealed(STEP)) + line(sealed(LATER))
    assert not seal_metrics(path)


def test_a_file_with_all_its_seals_stays_as_it_is(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b": ", b":"))
    assert not seal_metrics(path)


def test_resuming_seals_the_lines_of_an_early_version(path: Path) -> None:
    path.write_bytes(line(STEP))
    forget_metrics_after(path, 12)
    assert path.read_bytes() == line(sealed(STEP))
