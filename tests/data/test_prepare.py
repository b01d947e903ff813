"""Preparing a corpus: what its folder holds, what prepares it again, and what is refused."""

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from mt_cli.config.load import parse_config
from mt_cli.config.schema import Config, DataConfig, FilesConfig, MorePairsConfig, TokenizerConfig
from mt_cli.data import prepare, scan
from mt_cli.data.prepare import PrepareResult, prepare_corpus
from mt_cli.data.prepared import open_prepared
from mt_cli.errors import ConfigError, DataError, UsageError
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
        config = config or self.config()
        return prepare_corpus(config, out=self.out, force=force, workers=workers)


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return Corpus(tmp_path)


def hashes(folder: Path) -> dict[str, str]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): sha256_file(path) for path in files}


@pytest.mark.parametrize("kind", list(KINDS))
def test_prepared_splits_decode_to_the_corpus(corpus: Corpus, kind: str) -> None:
    result = corpus.prepare(corpus.config(tokenizer=KINDS[kind]))
    prepared = open_prepared(result.folder)
    train = prepared.split("train")
    assert result.is_new
    src_ids = [train.src[i].tolist() for i in range(len(train))]
    tgt_ids = [train.tgt[i].tolist() for i in range(len(train))]
    assert prepared.tokenizers.src.decode(src_ids) == [src for src, _ in PAIRS[:-3]]
    assert prepared.tokenizers.tgt.decode(tgt_ids) == [tgt for _, tgt in PAIRS[:-3]]
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


def test_damaged_result_is_prepared_again(corpus: Corpus) -> None:
    corpus.prepare()
    (corpus.out / "val.src.txt").write_text("altered")
    assert corpus.prepare().is_new
    open_prepared(corpus.out)


def test_workers_change_no_byte(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "PAIRS_PER_JOB", 4)
    config = corpus.config(max_len=20)
    corpus.prepare(config)
    alone = hashes(corpus.out)
    corpus.prepare(config, workers=2, force=True)
    assert hashes(corpus.out) == alone


