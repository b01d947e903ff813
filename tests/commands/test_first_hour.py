"""The first hour at a real terminal of 80 columns: what waits says so, and every view fits."""

import os
import re
import shutil
import sys
from pathlib import Path

import pexpect
import pytest
from test_cli import VERBS
from workspace import MT_CLI, TIMEOUT_S, Workspace

pytestmark = pytest.mark.processes

COLUMNS = 80
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")} | {
    "TERM": "xterm",
    "PYTHONIOENCODING": "utf-8",
}
LONG = "Ein Mann und eine Frau gehen mit zwei Hunden durch den Park."
VIEWS = {
    "prepare": ["prepare", "tiny.toml"],
    "inspect": ["inspect", "runs/tiny"],
    "shapes": ["inspect", "runs/tiny", "--shapes", "--text", LONG],
    "attention": ["inspect", "runs/tiny", "--attention", "-", "--attention-of", "encoder", "--text", LONG],
    "help": ["--help"],
    **{f"{verb} --help": [verb, "--help"] for verb in VERBS},
}
ALL_VIEWS = """
import sys
from mt_cli.cli import app
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


@pytest.fixture(scope="module")
def views(workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The lines of each of `VIEWS`, all shown by one process."""
    place = tmp_path_factory.mktemp("first-hour")
    for name in ("corpus", "runs"):
        shutil.copytree(workspace.folder / name, place / name)
    shutil.copy(workspace.folder / "tiny.toml", place)
    shown = rest_of(at_terminal(sys.executable, "-c", ALL_VIEWS.format(views=VIEWS), cwd=place))
    found: dict[str, list[str]] = {}
    for text in re.split(r"^view ", shown.replace("\r\n", "\n"), flags=re.MULTILINE)[1:]:
        name, _, body = text.partition("\n")
        found[name] = body.split("\n")
    return found


@pytest.mark.parametrize("name", VIEWS)
def test_no_line_is_longer_than_the_terminal(views: dict[str, list[str]], name: str) -> None:
    assert len(views[name]) > 3
    assert [line for line in views[name] if len(line.rpartition("\r")[2]) > COLUMNS] == []


def test_inspect_shows_what_is_not_the_default_and_fits_few_screens(views: dict[str, list[str]]) -> None:
    text = "\n".join(views["inspect"])
    assert "model.d_model" in text
    assert "activation" not in text, "a default"
    assert not re.search(r"[0-9a-f]{64}", text), "a whole hash"
    assert re.search(r"data\.files\.train +src corpus/train\.de, tgt corpus/train\.en\n", text)
    assert len(views["inspect"]) < 100


def test_map_of_a_long_sentence_is_cut_into_blocks(views: dict[str, list[str]]) -> None:
    blocks = [line for line in views["attention"] if line.startswith("columns ")]
    assert len(blocks) > 1
    assert blocks[0].startswith("columns 1 to ")


def test_translate_says_what_it_waits_for_and_answers_each_line(workspace: Workspace) -> None:
    sentences = ["Ein Hund bellt.", "Zwei Frauen singen."]
    expected = workspace.call("translate", "runs/tiny", stdin="\n".join(sentences).encode()).lines
    session = at_terminal(*MT_CLI, "translate", "runs/tiny", cwd=workspace.folder)
    session.expect_exact("type a German sentence and press Enter; Ctrl-D ends\r\n")
    for sentence, translation in zip(sentences, expected, strict=True):
        session.sendline(sentence)
        session.expect_exact(f"{sentence}\r\n{translation}\r\n")
    session.sendeof()
    assert rest_of(session) == ""


def test_evaluate_shows_a_bar_that_goes(workspace: Workspace, tmp_path: Path) -> None:
    workspace.copy_run(tmp_path / "run")
    session = at_terminal(*MT_CLI, "evaluate", str(tmp_path / "run"), cwd=workspace.folder)
    session.expect_exact("translating test:")
    shown = session.after + rest_of(session)
    drawn = [piece for piece in re.split(r"[\r\n]+", shown) if "translating test:" in piece]
    assert [piece for piece in drawn if len(piece) > COLUMNS] == []
    assert "lines" in drawn[0]
    wiped = shown.rpartition("translating test:")[2]
    assert re.search(r"\r +\r", wiped), "the bar is still there"
    assert "BLEU" in wiped
