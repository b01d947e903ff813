"""Splitting what is too long: everything fits, nothing is lost, and sentences come first."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mt_cli.text.normalize import normalize
from mt_cli.text.sentences import split_sentences, split_text

PIECES = ["Hund", "z.", "B.", ".", "!", "…", ",", ";", " – ", " ", ".“ ", "?) ", "ä", "wort" * 9]
texts = st.lists(st.sampled_from(PIECES)).map(lambda pieces: normalize("".join(pieces)))
any_text = st.text(max_size=60).map(normalize)


def split(text: str, longest: int, *, lang: str = "de", together: int = 1) -> list[str]:
    fitting = {"longest": longest, "longest_together": longest, "most_together": together}
    return split_text(text, lang, num_tokens=len, **fitting)


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


@settings(max_examples=100)
@given(texts | any_text, st.integers(0, 20))
def test_every_part_fits_or_is_one_character_and_nothing_is_lost(text: str, longest: int) -> None:
    parts = split(text, longest)
    assert max(map(len, parts), default=0) <= max(1, longest)
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
        ("aaaabbbb", 4, ["aaaa", "bbbb"]),
        # A point within a number is no end.
        ("Ende 3.5 Meter, weit", 15, ["Ende 3.5 Meter,", "weit"]),
        # Only the sentence that is too long is cut further.
        ("Ja. Ein Hund, der bellt. Ja.", 16, ["Ja.", "Ein Hund,", "der bellt.", "Ja."]),
    ],
)
def test_text_is_cut_where_a_reader_would(text: str, longest: int, expected: list[str]) -> None:
    assert split(text, longest) == expected


@pytest.mark.parametrize(
    ("lang", "text", "expected"),
    [
        ("de", "Ein Hund rennt. Zwei Männer spielen Ball.", 2),
        ("de", "Am 3. Oktober spielt ein Mann Gitarre.", 1),
        ("de", "Ludwig XIV. Könige tragen Hüte.", 1),
        ("de", "Dr. Müller, z. B. mit Hut, bzw. Frau Prof. Dr. Maier usw. lachen.", 1),
        ("de", "Ein Hund läuft.Zwei Männer spielen.", 2),
        ("de", "Siehe www.hunde.de und z.B. Node.js heute.", 1),
        ("de", "Er kam 2017. Dann ging er.", 2),
        ("hsb", "Wón bydli w 2. schodźe.", 1),
        ("en", "Mr. Smith came at 3 p.m. yesterday. He left.", 2),
        ("zh", "狗在城里买旧书。猫在家里看见白马！", 2),
        ("hi", "वह घर गया। वह सो गया।", 2),
        ("ur", "وہ گیا۔ وہ آیا۔", 2),
        ("de", "... !!!", 1),
        ("de", "", 0),
    ],
)
def test_sentences_are_those_that_a_reader_counts(lang: str, text: str, expected: int) -> None:
    sentences = split_sentences(text, lang)
    assert len(sentences) == expected, sentences
    assert without_space("".join(sentences)) == without_space(text)


@pytest.mark.parametrize(
    ("longest", "expected"),
    [(100, ["Eins da. Zwei da.", "Drei da."]), (12, ["Eins da.", "Zwei da.", "Drei da."])],
)
def test_as_many_sentences_stay_together_as_training_showed(
    longest: int, expected: list[str]
) -> None:
    assert split("Eins da. Zwei da. Drei da.", longest, together=2) == expected
    assert split("狗跑。猫跑。鱼游。", 100, lang="zh", together=2) == ["狗跑。猫跑。", "鱼游。"]


@pytest.mark.parametrize(
    ("lang", "sentences"),
    [
        ("de", ["Er ist 1,80 m.", "Sie ist klein."]),
        ("de", ["Er ging (es war spät.)", "Dann schlief er."]),
        ("de", ["Tiere (z. B.) Hunde sind da.", "Katzen (usw.) Hunde."]),
        ("en", ["He said no.", "She left."]),
        ("en", ["See no. 5 and No. 7.", "It is good."]),
        ("fr", ["M. Dupont est là.", "Il dort."]),
    ],
)
def test_ends_after_brackets_units_and_the_word_no(lang: str, sentences: list[str]) -> None:
    assert split_sentences(" ".join(sentences), lang) == sentences
