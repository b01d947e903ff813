"""Pinned corpora: files are found, fetched, checked and cut; a server misbehaves on request."""

import contextlib
import gzip
import hashlib
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from mt_cli.config.load import parse_config
from mt_cli.config.pinned_corpora import PINNED_CORPORA, PinnedCorpus, PinnedSplit
from mt_cli.config.schema import Config, DataConfig
from mt_cli.data import fetch
from mt_cli.data.corpora import corpus_hashes, find_corpus, monolingual_text, pinned_hashes
from mt_cli.data.fetch import DOWNLOADS, PINS, Pin, download
from mt_cli.data.prepare import Inputs, prepare_corpus
from mt_cli.errors import ConfigError, DataError, ResourceError
from mt_cli.text.normalize import key_of

CONTENT = b"zwei Hunde\n" * 1000
PUBLISHED = {
    "train.de": "Ein Hund rennt.\nEin Mann schläft.\n",
    "train.en": "A dog runs.\nA man sleeps.\n",
    "mono.1.en": "A cat.\n",
    "mono.2.en": "A cow.\n",
    "test.deu": "Ein Kind lacht.\nHallo!\n",
    "test.eng": "A child laughs.\nHello!\n",
    "more.deu": "Nein.\nJa.\nHallo.\n",
    "more.eng": "Nope.\nYeah.\nHi.\n",
    "pairs.txt": "1\t2\r\nHello.\tGuten Tag.\r\nBye.\tEin  kind lacht!\r\nYes.\tJa.\r\n"
    "Yes.\tJa.\r\nNo.\tNEIN!\r\n",
}
"""Files of a corpus: lines of each language, and a table with a header and Windows' line ends."""
CUT = {
    "val.de": "Nein.\n",
    "val.en": "Nope.\n",
    "train.cut.de": "Ja.\nJa.\n",
    "train.cut.en": "Yes.\nYeah.\n",
}
"""By hand: `Hallo` is in the test set; of what is left, val has every second pair; of the table,
one pair shares no side with either.
"""


def of_both(german: str, english: str, **rules: object) -> PinnedSplit:
    return PinnedSplit({"de": (german,), "en": (english,)}, **rules)  # type: ignore[arg-type]


