"""A line's translation, put together from those of its parts."""

import xml.etree.ElementTree as ET

from mt_cli.translation.lines import Translation, joined

DOG = Translation("A dog.", -1.5, ("A", "dog", "."), ("Ein", "Hund", "."), ((0, 0), (1, 1), (2, 2)))
CAT = Translation("Cats!", -0.5, ("Cats", "!"), ("Die", "Katzen", "hier", "!"), ((1, 0), (3, 1)))
NOTHING = Translation("", -0.25, (), ("Ach",), ())


def test_one_part_is_the_whole() -> None:
    assert joined([DOG]) is DOG


def test_places_in_later_parts_follow_those_of_earlier_ones() -> None:
    whole = joined([DOG, CAT, DOG])
    assert whole.text == "A dog. Cats! A dog."
    assert whole.score == -3.5
    assert whole.tokens == ("A", "dog", ".", "Cats", "!", "A", "dog", ".")
    assert whole.src_tokens == ("Ein", "Hund", ".", "Die", "Katzen", "hier", "!", "Ein", "Hund", ".")
    assert whole.alignment == ((0, 0), (1, 1), (2, 2), (4, 3), (6, 4), (7, 5), (8, 6), (9, 7))


def test_part_without_tokens_still_counts_in_the_source() -> None:
    assert joined([NOTHING, DOG]).alignment == ((1, 0), (2, 1), (3, 2))


def test_notebook_takes_no_text_for_markup_or_a_formula() -> None:
    awkward = "<script>alert('&amp;')</script> $x$ \"q\""
    html = Translation(awkward, 0.0, (awkward,), (awkward,), ((0, 0),))._repr_html_()
    shown = ET.fromstring(html)
    assert [cell.text for cell in shown.iter("td")] == [awkward, awkward]
    assert next(shown.iter("p")).text == f"{awkward} "
    assert list(shown.iter("script")) == []
    assert shown.attrib["class"] == "tex2jax_ignore mathjax_ignore"
