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
from mt_cli.data.prepare import warn_of_leaks
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


def write(
    folder: Path, name: str, src: Sequence[str | bytes], tgt: Sequence[str | bytes]
) -> ParallelText:
    folder.mkdir(exist_ok=True)
    for side, lines in (("src", src), ("tgt", tgt)):
        data = [line if isinstance(line, bytes) else line.encode() for line in lines]
        (folder / f"{name}.{side}").write_bytes(b"".join(line + b"\n" for line in data))
    return ParallelText.of(
        FilesConfig(src=(folder / f"{name}.src",), tgt=(folder / f"{name}.tgt",))
    )


def shuffled(lines: Lines) -> Lines:
    return random.Random(1).sample(lines, len(lines))


MISALIGNED = "source and target lines do not match"
SPOILT: dict[str, tuple[Spoil, str]] = {
    "sides swapped": (
        lambda de, en: (en, de),
        "the sides are swapped: .* looks like en, and .* like de",
    ),
    "target in the source's language": (
        lambda de, en: (de, shuffled(de)),
        "train.tgt: the target looks like de, and should be en",
    ),
    "source in the target's language": (
        lambda de, en: (shuffled(en), en),
        "train.src: the source looks like en, and should be de",
    ),
    "sources shuffled": (lambda de, en: (shuffled(de), en), MISALIGNED),
    "targets shuffled": (lambda de, en: (de, shuffled(en)), MISALIGNED),
    "sorted apart": (lambda de, en: (sorted(de), sorted(en)), MISALIGNED),
    "one line lost at the start": (lambda de, en: (de[1:], en[:-1]), MISALIGNED),
    "targets reversed": (lambda de, en: (de, en[::-1]), MISALIGNED),
    "one line lost in the middle": (
        lambda de, en: (3 * de + de[1:], 3 * en + en[:-1]),
        "from about line [0-9]+ on, .* do not match",
    ),
    "tabs in the source": (
        lambda de, en: ([f"{i}\t{line}" for i, line in enumerate(de)], en),
        "have a tab; files of columns are named .tsv",
    ),
    "tabs in the target": (lambda de, en: (de, [f"{line}\tx" for line in en]), "have a tab"),
    "a third copied": (
        lambda de, en: (de, [*de[:334], *en[334:]]),
        "33% of the pairs have the same text",
    ),
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
        MISALIGNED,
    ),
}


def told(
    corpus: dict[str, ParallelText], caplog: pytest.LogCaptureFixture, languages: str = "de en"
) -> str:
    src_lang, tgt_lang = languages.split()
    log_oddities(corpus, DataConfig(src_lang=src_lang, tgt_lang=tgt_lang))
    warn_of_leaks(corpus)
    return "\n".join(
        record.message for record in caplog.records if record.levelno >= logging.WARNING
    )


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
    corpus = {
        "train": write(tmp_path, "train", *sample("train")),
        "val": write(tmp_path, "val", en, de),
    }
    assert re.fullmatch(r"val: the sides are swapped: .*", told(corpus, caplog))


def test_a_side_that_is_not_utf8_is_refused_with_its_first_bad_line(tmp_path: Path) -> None:
    de, en = sample("train")
    first = next(i for i, line in enumerate(de, 1) if not line.isascii())
    spoilt = write(tmp_path, "train", [line.encode("latin-1") for line in de], en)
    told = rf"train\.src: not UTF-8: .* line {first}; .*iconv -f cp1252 -t utf-8 .*train\.src"
    with pytest.raises(DataError, match=told) as caught:
        log_oddities({"train": spoilt}, DataConfig())
    assert de[first - 1][:40] in str(caught.value)


@pytest.mark.parametrize(
    ("lang", "text", "encoding"),
    [
        ("pl", "Zażółć gęślą jaźń.", "cp1250"),
        ("sr-Latn", "Čačak i Šabac.", "cp1250"),
        ("ru", "Собака бежит.", "cp1251"),
        ("el", "Ένας σκύλος.", "cp1253"),
        ("tr", "Işıklı şehir.", "cp1254"),
        ("fr", "Un chien à côté.", "cp1252"),
        ("zh-TW", "一隻狗在跑。", "big5"),
        ("zh", "一只狗在跑。", "gb18030"),
        ("ja", "犬が走る。", "cp932"),
    ],
)
def test_the_encoding_that_is_advised_is_the_usual_one_of_the_language(
    lang: str, text: str, encoding: str, tmp_path: Path
) -> None:
    src, tgt = [text.encode(encoding)] * 9, [f"A dog {i}." for i in range(9)]
    spoilt = write(tmp_path, "train", src, tgt)
    with pytest.raises(DataError, match=f"iconv -f {encoding} ") as caught:
        log_oddities({"train": spoilt}, DataConfig(src_lang=lang))
    assert text in str(caught.value)


