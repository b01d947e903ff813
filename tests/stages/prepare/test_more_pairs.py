"""`[data.more]`: pairs to train on beside the corpus's own."""

from pathlib import Path

import pytest
from test_prepare import KINDS, PAIRS, Corpus, hashes

from mt_cli.config.load import parse_config
from mt_cli.config.schema import Config, MorePairsConfig
from mt_cli.data.prepared import open_prepared
from mt_cli.errors import ConfigError

MADE = [("Der Hund fällt.", "A dog falls."), ("Ein Tisch.", "A table."), ("", "Nothing.")]


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    corpus = Corpus(tmp_path)
    corpus.write("forward", MADE)
    corpus.write("back", MADE[:2])
    return corpus


def config_with(corpus: Corpus, kind: str = "bpe", **more: MorePairsConfig) -> Config:
    config = corpus.config(tokenizer=KINDS[kind])
    return config.model_copy(update={"data": config.data.model_copy(update={"more": more})})


def pairs_of(corpus: Corpus, name: str, **options: object) -> MorePairsConfig:
    return MorePairsConfig.model_validate(
        {"src": corpus.path(name, 0), "tgt": corpus.path(name, 1), **options}
    )


@pytest.mark.parametrize("kind", list(KINDS))
def test_they_follow_the_corpus_and_change_no_vocabulary(corpus: Corpus, kind: str) -> None:
    corpus.prepare(corpus.config(tokenizer=KINDS[kind]))
    alone = {
        name: digest for name, digest in hashes(corpus.out).items() if name.startswith("tokenizer/")
    }
    more = {"forward": pairs_of(corpus, "forward", share=0.5), "back": pairs_of(corpus, "back")}
    result = corpus.prepare(config_with(corpus, kind, **more))
    assert {k: v for k, v in hashes(corpus.out).items() if k.startswith("tokenizer/")} == alone
    prepared = open_prepared(corpus.out)
    train = prepared.split("train")
    assert train.portions == ((len(PAIRS) - 3, 1.0), (2, 0.5), (2, 1.0))
    assert len(train) == len(PAIRS) - 3 + 4
    decoded = prepared.tokenizers.src.decode([train.src[i].tolist() for i in range(len(train))])
    assert decoded[: len(PAIRS) - 3] == [src for src, _ in PAIRS[:-3]]
    # The lines stay the corpus's own, which `evaluate --split train` scores against.
    assert prepared.lines("train", "src") == [src for src, _ in PAIRS[:-3]]
    assert prepared.lines("train", "tgt") == [tgt for _, tgt in PAIRS[:-3]]
    report = result.report.splits
    assert list(report) == ["train", "train+forward", "train+back", "val", "test"]
    assert (report["train"].pairs, report["train+forward"].pairs) == (len(PAIRS) - 3, 2)
    assert report["train+forward"].dropped == {"empty": 1}
    assert prepared.split("val").portions == ()


def test_a_tag_stands_before_every_source_that_has_text(corpus: Corpus) -> None:
    made = [
        ("Der Hund fällt.", "A dog falls."),
        ("\u00a0", "Space."),
        ("\u200b", "Less."),
        ("Ein Tisch.", "A table."),
    ]
    corpus.write("back", made)
    result = corpus.prepare(config_with(corpus, back=pairs_of(corpus, "back", tag="synthetisch")))
    prepared = open_prepared(corpus.out)
    train = prepared.split("train").src
    decoded = prepared.tokenizers.src.decode(
        [train[i].tolist() for i in range(len(PAIRS) - 3, len(train))]
    )
    assert decoded == ["synthetisch Der Hund fällt.", "synthetisch Ein Tisch."]
    assert result.report.splits["train+back"].dropped == {"empty": 2}


def test_a_test_line_that_is_trained_on_is_reported(corpus: Corpus) -> None:
    corpus.write("back", [PAIRS[-1], PAIRS[0], ("Neu.", "New.")])
    report = corpus.prepare(
        config_with(corpus, back=pairs_of(corpus, "back", tag="x"))
    ).report.splits
    alone = corpus.prepare(force=True).report.splits
    assert alone["val"].pairs_in_train == 0
    assert (report["val"].src_in_train, report["val"].pairs_in_train) == (1, 1)
    assert (report["train+back"].src_in_train, report["train+back"].pairs_in_train) == (1, 1)


def test_a_tag_among_words_is_refused() -> None:
    table = {"src": "a", "tgt": "b", "tag": "x"}
    with pytest.raises(ConfigError, match=r"data\.more\.forward\.tag needs subwords"):
        parse_config({"data": {"more": {"forward": table}}, "tokenizer": {"kind": "spacy"}})
