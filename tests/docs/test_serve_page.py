"""docs/serve.md against the real thing: its server answers."""

import contextlib
import socket
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from pages import DOCS, blocks_in, read
from workspace import Workspace

PAGE = next(page for page in DOCS if page.name == "serve.md")


def test_the_server_answers_line_by_line(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.copy_run(tmp_path / "runs" / "sample")
    monkeypatch.chdir(tmp_path)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (program,) = blocks_in(read(PAGE), "python")
    code = program.body.replace("8000", str(port))
    threading.Thread(target=exec, args=(code, {"__name__": "serve"}), daemon=True).start()
    lines = ["Ein Hund bellt.", "", "Zwei Männer schlafen."]
    data = "".join(f"{line}\n" for line in lines).encode()
    found = answer_of(f"http://127.0.0.1:{port}", data)
    direct = workspace.call("translate", tmp_path / "runs" / "sample", stdin=data)
    assert found == direct.text
    assert found.split("\n")[1] == ""
    assert answer_of(f"http://127.0.0.1:{port}", b"") == ""
    assert answer_of(f"http://127.0.0.1:{port}", b"\xff Hund\nEin Hund.").count("\n") == 2


def answer_of(url: str, data: bytes) -> str:
    """What the server says, once it is there."""
    for _ in range(100):
        with (
            contextlib.suppress(ConnectionRefusedError, urllib.error.URLError),
            urllib.request.urlopen(url, data=data, timeout=60) as answer,
        ):
            return str(answer.read().decode())
        time.sleep(0.1)
    pytest.fail("the server does not answer")
