"""A log file that cannot be written: a warning, once, and the work goes on."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mt_cli.machine.terminal import LogFile

log = logging.getLogger("mt_cli.test_log_file")
FULL = Path("/dev/full")


@pytest.fixture
def full_disk() -> Iterator[LogFile]:
    if not FULL.exists():
        pytest.skip("no /dev/full")
    handler = LogFile(FULL)
    package = logging.getLogger("mt_cli")
    package.addHandler(handler)
    yield handler
    package.removeHandler(handler)
    handler.close()


def test_full_disk_is_one_warning_and_no_traceback(
    full_disk: LogFile, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(3):
        log.warning("line %d", number)
    assert caplog.messages == [
        f"{FULL}: cannot be written: {os.strerror(28)}; the work goes on without",
        "line 0",
        "line 1",
        "line 2",
    ]
    assert capsys.readouterr() == ("", "")
