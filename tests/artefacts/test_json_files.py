"""JSON files: strict, bounded, and sealed."""

import hashlib
import os
from pathlib import Path

import pytest
from damage import accepted_flips

from mt_cli.artefacts.json_files import read_json, read_sealed, sealed, write_json
from mt_cli.errors import DataError


def test_json_comes_back_as_it_was(tmp_path: Path) -> None:
    value: dict[str, object] = {"name": "Größe", "list": [1, 2.5, None], "inner": {"is_true": True}}
    write_json(tmp_path / "x.json", value)
    assert read_json(tmp_path / "x.json") == value


def test_path_in_another_encoding_comes_back_as_it_was(tmp_path: Path) -> None:
    path = os.fsdecode(b"caf\xe9")
    write_json(tmp_path / "x.json", {"folder": path})
    assert read_json(tmp_path / "x.json") == {"folder": path}


def test_json_is_readable(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", {"name": "Größe", "size": 3})
    assert (tmp_path / "x.json").read_text(encoding="utf-8") == '{\n  "name": "Größe",\n  "size": 3\n}\n'


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b'{"a": 1', r"x\.json: not valid JSON \(.+\); the file is damaged"),
        (b"", r"x\.json: not valid JSON"),
        (b'{"a": "\xff\xfe"}', r"x\.json: not valid JSON"),
        (b"[1, 2]", r"x\.json: expected a JSON object, found list"),
        (b"null", r"x\.json: expected a JSON object, found NoneType"),
    ],
    ids=["truncated", "empty", "not text", "list", "null"],
)
def test_damaged_json_is_named(tmp_path: Path, content: bytes, complaint: str) -> None:
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(DataError, match=complaint):
        read_json(tmp_path / "x.json")


def test_missing_json_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"x\.json: no such file$"):
        read_json(tmp_path / "x.json")


# Strict and bounded


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"a": NaN}', "NaN is no number"),
        ('{"a": -Infinity}', "-Infinity is no number"),
        ('{"a": 1e999}', "1e999 is no finite number"),
        ('{"a": %s}' % ("9" * 10**5), "a number of 100,000 digits"),
        ('{"a": ' + "[" * 40 + "1" + "]" * 40 + "}", "more than 32 levels deep"),
        ('{"a":' * 10**5 + "1" + "}" * 10**5, "more than 32 levels deep"),
        ("[" * 10**6, "more than 32 levels deep"),
    ],
    ids=["nan", "infinity", "overflow", "digits", "deep", "very deep", "endless"],
)
def test_what_no_such_file_holds_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(DataError, match=rf"x\.json: not valid JSON \({complaint}\); the file is damaged"):
        read_json(tmp_path / "x.json")


def test_large_numbers_that_are_written_are_read(tmp_path: Path) -> None:
    value: dict[str, object] = {"seed": 2**63 - 1, "small": 5e-324, "large": 1.7976931348623157e308}
    write_json(tmp_path / "x.json", value)
    assert read_json(tmp_path / "x.json") == value


# Seals

DOCUMENT = {
    "name": "Größe",
    "path": os.fsdecode(b"caf\xe9"),
    "inner": {"n": 16, "f": 0.1},
    "list": [True, None],
}


def read(path: Path, *, seal_command: str | None = "mt-cli seal") -> dict[str, object]:
    return read_sealed(
        path,
        early_keys=DOCUMENT,
        below=path.parent,
        warns=seal_command is not None,
        seal_command=seal_command,
    )


def test_sealed_document_comes_back_without_its_seal(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", sealed(DOCUMENT))
    assert read(tmp_path / "x.json") == DOCUMENT


def test_seal_is_the_hash_of_all_other_keys() -> None:
    expected = hashlib.sha256(rb'{"a": 1, "b": "\u00e9"}').hexdigest()
    assert sealed({"b": "é", "a": 1, "seal": "of before"}) == {"b": "é", "a": 1, "seal": expected}


def test_seal_does_not_depend_on_the_order_and_is_not_sealed() -> None:
    document = sealed(DOCUMENT)
    assert sealed(dict(reversed(document.items())))["seal"] == document["seal"]


def test_no_flipped_bit_of_a_sealed_document_changes_what_it_says(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    write_json(path, sealed(DOCUMENT))

    assert accepted_flips(path, lambda: read(path)) == []


def test_documents_without_seal_are_read_with_one_warning_for_their_folder(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_json(tmp_path / "x.json", {"name": "x"})
    write_json(tmp_path / "y.json", {"name": "y"})
    assert read(tmp_path / "x.json") == read(tmp_path / "x.json") == {"name": "x"}
    assert read(tmp_path / "y.json") == {"name": "y"}
    assert caplog.messages == [
        f"{tmp_path}: made by an early version, without a seal, so damage may go unnoticed; "
        "to check and seal it: mt-cli seal"
    ]


def test_document_without_seal_is_read_in_silence_by_who_will_seal_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_json(tmp_path / "x.json", {"name": "x"})
    assert read(tmp_path / "x.json", seal_command=None) == {"name": "x"}
    assert caplog.messages == []


def test_document_whose_seal_has_another_name_is_not_one_of_an_early_version(tmp_path: Path) -> None:
    document = {"seam" if key == "seal" else key: value for key, value in sealed(DOCUMENT).items()}
    write_json(tmp_path / "x.json", document)
    with pytest.raises(DataError, match=r"x\.json: unknown key 'seam' and no seal: damaged; restore"):
        read(tmp_path / "x.json")
