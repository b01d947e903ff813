"""Spoilt corpora: each is named before anything is made, and sound ones are not.

What a warning is about is known by a word of it and by the file or the share that it names.
"""

import logging
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import spanish

from mt_cli.config.schema import DataConfig, FilesConfig
from mt_cli.data.checks import log_problems
from mt_cli.data.corpora import ParallelText
from mt_cli.data.prepare import warn_of_leaks
from mt_cli.errors import DataError

SAMPLE = Path(__file__).parents[2] / "data" / "sample"
Lines = list[str]
Change = Callable[[str], str]
Spoil = Callable[[Lines, Lines], tuple[Sequence[str | bytes], Sequence[str | bytes]]]


def sample(split: str, count: int = 1000) -> tuple[Lines, Lines]:
    """The first pairs of a split of the sample, German and English."""
    paths = [SAMPLE / f"{split}.{lang}" for lang in ("de", "en")]
    de, en = (path.read_text(encoding="utf-8").splitlines()[:count] for path in paths)
    return de, en


TRAIN = sample("train")


def write(
    folder: Path, name: str, src: Sequence[str | bytes], tgt: Sequence[str | bytes]
) -> ParallelText:
    folder.mkdir(exist_ok=True)
    for side, lines in (("src", src), ("tgt", tgt)):
        data = [line if isinstance(line, bytes) else line.encode() for line in lines]
        (folder / f"{name}.{side}").write_bytes(b"".join(line + b"\n" for line in data))
    files = FilesConfig(src=(folder / f"{name}.src",), tgt=(folder / f"{name}.tgt",))
    return ParallelText.of(files)


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Callable[..., str]:
    """Checks a corpus; gives the warnings, a line each."""

    def check(
        corpus: dict[str, ParallelText], src_lang: str = "de", *, lowercase: bool = False
    ) -> str:
        caplog.clear()
        data = DataConfig(src_lang=src_lang, tgt_lang="en", lowercase=lowercase)
        log_problems(corpus, data)
        warn_of_leaks(corpus, data)
        warnings = [each for each in caplog.records if each.levelno >= logging.WARNING]
        return "\n".join(each.message for each in warnings)

    return check


Told = Callable[..., str]


def shuffled(lines: Lines) -> Lines:
    return random.Random(1).sample(lines, len(lines))


def numbered(lines: Lines, start: int = 0) -> Lines:
    return [f"{i} {line}" for i, line in enumerate(lines, start)]


def some(lines: Lines, share: float, change: Change) -> Lines:
    """`lines`, of which `change` changes that share, spread over all."""
    apart = round(1 / share)
    return [change(line) if i % apart == 0 else line for i, line in enumerate(lines)]


def cut_short(lines: Lines) -> Lines:
    return [line[:3] if i % 5 == 0 else 2 * line for i, line in enumerate(lines)]


MISALIGNED = "do not match"
SPOILT: dict[str, tuple[Spoil, str]] = {
    "sides swapped": (lambda de, en: (en, de), "swapped"),
    "target in the source's language": (lambda de, en: (de, shuffled(de)), r"train\.tgt: .* de"),
    "source in the target's language": (lambda de, en: (shuffled(en), en), r"train\.src: .* en"),
    "sources shuffled": (lambda de, en: (shuffled(de), en), MISALIGNED),
    "sorted apart": (lambda de, en: (sorted(de), sorted(en)), MISALIGNED),
    "one line lost at the start": (lambda de, en: (de[1:], en[:-1]), MISALIGNED),
    "one line lost in the middle": (
        lambda de, en: (3 * de + de[1:], 3 * en + en[:-1]),
        "line [0-9]+ .* do not match",
    ),
    "other numbers": (lambda de, en: (numbered(de), numbered(en, 7)), MISALIGNED),
    "tabs in the source": (lambda de, en: (some(de, 1, "{}\tx".format), en), r"tab.*\.tsv"),
    "tabs in the target": (lambda de, en: (de, some(en, 1, "{}\tx".format)), "tab"),
    "a third copied": (lambda de, en: (de, [*de[:334], *en[334:]]), "33%"),
    "30 % duplicates": (lambda de, en: ([*de, *de[:430]], [*en, *en[:430]]), "30%"),
    "a fifth cut short": (lambda de, en: (de, cut_short(en)), "20%"),
}


@pytest.mark.parametrize("name", SPOILT)
def test_what_is_odd_is_told(name: str, tmp_path: Path, told: Told) -> None:
    spoil, expected = SPOILT[name]
    warning = told({"train": write(tmp_path, "train", *spoil(*TRAIN))})
    assert re.search(expected, warning), warning
    assert warning.count("\n") < 2


def test_nothing_is_odd_about_sound_corpora(tmp_path: Path, told: Told) -> None:
    splits = {name: write(tmp_path, name, *sample(name)) for name in ("train", "val", "test")}
    assert told(splits) == ""
    es, en = map(list, zip(*spanish.pairs(), strict=True))
    assert told({"train": write(tmp_path / "spanish", "train", es, en)}, "es") == ""


def test_a_side_that_is_not_utf8_is_refused_with_its_first_bad_line(tmp_path: Path) -> None:
    de, en = TRAIN
    first = next(i for i, line in enumerate(de, 1) if not line.isascii())
    spoilt = write(tmp_path, "train", [line.encode("latin-1") for line in de], en)
    with pytest.raises(DataError, match=rf"train\.src: .* line {first}; ") as caught:
        log_problems({"train": spoilt}, DataConfig())
    assert "iconv" in str(caught.value)


