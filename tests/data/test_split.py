"""Encoded splits: sentences by index, in as few bytes as their ids need."""

import numpy as np
import pytest

from mt_cli.data.split import Sentences, id_type


def test_sentences_are_found_by_index() -> None:
    sequences = Sentences.of([[4, 5], [], [6]], vocab_size=10)
    assert len(sequences) == 3
    assert [sequences[i].tolist() for i in range(3)] == [[4, 5], [], [6]]
    assert sequences.lengths.tolist() == [2, 0, 1]


@pytest.mark.parametrize(("vocab_size", "expected"), [(65536, np.uint16), (65537, np.int32)])
def test_ids_take_two_bytes_where_they_fit(vocab_size: int, expected: type[np.generic]) -> None:
    largest = vocab_size - 1
    sequences = Sentences.of([[largest]], vocab_size=vocab_size)
    assert id_type(vocab_size) is expected
    assert sequences.ids.dtype == expected
    assert sequences[0].tolist() == [largest]
