"""Programs that docs/ show: those of docs/python.md print what it says; docs/serve.md's answers."""

import contextlib
import doctest
import re
import shutil
import socket
import threading
import time
import urllib.request
from pathlib import Path

import pytest
from pages import ROOT, blocks_in, read
from workspace import Workspace

NUMBER = re.compile(r"-?\d+(\.\d+)?")


class AnyNumber(doctest.OutputChecker):
    """Takes output with other numbers, as another training prints them."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        return super().check_output(NUMBER.sub("#", want), NUMBER.sub("#", got), optionflags)


@pytest.fixture
def sample_run(workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tiny run under the name that the pages use, in the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    return workspace.copy_run(tmp_path / "runs" / "sample")


@pytest.mark.usefixtures("sample_run")
def test_examples_in_python_print_what_the_page_shows(workspace: Workspace) -> None:
    shutil.copy(workspace.corpus("val.de"), "german.txt")
    shutil.copy(workspace.corpus("val.en"), "english.txt")
    blocks = blocks_in(read(ROOT / "docs" / "python.md"), "python")
    assert [block for block in blocks if ">>> " not in block] == []
    examples = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, "python.md", None, 0)
    reports: list[str] = []
    doctest.DocTestRunner(checker=AnyNumber(), verbose=False).run(examples, out=reports.append)
    assert "\n".join(reports) == ""
    assert len(examples.examples) > 8


def test_the_server_answers_line_by_line(workspace: Workspace, sample_run: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (program,) = blocks_in(read(ROOT / "docs" / "serve.md"), "python")
    code = program.replace("8000", str(port))
    threading.Thread(target=exec, args=(code, {"__name__": "serve"}), daemon=True).start()
    data = "Ein Hund bellt.\n\nZwei Männer schlafen.\n".encode()
    url = f"http://127.0.0.1:{port}"
    assert answer_of(url, data) == workspace.call("translate", sample_run, stdin=data).text
    assert answer_of(url, b"") == ""
    assert answer_of(url, b"\xff Hund\nEin Hund.").count("\n") == 2


def answer_of(url: str, data: bytes) -> str:
    """What the server says, once it is there."""
    for _ in range(100):
        with contextlib.suppress(OSError):
            return str(urllib.request.urlopen(url, data=data, timeout=60).read().decode())
        time.sleep(0.1)
    pytest.fail("the server does not answer")
