"""Word differences against hand-worked pairs, and that no letter is lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mt_cli.translation.word_differences import Span, word_differences

LINES = st.text(alphabet="ab ,.\tÄß", max_size=30)


def bracketed(spans: tuple[Span, ...]) -> str:
    return "".join(span.text if span.is_shared else f"[{span.text}]" for span in spans)


@pytest.mark.parametrize(
    ("hyp", "ref", "marked_hyp", "marked_ref"),
    [
        ("A dog runs.", "A dog runs.", "A dog runs.", "A dog runs."),
        ("A dog runs.", "A cat runs.", "A [dog] runs.", "A [cat] runs."),
        ("A big dog runs.", "A dog runs .", "A [big] dog runs.", "A dog runs ."),
        ("two small dogs", "a cat", "[two small dogs]", "[a cat]"),
        ("a x y b", "a b", "a [x y] b", "a b"),
        ("", "a b", "", "[a b]"),
        ("the The", "The", "[the] The", "The"),
    ],
)
def test_words_that_the_other_line_lacks_are_marked(
    hyp: str, ref: str, marked_hyp: str, marked_ref: str
) -> None:
    found = word_differences(hyp, ref)
    assert (bracketed(found.hyp), bracketed(found.ref)) == (marked_hyp, marked_ref)


@given(LINES, LINES)
def test_spans_of_a_line_are_the_line(hyp: str, ref: str) -> None:
    found = word_differences(hyp, ref)
    assert "".join(span.text for span in found.hyp) == hyp
    assert "".join(span.text for span in found.ref) == ref


@given(LINES, LINES)
def test_shared_words_are_the_same_in_both_lines(hyp: str, ref: str) -> None:
    found = word_differences(hyp, ref)
    shared = ["".join(s.text for s in side if s.is_shared).split() for side in (found.hyp, found.ref)]
    assert "".join(shared[0]) == "".join(shared[1])
