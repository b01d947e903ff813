"""docs/serve.md against the real thing: its server answers."""

import socket
import threading
import time
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
    for _ in range(100):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}", data=data, timeout=60) as answer:
                found = answer.read().decode()
            break
        except OSError:
            time.sleep(0.1)
    direct = workspace.call("translate", tmp_path / "runs" / "sample", stdin=data)
    assert found == direct.text
    assert found.split("\n")[1] == ""
