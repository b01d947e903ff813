"""Multi30k: which files are found, fetched and checked; a server misbehaves on request."""

import contextlib
import gzip
import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from mt_cli.config.schema import Config, DataConfig
from mt_cli.data import corpora
from mt_cli.data.corpora import corpus_hashes, download, find_corpus, pinned_hashes
from mt_cli.data.prepare import prepare_corpus
from mt_cli.errors import DataError, ResourceError

CONFIG = DataConfig(corpus="multi30k", splits=("train", "val"))
NAMES = ("train.de", "train.en", "val.de", "val.en")
CONTENT = b"zwei Hunde\n" * 1000


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def pinned(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """Small files in place of Multi30k's, by name, gzipped, with their hashes pinned."""
    gzipped = {name: gzip.compress(f"eins {name}\nzwei\n".encode(), mtime=0) for name in NAMES}
    hashes = {f"{name}.gz": sha256(data) for name, data in gzipped.items()}
    hashes |= {name: sha256(gzip.decompress(data)) for name, data in gzipped.items()}
    monkeypatch.setattr(corpora, "SHA256", hashes)
    return gzipped


def write(folder: Path, files: dict[str, bytes], *, suffix: str = ".gz") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / f"{name}{suffix}").write_bytes(data)
    return folder


def test_files_come_from_a_folder_and_plain_ones_count_as_the_same(
    pinned: dict[str, bytes], tmp_path: Path
) -> None:
    unpacked = {name: gzip.decompress(data) for name, data in pinned.items()}
    plain, packed = write(tmp_path / "plain", unpacked, suffix=""), write(tmp_path, pinned)
    corpus = find_corpus(CONFIG, source=packed)
    assert corpus["train"].src.paths == (packed / "train.de.gz",)
    assert corpus_hashes(corpus) == pinned_hashes(CONFIG, {})
    out = tmp_path / "out"
    prepared = [
        prepare_corpus(Config(data=CONFIG), out=out, source=each) for each in (plain, packed)
    ]
    assert [is_new for _, is_new in prepared] == [True, False]


def test_altered_file_is_named_with_both_hashes(pinned: dict[str, bytes], tmp_path: Path) -> None:
    write(tmp_path, pinned | {"val.en": b"altered"})
    expected = rf"val\.en\.gz: .*{sha256(b'altered')}.*{sha256(pinned['val.en'])}"
    with pytest.raises(DataError, match=expected):
        find_corpus(CONFIG, source=tmp_path)


def test_only_missing_files_are_fetched_and_none_offline(
    pinned: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[tuple[str, str]] = []

    def fake_download(url: str, path: Path, *, sha256: str, max_bytes: int) -> None:
        fetched.append((url, sha256))
        path.write_bytes(pinned[path.stem])

    monkeypatch.setattr(corpora, "DOWNLOADS", tmp_path)
    monkeypatch.setattr(corpora, "download", fake_download)
    monkeypatch.setattr(corpora, "BASE_URL", "http://127.0.0.1/raw")
    write(tmp_path, {name: pinned[name] for name in NAMES[:3]})
    with pytest.raises(ResourceError, match=r"val\.en\.gz.*--from"):
        find_corpus(CONFIG, offline=True)
    find_corpus(CONFIG)
    assert fetched == [("http://127.0.0.1/raw/val.en.gz", sha256(pinned["val.en"]))]


# Downloads


class Server:
    """Answers each request with the next of `answers`, the last one for ever."""

    def __init__(self) -> None:
        self.answers: list[str] = []
        self.num_requests = 0
        self.url = ""
        self.is_over = threading.Event()


BODIES = {"good": CONTENT, "short": CONTENT[:-50], "wrong": b"something else"}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.num_requests += 1
            answer = state.answers.pop(0) if len(state.answers) > 1 else state.answers[0]
            if answer.isdecimal():
                self.send_error(int(answer))
                return
            self.send_response(200)
            if answer == "endless":
                self.end_headers()
                with contextlib.suppress(OSError):
                    while not state.is_over.is_set():
                        self.wfile.write(b"x" * 10_000)
                return
            length = len(CONTENT) if answer == "short" else len(BODIES[answer])
            self.send_header("Content-Length", str(length))
            self.end_headers()
            self.wfile.write(BODIES[answer])

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
    download(server.url, path, sha256=sha256(CONTENT), max_bytes=len(CONTENT), backoff_s=0)
    return path


@pytest.mark.parametrize("trouble", ["short", "503", "429"])
def test_passing_trouble_is_retried(server: Server, tmp_path: Path, trouble: str) -> None:
    server.answers = [trouble, trouble, "good"]
    path = fetch(server, tmp_path)
    assert path.read_bytes() == CONTENT
    assert list(path.parent.iterdir()) == [path]
    assert server.num_requests == 3


@pytest.mark.parametrize(
    ("trouble", "error", "named"),
    [
        ("wrong", DataError, sha256(BODIES["wrong"])),
        ("503", ResourceError, "--from"),
        ("404", ResourceError, "train.de.gz"),
        ("endless", DataError, "sha256"),
    ],
)
def test_lasting_trouble_is_an_error_and_leaves_no_file(
    server: Server, tmp_path: Path, trouble: str, error: type[Exception], named: str
) -> None:
    server.answers = [trouble]
    with pytest.raises(error, match=named):
        fetch(server, tmp_path)
    assert list(tmp_path.rglob("*.*")) == []
