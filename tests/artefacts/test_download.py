"""Downloads against a server on this machine that misbehaves on request."""

import contextlib
import hashlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from mt_cli.data.corpora import download
from mt_cli.errors import DataError, ResourceError

CONTENT = b"zwei Hunde\n" * 1000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@dataclass
class Server:
    """Answers each request with the next of `answers`, the last one for ever."""

    answers: list[str] = field(default_factory=lambda: ["good"])
    requests: list[str] = field(default_factory=list)
    url: str = ""

    is_over: threading.Event = field(default_factory=threading.Event)

    def next_answer(self, path: str) -> str:
        self.requests.append(path)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = state.next_answer(self.path)
            if answer.isdecimal():
                self.send_error(int(answer))
                return
            if answer == "endless":
                self._send_for_ever(b"x" * 10_000)
                return
            if answer == "slow":
                self._send_for_ever(b"x", pause_s=0.01)
                return
            if answer == "redirect":
                self.send_response(302)
                self.send_header("Location", "file:///etc/passwd")
                self.end_headers()
                return
            body = (
                CONTENT
                if answer == "good"
                else CONTENT[:-50]
                if answer == "short"
                else b"something else"
            )
            self.send_response(200)
            self.send_header(
                "Content-Length", str(len(CONTENT) if answer == "short" else len(body))
            )
            self.end_headers()
            self.wfile.write(body)

        def _send_for_ever(self, piece: bytes, *, pause_s: float = 0.0) -> None:
            self.send_response(200)
            self.end_headers()
            with contextlib.suppress(OSError):
                while not state.is_over.wait(pause_s):
                    self.wfile.write(piece)

        def log_message(self, format: str, *args: object) -> None:
            pass

    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        state.url = f"http://127.0.0.1:{http.server_port}/train.de.gz"
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield state
        state.is_over.set()
        http.shutdown()
        thread.join()


def fetch(server: Server, folder: Path) -> Path:
    path = folder / "raw" / "train.de.gz"
    download(server.url, path, sha256=SHA256, most=len(CONTENT), backoff_s=0)
    return path


def test_file_arrives_whole(server: Server, tmp_path: Path) -> None:
    path = fetch(server, tmp_path)
    assert path.read_bytes() == CONTENT
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("trouble", ["short", "wrong", "500", "503", "429"])
def test_passing_trouble_is_retried(server: Server, tmp_path: Path, trouble: str) -> None:
    server.answers = [trouble, trouble, "good"]
    assert fetch(server, tmp_path).read_bytes() == CONTENT
    assert len(server.requests) == 3


def test_lasting_trouble_is_a_resource_error_that_says_what_to_do(
    server: Server, tmp_path: Path
) -> None:
    server.answers = ["503"]
    with pytest.raises(ResourceError, match=r"train.de.gz: cannot be fetched: .*--from DIR"):
        fetch(server, tmp_path)
    assert len(server.requests) == 3


def test_other_content_is_refused_with_both_hashes(server: Server, tmp_path: Path) -> None:
    server.answers = ["wrong"]
    found = hashlib.sha256(b"something else").hexdigest()
    with pytest.raises(DataError, match=f"sha256 {found} found, {SHA256} expected"):
        fetch(server, tmp_path)


@pytest.mark.parametrize("trouble", ["short", "wrong", "500", "404", "redirect", "slow"])
def test_failure_leaves_no_file(
    server: Server, tmp_path: Path, trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mt_cli.data.corpora.DEADLINE_S", 0.2)
    server.answers = [trouble]
    with pytest.raises((DataError, ResourceError)):
        fetch(server, tmp_path)
    assert list(tmp_path.rglob("*.*")) == []


def test_endless_answer_is_cut_off_at_the_files_size(server: Server, tmp_path: Path) -> None:
    server.answers = ["endless"]
    with pytest.raises(
        DataError, match=r"more than 11,000 bytes sent; the file there is not the right one"
    ):
        fetch(server, tmp_path)
    assert list(tmp_path.rglob("*.*")) == []
