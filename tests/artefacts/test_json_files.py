"""JSON files: read as they were written, and named when damaged."""

from pathlib import Path

import pytest

from mt_cli.errors import DataError
from mt_cli.machine.files import read_json, write_json


def test_json_comes_back_as_it_was(tmp_path: Path) -> None:
    value: dict[str, object] = {"name": "Größe", "list": [1, 2.5, None], "inner": {"is_true": True}}
    write_json(tmp_path / "x.json", value)
    assert read_json(tmp_path / "x.json") == value


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b'{"a": 1', r"x\.json: not valid JSON \(.+\); the file is damaged"),
        (b"", r"x\.json: not valid JSON"),
        (b'{"a": "\xff\xfe"}', r"x\.json: not valid JSON"),
        (b"[1, 2]", r"x\.json: expected a JSON object, found list"),
        (b"null", r"x\.json: expected a JSON object, found NoneType"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, r"x\.json: not valid JSON"),
        (b'{"format": ' + b"9" * 100_000 + b"}", r"x\.json: not valid JSON"),
    ],
    ids=["truncated", "empty", "not text", "list", "null", "too deep", "too many digits"],
)
def test_damaged_json_is_named(tmp_path: Path, content: bytes, complaint: str) -> None:
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(DataError, match=complaint):
        read_json(tmp_path / "x.json")


def test_missing_json_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"x\.json: no such file$"):
        read_json(tmp_path / "x.json")