def test_five_pairs_are_shown_with_their_lines(tmp_path: Path) -> None:
    de, en = TRAIN
    corpus = {"train": write(tmp_path, "train", de, en)}
    _, *shown = re.split(r"line (\d+): ", log_problems(corpus, DataConfig()))
    assert len(shown) == 2 * 5
    for number, pair in zip(shown[::2], shown[1::2], strict=True):
        line = int(number) - 1
        assert pair.startswith(de[line][:30])
        assert en[line][:30] in pair


# What is odd from some share of the lines on: each with a corpus that has a little less of it


def with_entities(line: str) -> str:
    return line.replace(".", " &amp; so on.")


def tokenised(line: str) -> str:
    return f"{line.rstrip('.')} ."


@pytest.mark.parametrize(
    ("change", "share", "expected"),
    [
        (with_entities, 0.02, "2% .* markup .*lines 1, 51, 101 "),
        ("<b>{}</b>".format, 0.02, "2% .* markup"),
        (lambda line: line.replace(" ", " @-@ "), 0.02, "2% .* markup"),
        (with_entities, 0.005, None),
        ("{} 3 < 5 > 4 <3 AT&T; R&D".format, 0.5, None),
        (tokenised, 0.25, "25% .* tokenized"),
        (tokenised, 0.1, None),
    ],
    ids=["entities", "tags", "Moses", "few entities", "signs", "tokenised", "little tokenised"],
)
def test_text_that_a_tool_has_changed_is_told(
    change: Change, share: float, expected: str | None, tmp_path: Path, told: Told
) -> None:
    de, en = TRAIN
    for sides in ((some(de, share, change), en), (de, some(en, share, change))):
        warning = told({"train": write(tmp_path, "train", *sides)})
        assert bool(re.search(expected, warning)) if expected else warning == ""


def test_references_that_no_translation_can_equal_are_told_where_scores_are_made(
    tmp_path: Path, told: Told
) -> None:
    de, en = sample("val", 100)
    splits = {"train": write(tmp_path, "train", *TRAIN)}
    decomposed = some(en, 0.02, "{} Cafe\u0301.".format)
    splits["val"] = write(tmp_path, "val", de, decomposed)
    assert told(splits) == ""  # two lines say nothing
    splits["val"] = write(tmp_path, "val", de, some(decomposed, 0.05, "\u200b{}".format))
    assert re.fullmatch(r"val: .*val\.tgt: 6% .*NFC.*", told(splits))
    decomposed = some(TRAIN[1], 0.5, "{} Cafe\u0301.".format)
    assert told({"train": write(tmp_path, "train", TRAIN[0], decomposed)}) == ""


@pytest.mark.parametrize(
    ("name", "first", "expected"),
    [
        ("a.tsv", "German\tEnglish", "German, English"),
        ("a.csv", "de,en", "de, en"),
        ("a.tsv", "Ein Hund bellt.\tA dog barks.", None),
    ],
)
def test_a_first_line_that_names_columns_is_told(
    name: str, first: str, expected: str | None, tmp_path: Path, told: Told
) -> None:
    template = "{}\t{}" if name.endswith("tsv") else '"{}","{}"'
    rows = [template.format(de, en) for de, en in zip(*TRAIN, strict=True)]
    path = tmp_path / name
    path.write_text("\n".join([first, *rows]), encoding="utf-8")
    warning = told({"train": ParallelText.of(FilesConfig(src=(path,), tgt=(path,)))})
    assert (f"{path}: line 1 " in warning) == (expected is not None)
    assert (expected or "") in warning


def test_held_out_sources_that_training_has_too_are_told_with_their_number(
    tmp_path: Path, told: Told
) -> None:
    (de, en), (val_de, val_en) = TRAIN, sample("val", 100)
    corpus = {"train": write(tmp_path, "train", de, en)}
    known = de[:4]
    # Each counts once, however often it is in training, and however it is spaced and ends.
    alike = [
        known[0].upper(),
        known[1].removesuffix("."),
        known[2].replace(" ", "  "),
        known[3].replace(".", " !"),
    ]
    for lines in (known, alike):
        corpus["val"] = write(tmp_path, "val", val_de[:96] + lines, val_en)
        assert re.fullmatch(r"val: 4 of its 100 .*", told(corpus))
    corpus["val"] = write(tmp_path, "val", val_de[:97] + known[:3], val_en)
    assert told(corpus) == ""


def test_sides_that_are_swapped_in_some_lines_are_told_with_one(tmp_path: Path, told: Told) -> None:
    lines = list(enumerate(zip(*TRAIN, strict=True), 1))

    def warning(apart: int) -> str:
        pairs = [pair[::-1] if i % apart == 2 else pair for i, pair in lines]
        return told({"train": write(tmp_path, "train", *zip(*pairs, strict=True))})

    found = re.fullmatch(r"train: .* (\d+)% .*swapped.* line (\d+)", warning(5))
    assert found is not None
    percent, line = map(int, found.groups())
    assert percent == pytest.approx(20, abs=5)
    assert line % 5 == 2
    assert "swapped" in warning(16)
    assert warning(100) == ""


@pytest.mark.parametrize(
    "written",
    [
        lambda i, line: f"{str(i).translate(str.maketrans('0123456789', '۰۱۲۳۴۵۶۷۸۹'))} {line}",
        lambda i, line: f"{i:05d} {line}",
        lambda i, line: f"{line} ({i})",
        lambda i, line: f"Word {'i' * (i % 5)} {line}",
    ],
    ids=["Persian digits", "leading zeros", "elsewhere", "words"],
)
def test_numbers_that_are_written_otherwise_match(
    written: Callable[[int, str], str], tmp_path: Path, told: Told
) -> None:
    de, en = TRAIN
    tgt = [written(i, line) for i, line in enumerate(en)]
    assert told({"train": write(tmp_path, "train", numbered(de), tgt)}) == ""
