"""Flips: what is read in spite of damage is reported, and what is noticed is not."""

from pathlib import Path

import pytest
from faults.case import Case
from faults.flips import flip

from mt_cli.errors import DataError, UsageError

EVERY_BIT = [(byte, bit) for byte in range(2) for bit in range(8)]


@pytest.fixture
def case(tmp_path: Path) -> Case:
    case = Case(tmp_path, lambda _: None)
    case.folder.mkdir()
    (case.folder / "file").write_bytes(b"ab")
    return case


def try_flips(case: Case, read: object) -> list[str]:
    assert callable(read)
    flip(case, name=Path("file"), read=read, flips=EVERY_BIT)
    assert case.tried == len(EVERY_BIT)
    assert (case.folder / "file").read_bytes() == b"ab"
    return case.failed


def refuse(path: Path) -> bytes:
    if path.read_bytes() != b"ab":
        raise DataError(f"{path}: altered")
    return b"ab"


def test_noticed_flips_are_survived(case: Case) -> None:
    assert try_flips(case, refuse) == []


def test_flips_that_change_nothing_are_survived(case: Case) -> None:
    assert try_flips(case, lambda path: len(path.read_bytes())) == []


def test_content_that_is_used_damaged_is_told_bit_by_bit(case: Case) -> None:
    failed = try_flips(case, Path.read_bytes)
    assert len(failed) == len(EVERY_BIT)
    assert failed[9] == "byte 1, bit 1: used as if nothing were wrong"


@pytest.mark.parametrize(
    ("error", "complaint"),
    [
        (DataError("something is wrong"), "the file is not named: something is wrong"),
        (UsageError("wrong use"), "exit 2: wrong use"),
        (KeyError("x"), "a traceback: KeyError('x')"),
    ],
)
def test_error_of_another_form_is_not_survived(case: Case, error: Exception, complaint: str) -> None:
    def fail(path: Path) -> bytes:
        if path.read_bytes() != b"ab":
            raise error
        return b"ab"

    assert try_flips(case, fail)[0] == f"byte 0, bit 0: {complaint}"
