"""Noise: hand-worked cases, and what no noise may do to any text."""

import re
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mt_cli.config.schema import NoiseKind
from mt_cli.data.noise import NOISES, make_noise, noisy_test_set, with_another_number
from mt_cli.text.numbers import changes_a_number

SENTENCE = "Zwei Männer stehen früh auf der Straße."


@pytest.mark.parametrize(
    ("kind", "lang", "text", "expected"),
    [
        ("lower", "de", SENTENCE, "zwei männer stehen früh auf der straße."),
        ("capitals", "de", SENTENCE, "ZWEI MÄNNER STEHEN FRÜH AUF DER STRASSE."),
        ("title", "de", SENTENCE, "Zwei Männer Stehen Früh Auf Der Straße."),
        ("accents", "de", "Äpfel, Öl und früh", "Aepfel, Oel und frueh"),
        ("accents", "de_AT", "ß", "ss"),
        ("accents", "fr", "Où est l'élève ? Ça va, cœur.", "Ou est l'eleve ? Ca va, coeur."),
        ("accents", "da", "Blåbær og rødgrød", "Blaabaer og roedgroed"),
        ("accents", "vi", "Tiếng Việt", "Tieng Viet"),
        ("accents", "ru", "Ёлка и чай", "Ёлка и чай"),
        ("typos", "de", "12 + 3 OK", "12 + 3 OK"),
    ],
)
def test_noise_without_chance_follows_the_language(
    kind: NoiseKind, lang: str, text: str, expected: str
) -> None:
    assert make_noise(text, kind, lang, Random(0)) == expected


def test_all_kinds_of_typing_errors_occur() -> None:
    typed = {make_noise("Hund", "typos", "de", Random(seed)) for seed in range(200)}
    assert {"und", "HHund", "uHnd", "Jund", "Hud", "Huund"} <= typed
    assert not typed & {"Hundt", "Katze"}


def test_final_marks_go_move_away_or_double() -> None:
    found = {make_noise("Ein Hund.", "punctuation", "de", Random(seed)) for seed in range(50)}
    assert found == {"Ein Hund", "Ein Hund .", "Ein Hund.."}


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


def test_joined_test_set_stays_parallel() -> None:
    sources = ["Ein Hund bellt.", "Zwei Äpfel.", "Der Mann schläft."]
    given = ["A dog barks.", "Two apples.", "The man sleeps."]
    noisy, refs = noisy_test_set(sources, given, "join", src_lang="de", tgt_lang="en")
    assert noisy == ["Ein Hund bellt. Zwei Äpfel.", "Der Mann schläft."]
    assert refs == ["A dog barks. Two apples.", "The man sleeps."]
    _, refs = noisy_test_set(["a", "b"], ["狗。", "猫。"], "join", src_lang="de", tgt_lang="zh")
    assert refs == ["狗。猫。"]


@pytest.mark.parametrize(
    ("src", "tgt", "expected"),
    [
        ("Zwei Hunde laufen.", "Two dogs run.", r"\d[\d.]* Hunde laufen\. \| \d[\d,]* dogs run\."),
        (
            "Tor für die 12!",
            "Goal for number 12!",
            r"Tor für die [\d.]+! \| Goal for number [\d,]+!",
        ),
        (
            "Er hat 12 Hunde.",
            "He has twelve dogs.",
            r"Er hat [\d.]+ Hunde\. \| He has [\d,]+ dogs\.",
        ),
        ("Zwei Hunde, drei Katzen.", "Two dogs, three cats.", None),
        ("Zwei Hunde.", "Both dogs.", None),
        ("Es ist 3,50 lang.", "It is 3.50 long.", None),
        ("Um 9 Uhr.", "At 10.", None),
    ],
)
def test_another_number_takes_the_place_of_the_same_one(
    src: str, tgt: str, expected: str | None
) -> None:
    for seed in range(50):
        changed = with_another_number(src, tgt, "de", "en", Random(seed))
        if expected is None:
            assert changed == (src, tgt)
            continue
        assert re.fullmatch(expected, " | ".join(changed))
        assert not changes_a_number(*changed, src_lang="de", tgt_lang="en")


def test_some_sentences_without_a_number_get_one_before_their_end() -> None:
    pair = ("Ein Hund schläft.", "A dog sleeps.")
    made = [with_another_number(*pair, "de", "en", Random(seed)) for seed in range(400)]
    changed = [each for each in made if each != pair]
    assert 60 < len(changed) < 140
    for src, tgt in changed:
        assert re.fullmatch(r"Ein Hund schläft (um|für|im|mit|seit|in) .*\d.*\.", src)
        assert re.fullmatch(r"A dog sleeps (at|for|in|with) .*\d.*\.", tgt)
        assert not changes_a_number(src, tgt, src_lang="de", tgt_lang="en")
    assert with_another_number("Un chien dort.", "A dog sleeps.", "fr", "en", Random(1)) == (
        "Un chien dort.",
        "A dog sleeps.",
    )
