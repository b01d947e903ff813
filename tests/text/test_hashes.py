"""Hashes of texts, against what `b2sum -l 64` says."""

from mt_cli.text.hashes import hash_texts


def test_hash_is_that_of_the_texts_utf_8() -> None:
    assert hash_texts(["ein Hündchen"]).tobytes().hex() == "4ba63caf60c965f6"


def test_each_text_has_its_own_hash_in_order() -> None:
    first, second, third = hash_texts(["ein Hund", "", "ein Hund"])
    assert first == third != second


def test_no_texts_have_no_hashes() -> None:
    assert hash_texts([]).shape == (0,)
