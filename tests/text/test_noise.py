"""Noise: hand-worked cases, and what no noise may do to any text."""

from random import Random
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mt_cli.config.schema import NoiseKind
from mt_cli.text.noise import NOISES, make_noise, noisy_test_set

KINDS: tuple[NoiseKind, ...] = get_args(NoiseKind)
SENTENCE = "Zwei Männer stehen früh auf der Straße."


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("lower", "zwei männer stehen früh auf der straße."),
        ("capitals", "ZWEI MÄNNER STEHEN FRÜH AUF DER STRASSE."),
        ("title", "Zwei Männer Stehen Früh Auf Der Straße."),
        ("accents", "Zwei Maenner stehen frueh auf der Strasse."),
    ],
)
def test_noise_without_chance(kind: NoiseKind, expected: str) -> None:
    assert make_noise(SENTENCE, kind, "de", Random(0)) == expected


@pytest.mark.parametrize(
    ("lang", "text", "expected"),
    [
        ("de", "Äpfel und Öl", "Aepfel und Oel"),
        ("de_AT", "ß", "ss"),
        ("fr", "Où est l'élève ? Ça va, cœur.", "Ou est l'eleve ? Ca va, coeur."),
        ("fi", "pöytä", "poyta"),
        ("da", "Blåbær og rødgrød", "Blaabaer og roedgroed"),
        ("pl", "Łódź", "Lodz"),
        ("vi", "Tiếng Việt", "Tieng Viet"),
        ("ru", "Ёлка и чай", "Ёлка и чай"),
        ("ko", "한국어", "한국어"),
        ("hi", "हिन्दी", "हिन्दी"),
    ],
)
def test_accents_follow_the_language_and_leave_other_scripts(
    lang: str, text: str, expected: str
) -> None:
    assert make_noise(text, "accents", lang, Random(0)) == expected


def distance(first: str, second: str) -> int:
    """Levenshtein's, with swaps of neighbours (Damerau), by the table."""
    rows = [list(range(len(second) + 1))]
    for i, a in enumerate(first, 1):
        rows.append([i])
        for j, b in enumerate(second, 1):
            cost = min(rows[i - 1][j] + 1, rows[i][j - 1] + 1, rows[i - 1][j - 1] + (a != b))
            if i > 1 and j > 1 and a == second[j - 2] and first[i - 2] == b:
                cost = min(cost, rows[i - 2][j - 2] + 1)
            rows[i].append(cost)
    return rows[-1][-1]


@pytest.mark.parametrize("seed", range(40))
def test_a_short_line_gets_one_typing_error(seed: int) -> None:
    typed = make_noise(SENTENCE, "typos", "de", Random(seed))
    assert distance(SENTENCE, typed) <= 1  # 0 where equal letters are swapped
    assert len(typed.split()) == len(SENTENCE.split())


def test_all_kinds_of_typing_errors_occur() -> None:
    typed = {make_noise("Hund", "typos", "de", Random(seed)) for seed in range(200)}
    assert {"und", "HHund", "uHnd", "Jund", "Hud", "Huund"} <= typed
    assert not typed & {"Hundt", "Katze"}


def test_long_lines_get_more_errors() -> None:
    text = "eine lange Zeile " * 20
    assert distance(text, make_noise(text, "typos", "de", Random(1))) > 2


@pytest.mark.parametrize("text", ["", "12 + 3", "OK", "!?", "Hm"])
def test_what_has_no_long_word_gets_no_typing_error(text: str) -> None:
    assert make_noise(text, "typos", "de", Random(1)) == text


def test_final_marks_go_move_away_or_double() -> None:
    found = {make_noise("Ein Hund.", "punctuation", "de", Random(seed)) for seed in range(50)}
    assert found == {"Ein Hund", "Ein Hund .", "Ein Hund.."}
    assert make_noise("Ein Hund", "punctuation", "de", Random(1)) == "Ein Hund"


def test_mixed_noise_changes_the_case_and_something_else() -> None:
    found = {make_noise(SENTENCE, "mixed", "de", Random(seed)) for seed in range(300)}
    assert all(text.islower() or text.isupper() for text in found)
    assert "zwei maenner stehen frueh auf der strasse." in found
    assert "ZWEI MAENNER STEHEN FRUEH AUF DER STRASSE" in found
    assert SENTENCE.lower() not in found
    assert sum(map(str.islower, found)) > sum(map(str.isupper, found)) > 10


@given(text=st.text(), kind=st.sampled_from(sorted(NOISES)), seed=st.integers(0, 9))
def test_noise_is_reproducible_and_stays_one_line(text: str, kind: NoiseKind, seed: int) -> None:
    line = " ".join(text.split())
    noisy = make_noise(line, kind, "de", Random(seed))
    assert noisy == make_noise(line, kind, "de", Random(seed))
    assert "\n" not in noisy
    noisy.encode(errors="surrogatepass")


@pytest.mark.parametrize("kind", KINDS)
def test_test_set_stays_parallel_and_references_stay(kind: NoiseKind) -> None:
    sources = ["Ein Hund bellt.", "Zwei Äpfel.", "Der Mann schläft."]
    refs = ["A dog barks.", "Two apples.", "The man sleeps."]
    noisy, kept = noisy_test_set(sources, refs, kind, src_lang="de", tgt_lang="en")
    assert len(noisy) == len(kept)
    if kind == "join":
        assert noisy == ["Ein Hund bellt. Zwei Äpfel.", "Der Mann schläft."]
        assert kept == ["A dog barks. Two apples.", "The man sleeps."]
    else:
        assert kept == refs


def test_joined_chinese_has_no_space() -> None:
    _, refs = noisy_test_set(["a", "b"], ["狗。", "猫。"], "join", src_lang="de", tgt_lang="zh")
    assert refs == ["狗。猫。"]
