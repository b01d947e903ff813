"""Locks of folders."""

import threading
import time
from pathlib import Path

import pytest

from mt_cli.errors import UsageError
from mt_cli.machine.files import is_locked, locked


def test_taken_folder_is_refused_by_name_and_is_free_afterwards(tmp_path: Path) -> None:
    with locked(tmp_path / "run"):
        assert is_locked(tmp_path / "run")
        with pytest.raises(UsageError, match="run: "), locked(tmp_path / "run", wait_s=0):
            pass
    assert not is_locked(tmp_path / "run")


def test_folder_that_is_soon_free_is_waited_for(tmp_path: Path) -> None:
    is_taken = threading.Event()

    def take() -> None:
        with locked(tmp_path / "run"):
            is_taken.set()
            time.sleep(0.2)

    other = threading.Thread(target=take)
    other.start()
    assert is_taken.wait(60)
    with locked(tmp_path / "run", wait_s=60):
        pass
    other.join()