def test_no_encoding_is_advised_in_which_the_line_makes_no_sense(tmp_path: Path) -> None:
    no_letters = b"\x81\x8d Hund"  # of cp1252
    spoilt = write(tmp_path, "train", [no_letters] * 9, ["A dog."] * 9)
    with pytest.raises(DataError, match=r"train\.src: not UTF-8: 9 of 9") as caught:
        log_oddities({"train": spoilt}, DataConfig())
    assert "iconv -f" not in str(caught.value)


def test_the_same_text_on_both_sides_is_refused(tmp_path: Path) -> None:
    de, _ = sample("train")
    with pytest.raises(DataError, match="are the same text"):
        log_oddities({"train": write(tmp_path, "train", de, de)}, DataConfig())


def test_nothing_is_odd_about_sound_corpora(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    splits = {
        name: write(tmp_path / "sample", name, *sample(name)) for name in ("train", "val", "test")
    }
    es, en = map(list, zip(*spanish.pairs(), strict=True))
    assert told(splits, caplog) == ""
    assert told({"train": write(tmp_path / "spanish", "train", es, en)}, caplog, "es en") == ""


def test_five_pairs_are_shown_with_their_lines(tmp_path: Path) -> None:
    de, en = sample("train")
    corpus = {"train": write(tmp_path, "train", de, en)}
    heading, *shown = re.split(r"line (\d+): ", log_oddities(corpus, DataConfig()))
    assert (heading.split("\n")[0], len(shown)) == ("some training pairs:", 2 * 5)
    for number, pair in zip(shown[::2], shown[1::2], strict=True):
        line = int(number) - 1
        assert pair.startswith(de[line][:30])
        assert en[line][:30] in pair


# What is odd from some share of the lines on: each with a corpus that has a little less of it

Change = Callable[[str], str]


def some(lines: Lines, share: float, change: Change) -> Lines:
    """`lines`, of which `change` changes that share, spread over all."""
    apart = round(1 / share)
    return [change(line) if i % apart == 0 else line for i, line in enumerate(lines)]


def with_entities(line: str) -> str:
    return line.replace(".", " &amp; so on.")


def tokenised(line: str) -> str:
    return f"{line.rstrip('.')} ."


@pytest.mark.parametrize(
    ("change", "share", "expected"),
    [
        (with_entities, 0.02, "train: .* 2% of the pairs have markup .*lines 1, 51, 101 "),
        (lambda line: f"<b>{line}</b>", 0.02, "train: .* 2% of the pairs have markup"),
        (lambda line: line.replace(" ", " @-@ "), 0.02, "train: .* 2% of the pairs have markup"),
        (with_entities, 0.005, None),
        (lambda line: f"{line} 3 < 5 > 4 <3 AT&T; R&D", 0.5, None),
        (tokenised, 0.25, "train: .* 25% of the pairs look tokenised"),
        (tokenised, 0.1, None),
    ],
    ids=["entities", "tags", "Moses", "few entities", "signs", "tokenised", "little tokenised"],
)
def test_text_that_a_tool_has_changed_is_told(
    change: Change,
    share: float,
    expected: str | None,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    de, en = sample("train")
    for sides in ((some(de, share, change), en), (de, some(en, share, change))):
        caplog.clear()
        warning = told({"train": write(tmp_path, "train", *sides)}, caplog)
        assert bool(re.match(expected, warning)) if expected else warning == ""


def test_references_that_no_translation_can_equal_are_told_where_scores_are_made(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    train, (de, en) = sample("train"), sample("val", 100)
    decomposed = some(en, 0.02, lambda line: f"{line} Cafe\u0301.")
    splits = {
        "train": write(tmp_path, "train", *train),
        "val": write(tmp_path, "val", de, decomposed),
    }
    assert told(splits, caplog) == ""  # two lines say nothing
    splits["val"] = write(tmp_path, "val", de, some(decomposed, 0.05, lambda line: f"\u200b{line}"))
    assert re.fullmatch(
        r"val: .*val\.tgt: 6% of the targets are not in Unicode's NFC .*", told(splits, caplog)
    )
    caplog.clear()
    decomposed = some(train[1], 0.5, lambda line: f"{line} Cafe\u0301.")
    assert told({"train": write(tmp_path, "train", train[0], decomposed)}, caplog) == ""


@pytest.mark.parametrize(
    ("name", "first", "expected"),
    [
        ("a.tsv", "German\tEnglish", "--columns German,English"),
        ("a.tsv", "id\tde\ten", "--columns id,de"),
        ("a.csv", "de,en", "--columns de,en"),
        ("a.tsv", "Ein Hund bellt.\tA dog barks.", None),
        ("a.tsv", None, None),
    ],
)
def test_a_first_line_that_names_columns_is_told(
    name: str,
    first: str | None,
    expected: str | None,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    space = "\t" if name.endswith("tsv") else ","
    quote = "" if space == "\t" else '"'
    pairs = zip(*sample("train"), strict=True)
    rows = [f"{quote}{de}{quote}{space}{quote}{en}{quote}" for de, en in pairs]
    if first is not None and first.count(space) == 2:
        rows = [f"{i}{space}{row}" for i, row in enumerate(rows)]
    path = tmp_path / name
    path.write_text("\n".join([first, *rows] if first else rows), encoding="utf-8")
    look = FilesConfig(src=(path,), tgt=(path,))
    warning = told({"train": ParallelText.of(look)}, caplog)
    assert (f"{path}: line 1 " in warning) == (expected is not None)
    assert (expected or "") in warning


def test_held_out_sources_that_training_has_too_are_told_with_their_number(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (de, en), (val_de, val_en) = sample("train"), sample("val", 100)
    corpus = {"train": write(tmp_path, "train", de, en)}
    # Each counts once, however often it is in training, and however it is spaced.
    known = [line.replace(" ", "  ") for line in de[:4]]
    corpus["val"] = write(tmp_path, "val", val_de[:96] + known, val_en)
    assert re.fullmatch(r"val: 4 of its 100 sources are in .*train.*", told(corpus, caplog))
    caplog.clear()
    corpus["val"] = write(tmp_path, "val", val_de[:97] + known[:3], val_en)
    assert told(corpus, caplog) == ""


@pytest.mark.parametrize(("share", "is_told"), [(0.2, True), (0.05, False)])
def test_sides_that_are_swapped_in_some_lines_are_told_with_one(
    share: float, is_told: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    de, en = sample("train")
    apart = round(1 / share)
    numbered = enumerate(zip(de, en, strict=True), 1)
    pairs = [pair[::-1] if i % apart == 2 else pair for i, pair in numbered]
    src, tgt = zip(*pairs, strict=True)
    warning = told({"train": write(tmp_path, "train", src, tgt)}, caplog)
    found = re.fullmatch(r"train: .* in (\d+)% of .* sides are swapped, .* line (\d+)", warning)
    assert (found is not None, warning != "") == (is_told, is_told)
    if found is not None:
        percent, line = map(int, found.groups())
        assert (percent == pytest.approx(100 * share, abs=5), line % apart) == (True, 2)


@pytest.mark.parametrize(
    "numbered",
    [
        lambda i, line: f"{str(i).translate(str.maketrans('0123456789', '۰۱۲۳۴۵۶۷۸۹'))} {line}",
        lambda i, line: f"{i:05d} {line}",
        lambda i, line: f"{line} ({i})",
        lambda i, line: f"Word {'i' * (i % 5)} {line}",
    ],
    ids=["Persian digits", "leading zeros", "elsewhere", "words"],
)
def test_numbers_that_are_written_otherwise_match(
    numbered: Callable[[int, str], str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    de, en = sample("train")
    src = [f"{i} {line}" for i, line in enumerate(de)]
    tgt = [numbered(i, line) for i, line in enumerate(en)]
    assert told({"train": write(tmp_path, "train", src, tgt)}, caplog) == ""