ROW = PinnedCorpus(
    terms="By nobody, for all",
    splits={
        "train": of_both("train.de", "train.en"),
        "captions": PinnedSplit({"en": ("mono.1.en", "mono.2.en")}, is_parallel=False),
        "test": of_both("test.deu", "test.eng"),
        "val": of_both("more.deu", "more.eng", without=("tiny:test",), every=2),
        "everyday": PinnedSplit(
            {"de": ("pairs.txt 2", "more.deu"), "en": ("pairs.txt 1", "more.eng")},
            without=("tiny:test", "tiny:val"),
        ),
    },
)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder with the files of a corpus `tiny`, gzipped: one more row, and its pins."""
    folder = tmp_path / "published"
    folder.mkdir()
    texts = {name.replace("train.cut", "everyday"): text for name, text in CUT.items()} | PUBLISHED
    for name, text in texts.items():
        pin = Pin(sha256(text.encode()), f"http://127.0.0.1:9/{name}")
        monkeypatch.setitem(PINS, f"tiny/{name}", pin)
    for name, text in PUBLISHED.items():
        folder.joinpath(f"{name}.gz").write_bytes(gzip.compress(text.encode()))
    monkeypatch.setitem(PINNED_CORPORA, "tiny", ROW)
    monkeypatch.chdir(tmp_path)
    return folder


def data_of(**keys: object) -> DataConfig:
    return parse_config({"data": {"corpus": "tiny", "splits": ["train", "val"], **keys}}).data


def texts_of(data: DataConfig, split: str, **options: object) -> list[tuple[str, str]]:
    corpus = find_corpus(data, **options)  # type: ignore[arg-type]
    return [(src.decode().strip(), tgt.decode().strip()) for src, tgt in corpus[split].pairs()]


def test_files_come_from_a_folder_and_are_kept_for_later(published: Path, tmp_path: Path) -> None:
    config = Config(data=data_of())
    known = pinned_hashes(config.data, {})
    assert texts_of(config.data, "train", sources=[published])[0] == (
        "Ein Hund rennt.",
        "A dog runs.",
    )
    assert corpus_hashes(find_corpus(config.data, offline=True)) == known
    out = tmp_path / "out"
    prepared = [prepare_corpus(Inputs(config, sources=of), out) for of in ((), (published,), ())]
    assert [is_new for _, is_new in prepared] == [True, False, False]
    for path in published.iterdir():  # plain files count as the same
        published.joinpath(path.stem).write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
    assert not prepare_corpus(Inputs(config, sources=[published]), out)[1]


def test_a_split_is_cut_so_that_it_shares_no_side_with_what_is_held_out(published: Path) -> None:
    data = data_of(splits=["train", "val", "everyday"])
    everyday = texts_of(data, "everyday", sources=[published])
    assert everyday == [("Ja.", "Yes."), ("Ja.", "Yeah.")]
    assert texts_of(data, "val", offline=True) == [("Nein.", "Nope.")]
    published.joinpath("pairs.txt.gz").write_bytes(gzip.compress(b"Hello.\tHallo.\n"))
    with pytest.raises(DataError, match=r"pairs\.txt\.gz: not the published file"):
        find_corpus(data, sources=[published])


def test_a_table_in_an_archive_is_cut_by_what_another_corpus_holds_out(
    published: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = published / "pairs.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("about.txt", "By nobody.")
        packed.writestr("pairs.txt", PUBLISHED["pairs.txt"])
    split = of_both(
        "pairs.zip/pairs.txt 2", "pairs.zip/pairs.txt 1", without=("tiny:test", "tiny:val")
    )
    monkeypatch.setitem(PINNED_CORPORA, "zipped", PinnedCorpus("By nobody", {"train": split}))
    for name, content in (
        ("pairs.zip", archive.read_bytes()),
        ("train.de", b"Ja.\n"),
        ("train.en", b"Yes.\n"),
    ):
        monkeypatch.setitem(PINS, f"zipped/{name}", Pin(sha256(content)))
    data = data_of(corpus=["tiny", "zipped"])
    assert texts_of(data, "train", sources=[published])[-1] == ("Ja.", "Yes.")
    assert texts_of(data, "train", offline=True)[-1] == ("Ja.", "Yes.")


@pytest.mark.usefixtures("published")
def test_the_pairs_of_tatoeba_share_no_side_with_its_test_set() -> None:
    everyday = PINNED_CORPORA["tatoeba"].splits
    assert set(everyday["train"].without) == {"tatoeba:val", "tatoeba:test_2020_tatoeba"}
    assert set(everyday["val"].without) == {"tatoeba:test_2020_tatoeba"}
    assert PINNED_CORPORA["manythings"].splits["train"].without == everyday["train"].without
    assert key_of("Ein  kind lacht!") == key_of("Ein Kind lacht.")


def test_a_pinned_text_stands_for_a_path_in_the_language_of_its_side(published: Path) -> None:
    more = {
        "again": {"src": "tiny:train", "tgt": "tiny:train"},
        "reverse": {"src": "tiny:train.en", "tgt": "tiny:train.de"},
    }
    data = data_of(more=more)
    assert texts_of(data, "train+again", sources=[published])[1] == (
        "Ein Mann schläft.",
        "A man sleeps.",
    )
    assert texts_of(data, "train+reverse")[1] == ("A man sleeps.", "Ein Mann schläft.")
    files = {"src": ["tiny:train", "tiny:everyday"], "tgt": ["tiny:train", "tiny:everyday"]}
    own = data_of(corpus="files", files={"train": files, "val": files})
    assert len(texts_of(own, "train", sources=[published])) == 4


def test_corpora_in_a_list_put_splits_of_one_name_together(
    published: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PINNED_CORPORA, "other", PinnedCorpus("", {"train": ROW.splits["train"]}))
    for name in ("train.de", "train.en"):
        monkeypatch.setitem(PINS, f"other/{name}", PINS[f"tiny/{name}"])
    data = data_of(corpus=["tiny", "other"])
    assert len(texts_of(data, "train", sources=[published])) == 4
    assert len(texts_of(data, "val")) == 1


def test_text_of_one_side_is_read_in_its_language_only(published: Path) -> None:
    more = {"mono": {"tgt": "tiny:captions", "translate_with": "runs/reverse"}}
    text = monolingual_text(data_of(more=more), "mono", sources=[published])
    assert (text.side, list(text.lines())) == ("tgt", [b"A cat.\n", b"A cow.\n"])
    german = {"mono": {"src": "tiny:captions", "translate_with": "runs/forward"}}
    with pytest.raises(ConfigError, match="'de'"):
        monolingual_text(data_of(more=german), "mono", sources=[published])


@pytest.mark.usefixtures("published")
@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"corpus": "tiny:train"}, "multi30k"),
        ({"corpus": ["tiny", "sample"]}, "sample"),
        ({"corpus": ["tiny", "tiny"]}, "tiny"),
        ({"corpus": []}, "sample"),
        ({"splits": ["train", "val", "tset"]}, "test"),
        ({"splits": ["train", "val", "captions"]}, "captions"),
        ({"more": {"x": {"src": "tiny:tran", "tgt": "tiny:train"}}}, "train"),
        ({"more": {"x": {"src": "tiny:captions", "tgt": "tiny:captions"}}}, "tiny:captions"),
        ({"more": {"x": {"src": "a.de"}}}, "translate_with"),
    ],
)
def test_what_no_corpus_has_is_named(keys: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        data_of(**keys)


def test_altered_file_is_named_with_both_hashes(published: Path) -> None:
    published.joinpath("train.en.gz").write_bytes(b"altered")
    expected = rf"train\.en\.gz: .*{sha256(b'altered')}.*{PINS['tiny/train.en'].sha256}"
    with pytest.raises(DataError, match=expected):
        find_corpus(data_of(), sources=[published])
    published.joinpath("train.en.gz").write_bytes(gzip.compress(b"A dog runs.\n" * 1000)[:-9])
    with pytest.raises(DataError, match=r"train\.en\.gz"):
        find_corpus(data_of(), sources=[published])


def test_only_missing_files_are_fetched_and_none_offline(
    published: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[str] = []

    def fake_download(url: str, *, max_bytes: int) -> bytes:
        fetched.append(url)
        return PUBLISHED["train.en"].encode()

    monkeypatch.setattr(fetch, "download", fake_download)
    find_corpus(data_of(), sources=[published])
    (DOWNLOADS / "tiny" / "train.en").unlink()
    with pytest.raises(ResourceError, match=r"train\.en.*--from"):
        find_corpus(data_of(), offline=True)
    with pytest.raises(DataError, match=r"train\.en"):
        find_corpus(data_of(), sources=[published.parent])
    find_corpus(data_of())
    assert fetched == [PINS["tiny/train.en"].url]


def test_a_missing_file_of_the_sample_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"train\.de"):
        find_corpus(DataConfig(), sources=[tmp_path])


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


def fetched(server: Server, monkeypatch: pytest.MonkeyPatch) -> bytes:
    monkeypatch.setattr(fetch, "BACKOFF_S", 0)
    return download(server.url, max_bytes=len(CONTENT))


@pytest.mark.parametrize("trouble", ["short", "503", "429"])
def test_passing_trouble_is_retried(
    server: Server, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    server.answers = [trouble, trouble, "good"]
    assert fetched(server, monkeypatch) == CONTENT
    assert server.num_requests == 3


@pytest.mark.parametrize(
    ("trouble", "error", "named"),
    [
        ("wrong", DataError, sha256(BODIES["wrong"])),
        ("503", ResourceError, "--from"),
        ("404", ResourceError, "train.de.gz"),
        ("endless", DataError, "larger than"),
    ],
)
@pytest.mark.usefixtures("published")
def test_lasting_trouble_is_an_error_and_leaves_no_file(
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    trouble: str,
    error: type[Exception],
    named: str,
) -> None:
    server.answers = [trouble]
    monkeypatch.setattr(fetch, "BACKOFF_S", 0)
    monkeypatch.setitem(PINS, "tiny/train.de", Pin(sha256(CONTENT), server.url))
    with pytest.raises(error, match=named):
        find_corpus(data_of())
    assert not (tmp_path / DOWNLOADS).exists()


def test_a_proxy_that_does_not_answer_is_named_without_its_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetch, "BACKOFF_S", 0)
    monkeypatch.setenv("http_proxy", "http://me:secret@127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    with pytest.raises(ResourceError, match=r"127\.0\.0\.1:9: ") as failure:
        download("http://corpora.invalid/train.de.gz", max_bytes=1)
    assert "secret" not in str(failure.value)
