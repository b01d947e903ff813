"""What looks wrong with translations, whatever they score."""

import pytest

from mt_cli.translation.symptoms import is_looping, is_tokenised, symptoms

GOOD = ["A man sleeps.", "Two dogs play, and a cat watches.", "Is it very, very, very cold?", ""]


@pytest.mark.parametrize("line", GOOD)
def test_ordinary_line_has_no_symptom(line: str) -> None:
    assert not is_tokenised(line)
    assert not is_looping(line)


@pytest.mark.parametrize("line", ["A man sleeps .", "A man , a dog !", "Is it cold ? "])
def test_space_before_the_last_mark_looks_tokenised(line: str) -> None:
    assert is_tokenised(line)


@pytest.mark.parametrize(
    "line",
    [
        "dog dog dog dog",
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
    assert tokenised.startswith(
        "2 of 4 lines end in a space and a mark, such as line 1: the output looks tokenised"
    )
    assert looping.startswith("1 of 4 lines say the same over and over, such as line 3: ")


def test_references_that_look_the_same_excuse_the_output() -> None:
    lines = ["A dog .", "no no no no"] * 5
    assert symptoms(lines, lines) == []
