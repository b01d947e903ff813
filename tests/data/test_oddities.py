"""Spoilt corpora: each is named before anything is made, and sound ones are not."""

import logging
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import spanish

from mt_cli.config.schema import DataConfig, FilesConfig
from mt_cli.data.corpora import ParallelText
from mt_cli.data.oddities import log_oddities
from mt_cli.errors import DataError

SAMPLE = Path(__file__).parents[2] / "data" / "sample"
Lines = list[str]
Spoil = Callable[[Lines, Lines], tuple[Sequence[str | bytes], Sequence[str | bytes]]]


def sample(split: str, count: int = 1000) -> tuple[Lines, Lines]:
    """The first pairs of a split of the sample, German and English."""
    de, en = (
        SAMPLE.joinpath(f"{split}.{lang}").read_text(encoding="utf-8").splitlines()[:count]
        for lang in ("de", "en")
    )
    return de, en


def write(folder: Path, name: str, src: Sequence[str | bytes], tgt: Sequence[str | bytes]) -> ParallelText:
    folder.mkdir(exist_ok=True)
    for side, lines in (("src", src), ("tgt", tgt)):
        data = [line if isinstance(line, bytes) else line.encode() for line in lines]
        (folder / f"{name}.{side}").write_bytes(b"".join(line + b"\n" for line in data))
    return ParallelText.of(FilesConfig(src=(folder / f"{name}.src",), tgt=(folder / f"{name}.tgt",)))


def shuffled(lines: Lines) -> Lines:
    return random.Random(1).sample(lines, len(lines))


SPOILT: dict[str, tuple[Spoil, str]] = {
    "sides swapped": (lambda de, en: (en, de), "the sides are swapped: .* looks like en, and .* like de"),
    "target in the source's language": (
        lambda de, en: (de, shuffled(de)),
        "train.tgt: the target looks like de, and should be en",
    ),
    "source in the target's language": (
        lambda de, en: (shuffled(en), en),
        "train.src: the source looks like en, and should be de",
    ),
    "sources shuffled": (lambda de, en: (shuffled(de), en), "nothing to do with their targets"),
    "targets shuffled": (lambda de, en: (de, shuffled(en)), "nothing to do with their targets"),
    "sorted apart": (lambda de, en: (sorted(de), sorted(en)), "nothing to do with their targets"),
    "one line lost at the start": (lambda de, en: (de[1:], en[:-1]), "nothing to do with their targets"),
    "targets reversed": (lambda de, en: (de, en[::-1]), "nothing to do with their targets"),
    "one line lost in the middle": (
        lambda de, en: (3 * de + de[1:], 3 * en + en[:-1]),
        "from about line [0-9]+ on, .* nothing to do",
    ),
    "tabs in the source": (
        lambda de, en: ([f"{i}\t{line}" for i, line in enumerate(de)], en),
        "have a tab; files of columns are named .tsv",
    ),
    "tabs in the target": (lambda de, en: (de, [f"{line}\tx" for line in en]), "have a tab"),
    "a third copied": (lambda de, en: (de, [*de[:334], *en[334:]]), "33% of the pairs have the same text"),
    "30 % duplicates": (
        lambda de, en: ([*de, *de[:430]], [*en, *en[:430]]),
        "30% of the pairs repeat others",
    ),
    "a fifth cut short": (
        lambda de, en: (de, [line[:3] if i % 5 == 0 else 2 * line for i, line in enumerate(en)]),
        "20% of the pairs, one side is 3 times as long",
    ),
    "other numbers": (
        lambda de, en: (
            [f"{i} {line}" for i, line in enumerate(de)],
            [f"{i + 7} {line}" for i, line in enumerate(en)],
        ),
        "nothing to do with their targets",
    ),
}


def told(corpus: dict[str, ParallelText], caplog: pytest.LogCaptureFixture, languages: str = "de en") -> str:
    src_lang, tgt_lang = languages.split()
    log_oddities(corpus, DataConfig(src_lang=src_lang, tgt_lang=tgt_lang))
    return "\n".join(record.message for record in caplog.records if record.levelno >= logging.WARNING)


@pytest.mark.parametrize("name", SPOILT)
def test_what_is_odd_is_told(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    spoil, expected = SPOILT[name]
    warning = told({"train": write(tmp_path, "train", *spoil(*sample("train")))}, caplog)
    assert re.search(expected, warning), warning
    assert warning.count("\n") < 2


def test_validation_pairs_whose_sides_are_swapped_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    de, en = sample("val")
    corpus = {"train": write(tmp_path, "train", *sample("train")), "val": write(tmp_path, "val", en, de)}
    assert re.fullmatch(r"val: the sides are swapped: .*", told(corpus, caplog))


def test_a_side_that_is_not_utf8_is_refused_with_its_first_bad_line(tmp_path: Path) -> None:
    de, en = sample("train")
    first = next(i for i, line in enumerate(de, 1) if not line.isascii())
    spoilt = write(tmp_path, "train", [line.encode("latin-1") for line in de], en)
    first_is = f"of which number {first} is the first"
    told = rf"train\.src: .* lines are not valid UTF-8, {first_is}; .* iconv -f latin1"
    with pytest.raises(DataError, match=told):
        log_oddities({"train": spoilt}, DataConfig())


def test_the_same_text_on_both_sides_is_refused(tmp_path: Path) -> None:
    de, _ = sample("train")
    with pytest.raises(DataError, match="are the same text"):
        log_oddities({"train": write(tmp_path, "train", de, de)}, DataConfig())


def test_nothing_is_odd_about_sound_corpora(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    splits = {name: write(tmp_path / "sample", name, *sample(name)) for name in ("train", "val", "test")}
    es, en = map(list, zip(*spanish.pairs(), strict=True))
    assert told(splits, caplog) == ""
    assert told({"train": write(tmp_path / "spanish", "train", es, en)}, caplog, "es en") == ""


def test_five_pairs_are_shown_with_their_lines(tmp_path: Path) -> None:
    de, en = sample("train")
    corpus = {"train": write(tmp_path, "train", de, en)}
    heading, *shown = log_oddities(corpus, DataConfig()).split("\n")
    assert (heading, len(shown)) == ("some training pairs:", 5)
    for line in shown:
        number, pair = line.removeprefix("  line ").split(": ", 1)
        assert pair == f"{de[int(number) - 1][:70]}  |  {en[int(number) - 1][:70]}"
