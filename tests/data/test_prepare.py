"""Preparing a corpus: what its folder holds, what prepares it again, and what is refused."""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from damage import flip_a_bit
from small import BPE, UNIGRAM, WORDS, Pairs, config_of, write_pairs

from mt_cli.config.schema import Config
from mt_cli.data import prepare, scan
from mt_cli.data.encode import encode_split
from mt_cli.data.prepare import Inputs, prepare_corpus
from mt_cli.data.prepared import CorpusReport, Prepared, open_prepared
from mt_cli.errors import DataError, PreparedDataError, UsageError
from mt_cli.machine.files import sha256_of_files

NOUNS = ["Hund dog", "Ball ball", "Mann man", "Baum tree", "Tisch table", "Stuhl chair"]
VERBS = ["liegt lies", "steht stands", "fällt falls"]
PAIRS = [
    (f"Der {noun.split()[0]} {verb.split()[0]}.", f"The {noun.split()[1]} {verb.split()[1]}.")
    for noun in NOUNS
    for verb in VERBS
]
TRAIN = PAIRS[:-3]
each_kind = pytest.mark.parametrize("kind", [BPE, UNIGRAM, WORDS], ids=["bpe", "unigram", "words"])


class Corpus:
    """A small corpus of files, and the folder that it is prepared into."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.out = folder / "prepared" / "small"
        test = [PAIRS[0], PAIRS[-1], ("", "Nothing."), (PAIRS[1][0], "Other.")]
        self.splits: dict[str, Pairs] = {"train": TRAIN, "val": PAIRS[-3:], "test": test}

    def config(self, *, tokenizer: Mapping[str, object] = BPE, **data: object) -> Config:
        return config_of(self.folder, self.splits, tokenizer=tokenizer, **data)

    def prepare(
        self, config: Config | None = None, *, force: bool = False, workers: int = 1
    ) -> tuple[CorpusReport, bool]:
        config = config or self.config()
        return prepare_corpus(Inputs(config), self.out, force=force, workers=workers)

    @property
    def prepared(self) -> Prepared:
        return open_prepared(self.out)


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return Corpus(tmp_path)


@each_kind
def test_prepared_splits_decode_to_the_corpus(corpus: Corpus, kind: Mapping[str, object]) -> None:
    _, is_new = corpus.prepare(corpus.config(tokenizer=kind))
    prepared = corpus.prepared
    train, tokenizers = prepared.split("train"), prepared.tokenizers
    assert is_new
    for tokenizer, ids, side in ((tokenizers.src, train.src, 0), (tokenizers.tgt, train.tgt, 1)):
        sentences = [ids[i].tolist() for i in range(len(train))]
        assert tokenizer.decode(sentences) == [pair[side] for pair in TRAIN]
    assert prepared.lines("train", "tgt") == [tgt for _, tgt in TRAIN]


def test_report_counts_what_there_is(corpus: Corpus) -> None:
    corpus.splits["train"] = [*PAIRS, PAIRS[0], ("", "Nothing."), ("Der " * 50, "The")]
    report, _ = corpus.prepare(corpus.config(tokenizer=WORDS, max_len=40))
    train, test = report.splits["train"], report.splits["test"]
    assert (train.lines, train.pairs, train.duplicates) == (21, 19, 1)
    assert train.dropped == {"empty": 1, "too long": 1}
    assert train.src_in_train is None
    assert train.src.lengths == {"50": 4, "90": 4, "99": 4, "100": 4}
    assert (test.lines, test.pairs, test.dropped) == (4, 4, {})
    assert (test.src_in_train, test.pairs_in_train) == (3, 2)
    assert report.src_vocab_size == 4 + len(NOUNS) + len(VERBS) + 2


def test_test_lines_are_never_dropped(corpus: Corpus) -> None:
    corpus.splits["test"] = [("Der Hund liegt. " * 50, "x"), ("", ""), ("\u200b", "x")]
    corpus.prepare(corpus.config(max_len=40))
    assert len(corpus.prepared.split("test")) == 3


def change_input(corpus: Corpus) -> None:
    corpus.splits["val"] = PAIRS[-2:]


@pytest.mark.parametrize(
    ("change", "keys", "force", "expected"),
    [
        (repr, {}, False, False),
        (repr, {}, True, True),
        (repr, {"max_len": 50}, False, True),
        (change_input, {}, False, True),
        (lambda corpus: (corpus.out / "val.src.txt").write_text("altered"), {}, False, True),
    ],
    ids=["nothing", "force", "data", "input", "damage"],
)
def test_only_a_change_prepares_again(
    corpus: Corpus,
    change: Callable[[Corpus], object],
    keys: dict[str, Any],
    force: bool,
    expected: bool,
) -> None:
    corpus.prepare()
    before = (corpus.out / "manifest.json").stat().st_ino
    change(corpus)
    config = corpus.config(**keys)
    report, is_new = corpus.prepare(config, force=force)
    assert is_new == expected
    assert ((corpus.out / "manifest.json").stat().st_ino != before) == expected
    assert open_prepared(corpus.out, config).report() == report


@each_kind
def test_group_size_and_workers_change_no_byte(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch, kind: Mapping[str, object]
) -> None:
    augment = {"kinds": {"typos": 0.7, "punctuation": 0.4, "join": 0.2}}
    config = corpus.config(tokenizer=kind, max_len=20, augment=augment)
    corpus.prepare(config)
    whole = sha256_of_files(corpus.out)
    monkeypatch.setattr(scan, "PAIRS_PER_JOB", 4)
    corpus.prepare(config, force=True, workers=2)
    assert sha256_of_files(corpus.out) == whole


def test_a_corpus_that_changes_meanwhile_is_refused(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:

    def change_and_encode(*args: object, **options: object) -> dict[str, Counter[str]]:
        write_pairs(corpus.folder, "train", PAIRS)
        return encode_split(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(prepare, "encode_split", change_and_encode)
    with pytest.raises(DataError, match="train changed while"):
        corpus.prepare()
    assert not corpus.out.exists()


def test_a_corpus_that_changes_after_it_was_read_is_prepared_again(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:

    def encode_and_change(*args: object, **options: object) -> dict[str, Counter[str]]:
        dropped = encode_split(*args, **options)  # type: ignore[arg-type]
        write_pairs(corpus.folder, "train", PAIRS[1:])
        return dropped

    config = corpus.config()
    with monkeypatch.context() as patch:
        patch.setattr(prepare, "encode_split", encode_and_change)
        corpus.prepare(config)
    assert corpus.prepare(config)[1]
    assert corpus.prepared.lines("train", "src") == [src for src, _ in PAIRS[1:]]


def test_folder_of_something_else_is_not_replaced(corpus: Corpus) -> None:
    corpus.out.mkdir(parents=True)
    (corpus.out / "diary.txt").write_text("dear")
    with pytest.raises(UsageError, match=re.escape(str(corpus.out))):
        corpus.prepare(force=True)
    assert (corpus.out / "diary.txt").read_text() == "dear"


@pytest.mark.parametrize(
    ("name", "data", "max_len", "named"),
    [
        ("test.tgt", b"one\n", 100, r"test\.tgt: 1 "),
        ("train.src", b"Ein M\xe4dchen.\n" * 15, 100, r"train\.src: .*line 1; .*iconv"),
        ("none", b"", 1, "'too long': 15"),
    ],
    ids=["unequal lengths", "another encoding", "a limit that drops everything"],
)
def test_what_cannot_be_prepared_is_named_and_leaves_nothing(
    corpus: Corpus, name: str, data: bytes, max_len: int, named: str
) -> None:
    config = corpus.config(max_len=max_len)
    (corpus.folder / name).write_bytes(data)
    with pytest.raises(DataError, match=named):
        corpus.prepare(config)
    assert not corpus.out.exists()


def test_more_pairs_follow_the_corpus_and_change_no_vocabulary(corpus: Corpus) -> None:
    corpus.prepare()
    alone = corpus.prepared.tokenizers.to_files()
    made = [("Der Hund fällt.", "A dog falls."), ("Ein Tisch.", "A table."), ("", "Nothing.")]
    more = {
        "forward": {**write_pairs(corpus.folder, "forward", made), "share": 0.5},
        "val": write_pairs(corpus.folder, "back", made[:2]),  # its name is also a split's
    }
    report, _ = corpus.prepare(corpus.config(more=more))
    prepared = corpus.prepared
    train = prepared.split("train")
    assert prepared.tokenizers.to_files() == alone
    assert train.portions == ((len(TRAIN), 1.0), (2, 0.5), (2, 1.0))
    # The lines stay the corpus's own, which `evaluate --split train` scores against.
    assert prepared.lines("train", "src") == [src for src, _ in TRAIN]
    assert list(report.splits) == ["train", "train+forward", "train+val", "val", "test"]
    assert report.splits["train+forward"].dropped == {"empty": 1}


# Prepared data that are read


def test_lines_are_those_of_the_corpus(corpus: Corpus) -> None:
    config = corpus.config()
    text = "  ein\u00a0Hund  \n\nder\u2028Ball\r\nder\x0bMann"
    (corpus.folder / "test.src").write_bytes(text.encode())
    corpus.prepare(config)
    lines = ["  ein\u00a0Hund  ", "", "der\u2028Ball", "der\x0bMann"]
    assert corpus.prepared.lines("test", "src") == lines


@pytest.mark.parametrize("name", ["train.src.npy", "tokenizer/joint.model", "report.json"])
def test_damaged_data_are_refused(corpus: Corpus, name: str) -> None:
    corpus.prepare()
    flip_a_bit(corpus.out / name)
    with pytest.raises(PreparedDataError, match=f"{name}: "):
        open_prepared(corpus.out)
    (corpus.out / "manifest.json").write_text('{"format": 99}')
    with pytest.raises(PreparedDataError, match=r"manifest\.json: "):
        open_prepared(corpus.out)


def test_other_config_is_answered_with_the_keys_that_differ(corpus: Corpus) -> None:
    corpus.prepare()
    other = corpus.config(tokenizer={**BPE, "vocab_size": 400}, lowercase=True)
    with pytest.raises(
        PreparedDataError, match=r"data\.lowercase .*; tokenizer\.vocab_size .*300.*400"
    ):
        open_prepared(corpus.out, other)
