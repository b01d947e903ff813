"""The `prepare` command: what its folder holds, and what it refuses."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from mt_cli.config.load import parse_config
from mt_cli.config.schema import Config, DataConfig, FilesConfig, TokenizerConfig
from mt_cli.data import prepare as stage
from mt_cli.data import prepare as survey
from mt_cli.data.prepare import PrepareResult, prepare_corpus
from mt_cli.data.prepared import open_prepared
from mt_cli.errors import DataError, UsageError
from mt_cli.machine.files import sha256_file

NOUNS = ["Hund dog", "Ball ball", "Mann man", "Baum tree", "Tisch table", "Stuhl chair"]
VERBS = ["liegt lies", "steht stands", "fällt falls"]
PAIRS = [
    (f"Der {noun.split()[0]} {verb.split()[0]}.", f"The {noun.split()[1]} {verb.split()[1]}.")
    for noun in NOUNS
    for verb in VERBS
]
KINDS = {
    "bpe": TokenizerConfig(kind="bpe", vocab_size=300),
    "unigram": TokenizerConfig(kind="unigram", vocab_size=300, joint=False),
    "spacy": TokenizerConfig(kind="spacy", min_freq=1, joint=False),
}


class Corpus:
    """A small corpus of files, and the folder that it is prepared into."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.out = folder / "prepared" / "small"
        self.write("train", PAIRS[:-3])
        self.write("val", PAIRS[-3:])
        self.write("test", [PAIRS[0], PAIRS[-1], ("", "Nothing."), (PAIRS[1][0], "Other.")])

    def write(self, split: str, pairs: list[tuple[str, str]]) -> None:
        for side in (0, 1):
            lines = "".join(f"{pair[side]}\n" for pair in pairs)
            self.path(split, side).write_text(lines, encoding="utf-8")

    def path(self, split: str, side: int) -> Path:
        return self.folder / f"{split}.{('de', 'en')[side]}"

    def config(self, *, tokenizer: TokenizerConfig = KINDS["bpe"], max_len: int = 100) -> Config:
        splits = ("train", "val", "test")
        files = {
            name: FilesConfig(src=(self.path(name, 0),), tgt=(self.path(name, 1),))
            for name in splits
        }
        data = DataConfig(corpus="files", splits=splits, files=files, max_len=max_len)
        return Config.model_validate(
            {"data": data, "tokenizer": tokenizer, "model": {"tie": "none"}}, strict=False
        )

    def prepare(
        self, config: Config | None = None, *, force: bool = False, workers: int = 1
    ) -> PrepareResult:
        return prepare_corpus(
            config or self.config(),
            out=self.out,
            force=force,
            workers=workers,
        )


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return Corpus(tmp_path)


