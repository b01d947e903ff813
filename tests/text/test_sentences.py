"""Splitting what is too long: everything fits, nothing is lost, and sentences come first."""

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mt_cli.text.normalize import normalize
from mt_cli.text.sentences import halved, split_sentences, split_text

texts = st.lists(
    st.sampled_from(
        ["Hund", "z.", "B.", ".", "!", "…", ",", ";", " – ", " ", ".“ ", "?) ", "ä", "wort" * 9]
    )
).map(lambda pieces: normalize("".join(pieces)))
any_text = st.text(max_size=60).map(normalize)


def split(text: str, longest: int, *, lang: str = "de", together: int = 1) -> list[str]:
    return split_text(
        text,
        lang,
        num_tokens=len,
        longest=longest,
        longest_together=longest,
        most_together=together,
    )


def without_space(text: str) -> str:
    return "".join(text.split())


@pytest.mark.parametrize(
    "part", ["Der Hund geht. ", "es gibt z. b. das. ", "A. ", "1! ", "(1) [2]. ", "... ", "。"]
)
def test_a_long_line_takes_no_longer_a_character(part: str) -> None:
    text = normalize(part * (200_000 // len(part)))
    began = time.process_time()
    assert split_sentences(text, "de")
    assert time.process_time() - began < 10  # 0.2 s, and minutes if it were quadratic


@settings(max_examples=50)
@given(texts | any_text, st.integers(1, 20))
def test_every_part_fits(text: str, longest: int) -> None:
    assert [part for part in split(text, longest) if len(part) > longest] == []


@settings(max_examples=50)
@given(texts | any_text, st.integers(1, 20))
def test_nothing_but_white_space_is_lost(text: str, longest: int) -> None:
    parts = split(text, longest)
    assert without_space("".join(parts)) == without_space(text)


@settings(max_examples=50)
@given(texts, st.integers(9 * len("wort"), 60))
def test_no_word_is_broken_that_fits(text: str, longest: int) -> None:
    words = text.split()
    if all(len(word) <= longest for word in words):
        for part in split(text, longest):
            assert f" {part}" in f" {text}" or re.search(rf"[.!?]{re.escape(part)}", text)


@settings(max_examples=50)
@given(texts | any_text)
def test_what_nothing_can_fit_ends_in_single_characters(text: str) -> None:
    parts = split(text, 0)
    assert [part for part in parts if len(part) > 1] == []
    assert without_space("".join(parts)) == without_space(text)


@pytest.mark.parametrize(
    ("text", "longest", "expected"),
    [
        ("Ein Hund. Zwei Hunde! Drei?", 20, ["Ein Hund.", "Zwei Hunde!", "Drei?"]),
        # Quotation marks belong to the sentence.
        ("Er sagt: „Ein Hund.“ Sie lacht.", 25, ["Er sagt: „Ein Hund.“", "Sie lacht."]),
        # A sentence that fits is not cut at its comma.
        ("Ein Hund, der bellt. Ja.", 20, ["Ein Hund, der bellt.", "Ja."]),
        # The comma nearest to the middle.
        ("Ein Hund, der bellt, und eine Katze", 25, ["Ein Hund, der bellt,", "und eine Katze"]),
        ("Ein Hund und eine Katze", 20, ["Ein Hund und", "eine Katze"]),
        ("aaaabbbb", 4, ["aaaa", "bbbb"]),
        # A point within a number is no end.
        ("Ende 3.5 Meter, weit", 15, ["Ende 3.5 Meter,", "weit"]),
        # Only the sentence that is too long is cut further.
        ("Ja. Ein Hund, der bellt. Ja.", 16, ["Ja.", "Ein Hund,", "der bellt.", "Ja."]),
    ],
)
def test_text_is_cut_where_a_reader_would(text: str, longest: int, expected: list[str]) -> None:
    assert split(text, longest) == expected


def test_a_very_long_word_needs_few_tries() -> None:
    tried: list[int] = []

    def fits(text: str) -> bool:
        tried.append(len(text))
        return len(text) <= 10

    assert "".join(halved("x" * 100_000, fits)) == "x" * 100_000
    assert len(tried) < 40_000


@pytest.mark.parametrize(
    ("lang", "text", "expected"),
    [
        ("de", "Ein Hund rennt. Zwei Männer spielen Ball.", 2),
        ("de", "Am 3. Oktober spielt ein Mann Gitarre.", 1),
        ("de", "Er wohnt im 2. Stock des Hauses.", 1),
        ("de", "Ludwig XIV. Könige tragen Hüte.", 1),
        ("de", "Dr. Müller, z. B. mit Hut, bzw. Frau Prof. Dr. Maier usw. lachen.", 1),
        ("de", "3. Ein Hund läuft.", 1),
        ("de", "Ein Hund läuft.Zwei Männer spielen.", 2),
        ("de", "Siehe www.hunde.de und z.B. Node.js heute.", 1),
        ("de", "Er kam 2017. Dann ging er.", 2),
        ("hsb", "Wón bydli w 2. schodźe.", 1),
        ("en", "Mr. Smith came at 3 p.m. yesterday. He left.", 2),
        ("en", "It was number 3. He left.", 2),
        ("zh", "狗在城里买旧书。猫在家里看见白马！", 2),
        ("zh-TW", "狗在城裡買舊書。貓在家裡看見白馬！", 2),
        ("ja", "犬が走る。猫が寝る。", 2),
        ("hi", "वह घर गया। वह सो गया।", 2),
        ("ar", "هل أنت هنا؟ نعم أنا هنا.", 2),
        ("ur", "وہ گیا۔ وہ آیا۔", 2),
        ("de", "... !!!", 1),
        ("de", "", 0),
    ],
)
def test_sentences_are_those_that_a_reader_counts(lang: str, text: str, expected: int) -> None:
    sentences = split_sentences(text, lang)
    assert len(sentences) == expected, sentences
    assert without_space("".join(sentences)) == without_space(text)


@settings(max_examples=50)
@given(st.sampled_from(["de", "en", "zh", "th", "hsb", "xx", "zh-TW"]), any_text)
def test_no_character_of_any_language_is_lost(lang: str, text: str) -> None:
    sentences = split_sentences(text, lang)
    assert without_space("".join(sentences)) == without_space(text)
    assert "" not in sentences


def test_as_many_sentences_stay_together_as_training_showed() -> None:
    text = "Eins da. Zwei da. Drei da."
    assert split(text, 100, together=2) == ["Eins da. Zwei da.", "Drei da."]
    assert split(text, 12, together=2) == ["Eins da.", "Zwei da.", "Drei da."]


def test_chinese_sentences_stay_together_without_a_space() -> None:
    assert split("狗跑。猫跑。鱼游。", 100, lang="zh", together=2) == ["狗跑。猫跑。", "鱼游。"]


@pytest.mark.parametrize(
    ("lang", "sentences"),
    [
        ("de", ["Er ist 1,80 m.", "Sie ist klein."]),
        ("de", ["(Das ist so.)", "Der Hund bellt."]),
        ("de", ["Er ging (es war spät.)", "Dann schlief er."]),
        ("de", ["Tiere (z. B.) Hunde sind da.", "Katzen (usw.) Hunde."]),
        ("en", ["He said no.", "She left."]),
        ("en", ["See no. 5 and No. 7.", "It is good."]),
        ("fr", ["M. Dupont est là.", "Il dort."]),
    ],
)
def test_ends_after_brackets_units_and_the_word_no(lang: str, sentences: list[str]) -> None:
    assert split_sentences(" ".join(sentences), lang) == sentences
