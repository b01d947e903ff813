"""The first hour at a real terminal of 80 columns: what waits says so, and every view fits."""

import os
from pathlib import Path

import pexpect
import pytest
from workspace import MT_CLI, TIMEOUT_S, Workspace

pytestmark = pytest.mark.processes

COLUMNS = 80
ENVIRONMENT = {
    name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")
} | {
    "TERM": "xterm",
    "PYTHONIOENCODING": "utf-8",
}
LONG = "Ein Mann und eine Frau gehen mit zwei Hunden durch den Park."
VIEWS = {
    "prepare": ["prepare", "tiny.toml"],
    "inspect": ["inspect", "runs/tiny"],
    "shapes": ["inspect", "runs/tiny", "--shapes", "--text", LONG],
    "attention": [
        "inspect",
        "runs/tiny",
        "--attention",
        "-",
        "--attention-of",
        "encoder",
        "--text",
        LONG,
    ],
}
ALL_VIEWS = """
import sys
from mt_cli.cli.app import app
for name, args in {views!r}.items():
    print(f"view {{name}}", flush=True)
    try:
        app(args)
    except SystemExit as end:
        assert not end.code, (args, end.code)
"""


def at_terminal(*command: str, cwd: Path) -> "pexpect.spawn[str]":
    return pexpect.spawn(
        command[0],
        list(command[1:]),
        cwd=str(cwd),
        env=ENVIRONMENT,
        dimensions=(24, COLUMNS),
        encoding="utf-8",
        timeout=TIMEOUT_S,
    )


def rest_of(session: "pexpect.spawn[str]") -> str:
    """What comes until the command has ended, which it must do well."""
    session.expect(pexpect.EOF)
    session.close()
    assert session.exitstatus == 0, session.before
    return str(session.before)


def test_translate_says_what_it_waits_for_and_answers_each_line(workspace: Workspace) -> None:
    sentences = ["Ein Hund bellt.", "Zwei Frauen singen."]
    expected = workspace.call("translate", "runs/tiny", stdin="\n".join(sentences).encode()).lines
    session = at_terminal(*MT_CLI, "translate", "runs/tiny", cwd=workspace.folder)
    session.expect_exact("type a sentence (de) and press Enter; Ctrl-D ends\r\n")
    for sentence, translation in zip(sentences, expected, strict=True):
        session.expect_exact("> ")
        session.sendline(sentence)
        session.expect_exact(f"{sentence}\r\n{translation}\r\n")
    session.expect_exact("> ")  # before it, Ctrl-D would be lost
    session.sendeof()
    assert rest_of(session).strip() == ""