@pytest.mark.parametrize("pairs", [PAIRS, PAIRS[:-4]], ids=["longer", "shorter"])
def test_a_corpus_that_changes_meanwhile_is_refused(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch, pairs: list[tuple[str, str]]
) -> None:
    encode = prepare.encode_split

    def change_and_encode(*args: object, **options: object) -> dict[str, Counter[str]]:
        corpus.write("train", pairs)
        return encode(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(prepare, "encode_split", change_and_encode)
    with pytest.raises(DataError, match="train changed while"):
        corpus.prepare()
    assert not corpus.out.exists()


@pytest.mark.parametrize("unescape", [False, True])
def test_lines_of_a_test_set_are_as_many_as_its_pairs(corpus: Corpus, unescape: bool) -> None:
    corpus.write("test", [("Der Hund.", "The&#10;dog."), ("Der Ball.", "The&NewLine;ball.")])
    tables = corpus.config().model_dump(mode="json", exclude_none=True)
    tables["data"]["unescape"] = unescape
    corpus.prepare(parse_config(tables))
    lines = open_prepared(corpus.out).lines("test", "tgt")
    expected = ["The dog.", "The ball."] if unescape else ["The&#10;dog.", "The&NewLine;ball."]
    assert lines == expected


@pytest.mark.parametrize("kind", list(KINDS))
def test_group_size_changes_no_byte(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    config = corpus.config(tokenizer=KINDS[kind])
    corpus.prepare(config)
    whole = hashes(corpus.out)
    monkeypatch.setattr(scan, "PAIRS_PER_JOB", 4)
    corpus.prepare(config, force=True)
    assert hashes(corpus.out) == whole


def test_failure_leaves_the_old_data_alone(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus.prepare()
    before = hashes(corpus.out)
    monkeypatch.setattr(prepare, "complete_prepared", lambda *args, **options: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        corpus.prepare(force=True)
    assert hashes(corpus.out) == before
    assert list(corpus.out.parent.glob("[!.]*")) == [corpus.out]


def test_folder_of_something_else_is_not_replaced(corpus: Corpus) -> None:
    corpus.out.mkdir(parents=True)
    (corpus.out / "diary.txt").write_text("dear")
    with pytest.raises(UsageError, match=re.escape(str(corpus.out))):
        corpus.prepare(force=True)
    assert (corpus.out / "diary.txt").read_text() == "dear"


@pytest.mark.parametrize("split", ["train", "test"])
def test_unequal_files_are_told_with_both_counts(corpus: Corpus, split: str) -> None:
    with corpus.path(split, 1).open("a") as file:
        file.write("one more\n")
    with pytest.raises(DataError, match=rf"{split}\.en: \d+ .*{split}\.de \D*\d+"):
        corpus.prepare()
    assert not corpus.out.exists()


def test_limit_that_drops_everything_is_told(corpus: Corpus) -> None:
    with pytest.raises(DataError, match="'too long': 15"):
        corpus.prepare(corpus.config(max_len=1))


def test_a_corpus_in_another_encoding_is_refused(corpus: Corpus) -> None:
    corpus.path("train", 0).write_bytes("Ein Mädchen hört zu.\n".encode("latin1") * 15)
    with pytest.raises(DataError, match=r"train\.de: .*15 of 15 .*iconv"):
        corpus.prepare()


# [data.more]

NUM_TRAIN = len(PAIRS) - 3


def config_with(corpus: Corpus, *, kind: str = "bpe", **more: MorePairsConfig) -> Config:
    config = corpus.config(tokenizer=KINDS[kind])
    return config.model_copy(update={"data": config.data.model_copy(update={"more": more})})


def more_pairs(
    corpus: Corpus, name: str, pairs: list[tuple[str, str]], **options: object
) -> MorePairsConfig:
    corpus.write(name, pairs)
    files = {"src": corpus.path(name, 0), "tgt": corpus.path(name, 1)}
    return MorePairsConfig.model_validate({**files, **options})


@pytest.mark.parametrize("kind", list(KINDS))
def test_more_pairs_follow_the_corpus_and_change_no_vocabulary(corpus: Corpus, kind: str) -> None:
    corpus.prepare(corpus.config(tokenizer=KINDS[kind]))
    alone = hashes(corpus.out / "tokenizer")
    made = [("Der Hund fällt.", "A dog falls."), ("Ein Tisch.", "A table."), ("", "Nothing.")]
    more = {
        "forward": more_pairs(corpus, "forward", made, share=0.5),
        "back": more_pairs(corpus, "back", made[:2]),
    }
    report = corpus.prepare(config_with(corpus, kind=kind, **more)).report.splits
    assert hashes(corpus.out / "tokenizer") == alone
    prepared = open_prepared(corpus.out)
    train = prepared.split("train")
    assert train.portions == ((NUM_TRAIN, 1.0), (2, 0.5), (2, 1.0))
    assert len(train) == NUM_TRAIN + 4
    # The lines stay the corpus's own, which `evaluate --split train` scores against.
    assert prepared.lines("train", "src") == [src for src, _ in PAIRS[:-3]]
    assert prepared.split("val").portions == ()
    assert list(report) == ["train", "train+forward", "train+back", "val", "test"]
    assert (report["train"].pairs, report["train+forward"].pairs) == (NUM_TRAIN, 2)
    assert report["train+forward"].dropped == {"empty": 1}


def test_a_tag_stands_before_every_source_that_has_text(corpus: Corpus) -> None:
    made = [("Der Hund fällt.", "A dog falls."), ("\u200b", "Less."), ("Ein Tisch.", "A table.")]
    back = more_pairs(corpus, "back", made, tag="synthetisch")
    report = corpus.prepare(config_with(corpus, back=back)).report.splits
    prepared = open_prepared(corpus.out)
    train = prepared.split("train").src
    ids = [train[i].tolist() for i in range(NUM_TRAIN, len(train))]
    decoded = prepared.tokenizers.src.decode(ids)
    assert decoded == ["synthetisch Der Hund fällt.", "synthetisch Ein Tisch."]
    assert report["train+back"].dropped == {"empty": 1}


def test_a_test_line_that_is_trained_on_is_reported(corpus: Corpus) -> None:
    assert corpus.prepare().report.splits["val"].pairs_in_train == 0
    back = more_pairs(corpus, "back", [PAIRS[-1], PAIRS[0], ("Neu.", "New.")], tag="x")
    report = corpus.prepare(config_with(corpus, back=back)).report.splits
    assert (report["val"].src_in_train, report["val"].pairs_in_train) == (1, 1)
    assert (report["train+back"].src_in_train, report["train+back"].pairs_in_train) == (1, 1)


def test_a_tag_among_words_is_refused() -> None:
    table = {"src": "a", "tgt": "b", "tag": "x"}
    with pytest.raises(ConfigError, match=r"data\.more\.forward\.tag"):
        parse_config({"data": {"more": {"forward": table}}, "tokenizer": {"kind": "spacy"}})


def test_a_held_out_split_has_no_tag_though_more_pairs_have_its_name(corpus: Corpus) -> None:
    made = more_pairs(corpus, "made", PAIRS[:2], tag="synthetisch")
    corpus.prepare(config_with(corpus, val=made))
    prepared = open_prepared(corpus.out)
    val = prepared.split("val").src
    decoded = prepared.tokenizers.src.decode([val[i].tolist() for i in range(len(val))])
    assert not any("synthetisch" in text for text in decoded)
