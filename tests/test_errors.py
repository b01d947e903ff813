"""Errors as Python shows them, as the command line shows them, and as what they can be caught."""

import pickle
import sys
from pathlib import Path

import pytest

from mt_cli.config.load import command_line
from mt_cli.errors import UsageError


def test_error_survives_the_way_from_another_process_and_is_pythons_own_kind() -> None:
    copy = pickle.loads(pickle.dumps(UsageError("give --beam-size 5")))
    assert (type(copy), str(copy), copy.exit_code) == (UsageError, "give --beam-size 5", 2)
    assert isinstance(copy, ValueError)


@pytest.mark.parametrize(
    ("called", "on_path", "expected"),
    [
        ("venv/bin/mt-cli", "venv/bin", "mt-cli train 'a b'"),
        ("my venv/bin/mt-cli", "elsewhere", "'my venv/bin/mt-cli' train 'a b'"),
        ("{0}/src/mt_cli/__main__.py", "venv/bin", "python -m mt_cli train 'a b'"),
        ("notebook.py", "elsewhere", "mt-cli train 'a b'"),
    ],
)
def test_advised_command_is_called_as_the_program_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, called: str, on_path: str, expected: str
) -> None:
    for folder in ("venv/bin", "my venv/bin", "elsewhere"):
        (tmp_path / folder).mkdir(parents=True)
    for folder in ("venv/bin", "my venv/bin"):
        (tmp_path / folder / "mt-cli").touch(mode=0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / on_path))
    monkeypatch.setattr(sys, "argv", [called.format(tmp_path)])
    assert command_line("train", "a b") == expected.format(tmp_path)
