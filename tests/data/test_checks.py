"""Spoilt corpora: each is named before anything is made, and sound ones are not.

What a warning is about is known by a word of it and by the file or the share that it names.
"""

import logging
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import spanish
from small import text_in, write_pairs

from mt_cli.config.schema import DataConfig
from mt_cli.data.checks import _misaligned, check_corpus
from mt_cli.data.corpora import Corpus

SAMPLE = Path(__file__).parents[2] / "data" / "sample"
Lines = list[str]
Change = Callable[[str], str]
Sides = tuple[Lines, Lines]
Told = Callable[..., str]


def sample(split: str, count: int = 1000) -> Sides:
    """The first pairs of a split of the sample, German and English."""
    paths = [SAMPLE / f"{split}.{lang}" for lang in ("de", "en")]
    de, en = (path.read_text(encoding="utf-8").splitlines()[:count] for path in paths)
    return de, en


DE, EN = sample("train")
VAL_DE, VAL_EN = sample("val", 100)


def write(folder: Path, **splits: Sides) -> Corpus:
    corpus = {}
    for name, sides in splits.items():
        table = write_pairs(folder, name, list(zip(*sides, strict=True)))
        corpus[name] = text_in(Path(table["src"]), Path(table["tgt"]))
    return corpus


@pytest.fixture
def told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Told:
    """Checks splits; gives the warnings, a line each."""

    def check(src_lang: str = "de", **splits: Sides) -> str:
        caplog.clear()
        corpus, data = write(tmp_path, **splits), DataConfig(src_lang=src_lang, tgt_lang="en")
        check_corpus(corpus, data)
        warnings = [each for each in caplog.records if each.levelno >= logging.WARNING]
        return "\n".join(each.message for each in warnings)

    return check


def shuffled(lines: Lines) -> Lines:
    return random.Random(1).sample(lines, len(lines))


def numbered(lines: Lines, write: Callable[[int, str], str] = "{} {}".format) -> Lines:
    return [write(i, line) for i, line in enumerate(lines)]


def some(lines: Lines, share: float, change: Change) -> Lines:
    """`lines`, of which `change` changes that share, spread over all."""
    apart = round(1 / share)
    return [change(line) if i % apart == 0 else line for i, line in enumerate(lines)]


def with_entities(line: str) -> str:
    return line.replace(".", " &amp; so on.")


def tokenised(line: str) -> str:
    return f"{line.rstrip('.')} ."


MISALIGNED = "do not match"
SPOILT: dict[str, tuple[Sides, str]] = {
    "sides swapped": ((EN, DE), "swapped"),
    "target in the source's language": ((DE, shuffled(DE)), r"train\.tgt: .* de"),
    "sources shuffled": ((shuffled(DE), EN), MISALIGNED),
    "one line lost": ((3 * DE + DE[1:], 3 * EN + EN[:-1]), f"line [0-9]+ .* {MISALIGNED}"),
    "other numbers": ((numbered(DE), numbered(EN, lambda i, line: f"{i + 7} {line}")), MISALIGNED),
    "a third copied": ((DE, [*DE[:334], *EN[334:]]), "33%"),
    "entities": ((some(DE, 0.02, with_entities), EN), "2% .* markup .*lines 1, 51, 101 "),
    "tags": ((DE, some(EN, 0.02, "<b>{}</b>".format)), "2% .* markup"),
    "tokenised": ((some(DE, 0.25, tokenised), EN), "25% .* tokenized"),
}
SOUND: dict[str, dict[str, Sides]] = {
    "sample": {name: sample(name) for name in ("train", "val", "test")},
    "few entities": {"train": (some(DE, 0.005, with_entities), EN)},
    "signs": {"train": (DE, some(EN, 0.5, "{} 3 < 5 > 4 <3 AT&T; R&D".format))},
    "little tokenised": {"train": (DE, some(EN, 0.1, tokenised))},
    "leading zeros": {"train": (numbered(DE), numbered(EN, "{:05d} {}".format))},
    "numbers elsewhere": {"train": (numbered(DE), numbered(EN, "{1} ({0})".format))},
    "numbers in words": {"train": (numbered(DE), numbered(EN, lambda i, line: f"Many {line}"))},
}


@pytest.mark.parametrize(("sides", "expected"), SPOILT.values(), ids=SPOILT)
def test_what_is_odd_is_told(sides: Sides, expected: str, told: Told) -> None:
    warning = told(train=sides)
    assert re.search(expected, warning), warning
    assert warning.count("\n") < 2


@pytest.mark.parametrize("splits", SOUND.values(), ids=SOUND)
def test_nothing_is_odd_about_sound_corpora(splits: dict[str, Sides], told: Told) -> None:
    assert told(**splits) == ""


def test_nothing_is_odd_about_another_language(told: Told) -> None:
    es, en = map(list, zip(*spanish.pairs(), strict=True))
    assert told("es", train=(es, en)) == ""


def test_sides_that_are_swapped_in_some_lines_are_told_with_one(told: Told) -> None:
    pairs = list(enumerate(zip(DE, EN, strict=True), 1))
    sides = zip(*(pair[::-1] if i % 16 == 2 else pair for i, pair in pairs), strict=True)
    found = re.fullmatch(r"train: .* (\d+)% .*swapped.* line (\d+)", told(train=sides))
    assert found is not None
    assert int(found[1]) == pytest.approx(6, abs=5)
    assert int(found[2]) % 16 == 2


def test_five_pairs_are_shown_with_their_lines(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        check_corpus(write(tmp_path, train=(DE, EN)), DataConfig())
    shown = caplog.text
    numbers = [int(number) - 1 for number in re.findall(r"line (\d+): ", shown)]
    assert len(numbers) == 5
    assert all(f"line {i + 1}: {DE[i][:30]}" in shown and EN[i][:30] in shown for i in numbers)


@pytest.mark.parametrize(
    ("num_known", "expected"), [(4, "val: 4 of its 100 .*"), (3, "")], ids=["four", "three"]
)
def test_held_out_sources_that_training_has_too_are_told_with_their_number(
    num_known: int, expected: str, told: Told
) -> None:
    alike = [line.upper().replace(" ", "  ").replace(".", " !") for line in DE[:num_known]]
    val = [*VAL_DE[: 100 - num_known], *alike]
    assert re.fullmatch(expected, told(train=(DE, EN), val=(val, VAL_EN)))


def test_right_pairs_of_about_one_length_are_not_called_shuffled() -> None:
    """480 pairs of which the lengths differ by chance only: they tell nothing."""
    rng = random.Random(0)
    alike = [(i, ("a" * rng.randint(18, 22), "b" * rng.randint(19, 23))) for i in range(480)]
    assert _misaligned(alike, text_in(Path("a.de"), Path("a.en"))) is None
    spread = [(i, ("a" * rng.randint(10, 40), "b" * rng.randint(10, 40))) for i in range(480)]
    assert _misaligned(spread, text_in(Path("a.de"), Path("a.en"))) is not None