def hashes(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): sha256_file(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize("kind", list(KINDS))
def test_prepared_splits_decode_to_the_corpus(corpus: Corpus, kind: str) -> None:
    result = corpus.prepare(corpus.config(tokenizer=KINDS[kind]))
    prepared = open_prepared(result.folder)
    train = prepared.split("train")
    assert result.is_new
    assert prepared.tokenizers.src.decode([train.src[i].tolist() for i in range(len(train))]) == [
        src for src, _ in PAIRS[:-3]
    ]
    assert prepared.tokenizers.tgt.decode([train.tgt[i].tolist() for i in range(len(train))]) == [
        tgt for _, tgt in PAIRS[:-3]
    ]
    assert prepared.lines("train", "tgt") == [tgt for _, tgt in PAIRS[:-3]]


def test_report_counts_what_there_is(corpus: Corpus) -> None:
    corpus.write("train", [*PAIRS, PAIRS[0], ("", "Nothing."), ("Der " * 50, "The")])
    report = corpus.prepare(corpus.config(tokenizer=KINDS["spacy"], max_len=40)).report
    train, test = report.splits["train"], report.splits["test"]
    assert (train.lines, train.pairs, train.duplicates) == (21, 19, 1)
    assert train.dropped == {"empty": 1, "too long": 1}
    assert train.src_in_train is None
    assert train.src.lengths == {"50": 4, "90": 4, "99": 4, "100": 4}
    assert (test.lines, test.pairs, test.dropped) == (4, 4, {})
    assert (test.src_in_train, test.pairs_in_train) == (3, 2)
    assert report.src_vocab_size == 4 + len(NOUNS) + len(VERBS) + 2


def test_test_lines_are_never_dropped(corpus: Corpus) -> None:
    corpus.write("test", [("Der Hund liegt. " * 50, "x"), ("", ""), ("\u200b", "x")])
    corpus.prepare(corpus.config(max_len=40))
    assert len(open_prepared(corpus.out).split("test")) == 3


def test_second_run_does_nothing(corpus: Corpus) -> None:
    first = corpus.prepare()
    before = (corpus.out / "manifest.json").stat().st_ino
    second = corpus.prepare()
    assert not second.is_new
    assert second.report == first.report
    assert (corpus.out / "manifest.json").stat().st_ino == before


@pytest.mark.parametrize(
    "change",
    [
        lambda corpus: corpus.prepare(force=True),
        lambda corpus: corpus.prepare(corpus.config(max_len=50)),
        lambda corpus: corpus.prepare(corpus.config(tokenizer=KINDS["spacy"])),
        lambda corpus: (corpus.write("val", PAIRS[-2:]), corpus.prepare())[1],
    ],
    ids=["force", "data", "tokenizer", "input"],
)
def test_change_prepares_again(corpus: Corpus, change: Callable[[Corpus], PrepareResult]) -> None:
    corpus.prepare()
    assert change(corpus).is_new


def test_damaged_result_is_prepared_again(corpus: Corpus, caplog: pytest.LogCaptureFixture) -> None:
    corpus.prepare()
    (corpus.out / "val.src.txt").write_text("altered")
    assert corpus.prepare().is_new
    assert "preparing again: " in caplog.text
    open_prepared(corpus.out)


@pytest.mark.parametrize("kind", ["bpe", pytest.param("spacy", marks=pytest.mark.slow)])
def test_workers_change_no_byte(corpus: Corpus, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(survey, "PAIRS_PER_JOB", 4)
    config = corpus.config(tokenizer=KINDS[kind], max_len=20)
    corpus.prepare(config)
    alone = hashes(corpus.out)
    corpus.prepare(config, workers=2, force=True)
    assert hashes(corpus.out) == alone


@pytest.mark.parametrize("kind", list(KINDS))
def test_group_size_changes_no_byte(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    config = corpus.config(tokenizer=KINDS[kind])
    corpus.prepare(config)
    whole = hashes(corpus.out)
    monkeypatch.setattr(survey, "PAIRS_PER_JOB", 4)
    corpus.prepare(config, force=True)
    assert hashes(corpus.out) == whole


def test_gzipped_files_give_the_same_data(corpus: Corpus) -> None:
    corpus.prepare()
    plain = open_prepared(corpus.out).sha256
    for path in [corpus.path(split, side) for split in ("train", "val", "test") for side in (0, 1)]:
        path.write_bytes(gzip.compress(path.read_bytes()))
    corpus.prepare()
    assert open_prepared(corpus.out).sha256 == plain


def test_failure_leaves_the_old_data_alone(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus.prepare()
    before = hashes(corpus.out)
    monkeypatch.setattr(stage, "complete_prepared", lambda *args, **options: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        corpus.prepare(force=True)
    assert hashes(corpus.out) == before
    assert list(corpus.out.parent.glob("[!.]*")) == [corpus.out]


def test_folder_of_something_else_is_not_replaced(corpus: Corpus) -> None:
    corpus.out.mkdir(parents=True)
    (corpus.out / "diary.txt").write_text("dear")
    with pytest.raises(
        UsageError, match=r"exists and is no prepared data \(no manifest.json in it\)"
    ):
        corpus.prepare(force=True)
    assert (corpus.out / "diary.txt").read_text() == "dear"


@pytest.mark.parametrize("split", ["train", "test"])
def test_unequal_files_are_told_with_both_counts(corpus: Corpus, split: str) -> None:
    with corpus.path(split, 1).open("a") as file:
        file.write("one more\n")
    with pytest.raises(
        DataError, match=rf"{split}\.en: \d+ lines, but .*{split}\.de has \d+; the files must"
    ):
        corpus.prepare()
    assert not corpus.out.exists()


def test_limit_that_drops_everything_is_told(corpus: Corpus) -> None:
    with pytest.raises(DataError, match=r"every training pair was dropped: \{'too long': 15\}"):
        corpus.prepare(corpus.config(max_len=1))


def test_a_corpus_in_another_encoding_is_refused(tmp_path: Path) -> None:
    corpus = tmp_path / "latin"
    corpus.mkdir()
    line = "Ein Mädchen hört zu.\n".encode("latin1")
    for split in ("train", "val"):
        (corpus / f"{split}.de").write_bytes(line * 20)
        (corpus / f"{split}.en").write_text("A girl is listening.\n" * 20)
    files = {
        s: {"src": str(corpus / f"{s}.de"), "tgt": str(corpus / f"{s}.en")}
        for s in ("train", "val")
    }
    config = parse_config({"data": {"corpus": "files", "splits": ["train", "val"], "files": files}})
    with pytest.raises(
        DataError,
        match=r"train.de: not UTF-8: 20 of 20 lines .* line 1; .*Mädchen.* iconv -f cp1252",
    ):
        prepare_corpus(config, out=tmp_path / "out")
