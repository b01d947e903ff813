"""Status and environment of a run."""

from pathlib import Path

import pytest

from mt_cli.runs.run import ENVIRONMENT, STATUS, note_resumption, read_facts, write_facts

FACTS = {STATUS: {"state": "running", "step": 7}, ENVIRONMENT: {"torch": "2.x", "threads": 2}}
each_file = pytest.mark.parametrize("name", FACTS)


@each_file
def test_facts_come_back(tmp_path: Path, name: str) -> None:
    write_facts(tmp_path, name, FACTS[name])
    assert read_facts(tmp_path, name) == FACTS[name]


@each_file
def test_facts_that_nobody_wrote_are_none(tmp_path: Path, name: str) -> None:
    assert read_facts(tmp_path, name) == {}


START = {"commit": "a", "threads": 2, "gpu": "H"}
LATER = {"commit": "b", "threads": 2, "amx": True}


def test_each_resumption_notes_what_differs_from_the_one_before(tmp_path: Path) -> None:
    note_resumption(tmp_path, START, after_step=3)
    assert not (tmp_path / ENVIRONMENT).exists()
    write_facts(tmp_path, ENVIRONMENT, START)
    as_written = (tmp_path / ENVIRONMENT).read_bytes()
    for step in (0, 5):
        note_resumption(tmp_path, START, after_step=step)
    assert (tmp_path / ENVIRONMENT).read_bytes() == as_written
    for step in (10, 20):  # the second time, nothing is new
        note_resumption(tmp_path, LATER, after_step=step)
    note_resumption(tmp_path, START, after_step=30)
    noted = [
        {"after_step": 10, "commit": "b", "gpu": None, "amx": True},
        {"after_step": 30, "commit": "a", "gpu": "H", "amx": None},
    ]
    assert read_facts(tmp_path, ENVIRONMENT) == START | {"resumed": noted}
