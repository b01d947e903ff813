"""Pairs that are left out by their text: which, how many, and that nothing is learned from them."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from mt_cli.config.load import parse_config
from mt_cli.config.schema import Config, FilterConfig
from mt_cli.data.prepare import prepare_corpus
from mt_cli.data.prepared import open_prepared
from mt_cli.data.scan import drop_reason
from mt_cli.errors import ConfigError, DataError
from mt_cli.text.tokenizers import TextOptions

GOOD = [
    ("Ein Hund läuft über die Wiese.", "A dog runs across the meadow."),
    ("Zwei Männer stehen vor einem alten Haus.", "Two men stand in front of an old house."),
    ("Die Frau kauft Brot in der Stadt.", "The woman buys bread in the city."),
]
BAD = {
    "duplicates": GOOD[0],
    "copies": ("Sonderwort heute", "Sonderwort heute"),
    "max_ratio": ("Ja.", "The answer to this question is most certainly yes."),
    "min_chars": ("", "."),
    "max_chars": ("Wort " * 30, "word " * 30),
    "languages": ("Une femme achète du pain dans la ville.", "A woman buys bread in the city."),
}
SWITCHES = ("duplicates", "copies", "languages")
FILTER = {**dict.fromkeys(SWITCHES, True), "max_ratio": 3.0, "min_chars": 3, "max_chars": 120}


def config_of(folder: Path, pairs: list[tuple[str, str]], kept: Mapping[str, object]) -> Config:
    for name, split in (("train", pairs), ("val", [*GOOD, BAD["copies"]])):
        text = "".join(f"{src}\t{tgt}\n" for src, tgt in split)
        (folder / f"{name}.tsv").write_text(text, encoding="utf-8")
    files = {
        name: {"src": f"{folder / name}.tsv", "tgt": f"{folder / name}.tsv"}
        for name in ("train", "val")
    }
    data = {"corpus": "files", "splits": ["train", "val"], "files": files, "filter": kept}
    tokenizer = {"kind": "spacy", "min_freq": 1, "joint": False}
    return parse_config({"data": data, "tokenizer": tokenizer, "model": {"tie": "none"}})


@pytest.mark.parametrize("reason", list(BAD)[1:3] + list(BAD)[4:])
def test_each_key_leaves_out_its_pairs_alone(reason: str) -> None:
    options, config = TextOptions("de", "en", lowercase=False), FilterConfig.model_validate(FILTER)
    src, tgt = (text.strip() for text in BAD[reason])
    assert drop_reason(src, tgt, config, options) == reason
    assert drop_reason(src, tgt, FilterConfig(), options) == ""
    assert [drop_reason(*pair, config, options) for pair in GOOD] == ["", "", ""]


def test_what_is_left_out_is_counted_and_teaches_nothing(tmp_path: Path) -> None:
    pairs = [*GOOD, *BAD.values(), GOOD[0]]
    report = prepare_corpus(config_of(tmp_path, pairs, FILTER), out=tmp_path / "out").report
    train, prepared = report.splits["train"], open_prepared(tmp_path / "out")
    expected = dict.fromkeys(BAD, 1) | {"duplicates": 2, "empty": 1}
    del expected["min_chars"]  # the empty pair of them
    assert train.dropped == expected
    assert prepared.lines("train", "src") == [src for src, _ in GOOD]
    assert len(prepared.split("val")) == len(GOOD) + 1
    known = prepared.tokenizers.src.encode(["Sonderwort Hund"])[0]
    assert (known[0] == 1, known[1] == 1) == (True, False)


def test_a_pair_that_is_there_again_teaches_nothing_more(tmp_path: Path) -> None:
    pairs = [(f"Wort{i} geht.", f"Word{i} goes.") for i in range(30)]
    learned = []
    for name, repeats in (("once", []), ("again", pairs[:3] * 2)):
        (tmp_path / name).mkdir()
        config = config_of(tmp_path / name, [*pairs, *repeats], {"duplicates": True})
        tokenizer = config.tokenizer.model_copy(update={"kind": "bpe", "vocab_size": 290})
        config = config.model_copy(update={"tokenizer": tokenizer})
        prepare_corpus(config, out=tmp_path / name / "out")
        learned.append(open_prepared(tmp_path / name / "out").tokenizers.to_files())
    assert learned[0] == learned[1]


def test_repeats_are_found_across_the_parts_that_workers_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mt_cli.data.scan.PAIRS_PER_JOB", 2)
    rng = np.random.default_rng(0)
    pairs = [(f"Wort {n} heute", f"word {n} today") for n in rng.integers(0, 5, 12)]
    config = config_of(tmp_path, pairs, {"duplicates": True})
    prepare_corpus(config, out=tmp_path / "out")
    kept = open_prepared(tmp_path / "out").lines("train", "src")
    assert kept == list(dict.fromkeys(src for src, _ in pairs))


def test_a_filter_that_leaves_nothing_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"'train'.*min_chars"):
        prepare_corpus(config_of(tmp_path, GOOD, {"min_chars": 500}), out=tmp_path / "out")


@pytest.mark.parametrize("keys", [{"max_ratio": 0.5}, {"min_chars": 20, "max_chars": 10}])
def test_keys_that_would_leave_nothing_are_refused(tmp_path: Path, keys: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=r"data\.filter: max_"):
        config_of(tmp_path, GOOD, keys)


def test_what_is_left_out_gives_no_test_sentence_away(tmp_path: Path) -> None:
    pairs = [*GOOD, ("Ein Wort. " * 20, "A word. " * 20)]
    config = config_of(tmp_path, pairs, {"max_chars": 100, "duplicates": True})
    (tmp_path / "val.tsv").write_text(
        "".join(f"{src}\t{tgt}\n" for src, tgt in pairs[3:]), encoding="utf-8"
    )
    report = prepare_corpus(config, out=tmp_path / "out").report
    assert (report.splits["val"].src_in_train, report.splits["train"].duplicates) == (0, 0)
