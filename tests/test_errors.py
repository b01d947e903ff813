"""Errors as Python shows them, as the command line shows them, and as what they can be caught."""

import pickle
import sys
from pathlib import Path

import pytest

from mt_cli.config.load import command_line
from mt_cli.errors import ConfigError, MtCliError, Option, ResourceError, UsageError


def test_message_speaks_python_unless_the_command_line_asks() -> None:
    error = ResourceError("out of memory; lower ", Option("batch_size"), " (now 8)")
    assert str(error) == "out of memory; lower batch_size (now 8)"
    assert error.with_flags() == "out of memory; lower --batch-size (now 8)"


@pytest.mark.parametrize("error", [UsageError, ConfigError])
def test_wrong_arguments_can_be_caught_as_pythons_own_errors(error: type[MtCliError]) -> None:
    assert issubclass(error, ValueError)
    assert error("why").exit_code == 2


def test_error_survives_the_way_from_another_process() -> None:
    error = UsageError("give ", Option("beam_size", 5))
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), copy.with_flags()) == (UsageError, "give --beam-size 5")


@pytest.mark.parametrize(
    ("called", "on_path", "expected"),
    [
        ("venv/bin/mt-cli", "venv/bin", "mt-cli train 'a b'"),
        ("venv/bin/mt-cli", "elsewhere", "venv/bin/mt-cli train 'a b'"),
        ("{0}/venv/bin/mt-cli", "elsewhere", "venv/bin/mt-cli train 'a b'"),
        ("my venv/bin/mt-cli", "elsewhere", "'my venv/bin/mt-cli' train 'a b'"),
        ("{0}/src/mt_cli/__main__.py", "venv/bin", "python -m mt_cli train 'a b'"),
        ("-c", "venv/bin", "mt-cli train 'a b'"),
        ("", "elsewhere", "mt-cli train 'a b'"),
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
    assert command_line("train", "a b") == expected
