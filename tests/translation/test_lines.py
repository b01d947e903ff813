"""Parts of a line, joined again."""

from mt_cli.translation.lines import Translation, joined

DOG = Translation("A dog.", -1.5, ("A", "dog", "."), ("Ein", "Hund", "."), ((0, 0), (1, 1), (2, 2)))
CAT = Translation("Cats!", -0.5, ("Cats", "!"), ("Die", "Katzen", "hier", "!"), ((1, 0), (3, 1)))
NOTHING = Translation("", -0.25, (), ("Ach",), ())


def test_one_part_is_the_whole() -> None:
    assert joined([DOG], space=" ") is DOG


def test_places_in_later_parts_follow_those_of_earlier_ones() -> None:
    whole = joined([DOG, CAT, DOG], space=" ")
    assert whole.text == "A dog. Cats! A dog."
    assert whole.score == -3.5
    assert whole.tokens == (*DOG.tokens, *CAT.tokens, *DOG.tokens)
    assert whole.src_tokens == (*DOG.src_tokens, *CAT.src_tokens, *DOG.src_tokens)
    assert whole.alignment == ((0, 0), (1, 1), (2, 2), (4, 3), (6, 4), (7, 5), (8, 6), (9, 7))


def test_part_without_tokens_still_counts_in_the_source() -> None:
    whole = joined([NOTHING, DOG], space=" ")
    assert whole.text == "A dog."
    assert whole.alignment == ((1, 0), (2, 1), (3, 2))
