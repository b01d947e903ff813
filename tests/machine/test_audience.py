"""Records that reach people, the log file, or both."""

import logging
from collections.abc import Mapping

import pytest

from mt_cli.machine.audience import FOR_FILE, FOR_PEOPLE, reaches_file, reaches_people


@pytest.mark.parametrize(
    ("extra", "is_shown", "is_kept"),
    [({}, True, True), (FOR_PEOPLE, True, False), (FOR_FILE, False, True)],
    ids=["nothing said", "for people", "for the file"],
)
def test_record_reaches_whom_it_is_for(extra: Mapping[str, str], is_shown: bool, is_kept: bool) -> None:
    record = logging.makeLogRecord({"msg": "step 1", **extra})
    assert (reaches_people(record), reaches_file(record)) == (is_shown, is_kept)
