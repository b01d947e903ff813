"""The file that a record is."""

import json
from pathlib import Path

import pytest
from records.record import Record, read_record, write_record

from mt_cli.artefacts.json_files import sealed
from mt_cli.errors import DataError


def test_record_survives_being_written_and_read(record: Record, tmp_path: Path) -> None:
    write_record(tmp_path / "records" / "a.json", record)
    assert read_record(tmp_path / "records" / "a.json") == record


def test_record_edited_by_hand_is_refused(record: Record, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_record(path, record)
    score = f"{record.evaluations[0].bleu.score}"
    path.write_text(path.read_text(encoding="utf-8").replace(score, "99.9"), encoding="utf-8")
    with pytest.raises(DataError, match=r"a\.json: altered or damaged"):
        read_record(path)


def test_record_of_another_shape_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(sealed({"format": 1, "config_name": "tiny"})))
    with pytest.raises(DataError, match=r"a\.json: not a record: config: "):
        read_record(path)
    path.write_text(json.dumps(sealed({"format": 2})))
    with pytest.raises(DataError, match="not a record of format 1"):
        read_record(path)


def test_record_without_its_seal_is_refused(record: Record, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_record(path, record)
    content = json.loads(path.read_bytes())
    del content["seal"]
    path.write_text(json.dumps(content))
    with pytest.raises(DataError, match="no seal"):
        read_record(path)
