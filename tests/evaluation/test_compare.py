"""Sentences that changed, and wins and losses by kind, against cases worked by hand."""

import re

import pytest

from mt_cli.evaluation.compare import LENGTHS, UNSEEN, Change, buckets, find_changes, words_of
from mt_cli.evaluation.scoring import is_looping, symptoms
from mt_cli.text.normalize import is_tokenised

SOURCES = ["Ein Hund.", "Zwei kleine Katzen schlafen auf dem Sofa.", "Rot.", ""]
REFS = ["A dog.", "Two small cats sleep on the sofa.", "Red.", ""]
BASELINE = ["A cat.", "Two small cats sleep on the sofa.", "Red.", ""]
HYPS = ["A dog.", "Two cats sleep.", "Red.", ""]


@pytest.fixture
def changes() -> list[Change]:
    return find_changes(BASELINE, HYPS, REFS, SOURCES)


def test_only_what_changed_is_listed_with_its_line(changes: list[Change]) -> None:
    assert [
        (each.line, each.source, each.ref, each.baseline_hyp, each.hyp) for each in changes
    ] == [
        (1, SOURCES[0], "A dog.", "A cat.", "A dog."),
        (2, SOURCES[1], REFS[1], REFS[1], "Two cats sleep."),
    ]


def test_buckets_count_wins_losses_and_ties_by_length(changes: list[Change]) -> None:
    short, long = buckets([len(line.split()) for line in SOURCES], changes, tops=LENGTHS)
    assert (short["label"], short["n"], short["wins"], short["losses"], short["ties"]) == (
        "0-5",
        3,
        1,
        0,
        2,
    )
    assert (long["label"], long["n"], long["wins"], long["losses"], long["ties"]) == (
        "6-10",
        1,
        0,
        1,
        0,
    )
    assert short["mean_difference"] == pytest.approx(changes[0].difference / 3)
    assert long["mean_difference"] == pytest.approx(changes[1].difference)


def test_buckets_count_unseen_words_without_case_and_marks(changes: list[Change]) -> None:
    unseen = {"hund", "kleine", "sofa", "katzen", "auf"}
    sizes = [sum(word in unseen for word in words_of(line)) for line in SOURCES]
    found = buckets(sizes, changes, tops=UNSEEN)
    assert [(each["label"], each["n"], each["wins"], each["losses"]) for each in found] == [
        ("0", 2, 0, 0),
        ("1", 1, 1, 0),
        ("3+", 1, 0, 1),
    ]


GOOD = [
    "A man sleeps.",
    "Two dogs play, and a cat watches.",
    "Is it very, very, very cold?",
    "Il dort\u00a0!",
    "Il dort ?",
    "",
]


@pytest.mark.parametrize("line", GOOD)
def test_ordinary_line_has_no_symptom(line: str) -> None:
    assert not is_tokenised(line)
    assert not is_looping(line)


@pytest.mark.parametrize("line", ["A man sleeps .", "A man , a dog . ", "狗 跑 。"])
def test_space_before_the_last_mark_looks_tokenised(line: str) -> None:
    assert is_tokenised(line)


@pytest.mark.parametrize(
    "line",
    [
        "dog dog dog dog",
        "Ä-aa, Ä, aa. Ä aa.",
        "A man a man, a man.",
        "In front of, in front of, in front of the house",
        "well one two three four one two three four One two three four",
    ],
)
def test_words_said_again_and_again_are_a_loop(line: str) -> None:
    assert is_looping(line)


def test_warnings_name_a_line_and_count_the_others() -> None:
    hyps = ["A dog .", "A cat .", "a a a a a", "A man."]
    tokenised, looping = symptoms(hyps, ["A dog."] * 4)
    assert re.match(r"2 of 4 lines .* line 1: the output looks tokenised", tokenised)
    assert re.match(r"1 of 4 .* line 3: .*--no-repeat-ngram", looping)


def test_references_that_repeat_themselves_as_much_excuse_the_output() -> None:
    lines = ["A dog.", "no no no no"] * 5
    assert symptoms(lines, lines) == []


def test_tokenised_references_are_told_whatever_the_output_looks_like() -> None:
    refs = ["A dog.", "A cat ."] * 5
    for hyps in (refs, ["A dog."] * 10):
        (told,) = symptoms(hyps, refs)
        assert re.match(r"5 of 10 references .* line 2: they look tokenised", told)


@pytest.mark.parametrize(
    ("odd", "is_told"),
    [
        ("A cafe\u0301.", True),
        ("Pass\u00adwort", True),
        ("A  café ,\tnow\r", False),
        ("می‌رود", False),
    ],
    ids=["not NFC", "soft hyphen", "white space", "joiner"],
)
def test_references_that_no_translation_can_equal_are_told(odd: str, is_told: bool) -> None:
    refs = ["A dog."] * 9 + [odd]
    told = symptoms(["A dog."] * 10, refs)
    assert len(told) == is_told
    assert all(re.match(r"1 of 10 references, .* line 10, .*NFC", each) for each in told)
