"""BLEU's counts of sentences: what they give is what sacreBLEU's command gives of the lines."""

from pathlib import Path

import numpy as np
import pytest
from recorded import HYPS, OTHERS, REFS, counts
from records.sentence_statistics import bleu_of, p_value, pack, unpack
from sacrebleu_command import command_p_values, command_scores

from mt_cli.errors import DataError


def test_packed_counts_give_sacrebleus_bleu(tmp_path: Path) -> None:
    odd = ["", "a", *HYPS[2:]]  # shorter than four words
    kept = unpack(pack(counts(odd)), n=len(odd))
    assert np.array_equal(kept, counts(odd))
    assert f"{bleu_of(kept):.10f}" == command_scores(tmp_path, odd, REFS)["BLEU"]


def test_p_value_is_that_of_sacrebleus_command(tmp_path: Path) -> None:
    expected = command_p_values(tmp_path, HYPS, OTHERS, REFS, "--paired-ar")["BLEU"]
    p = p_value(counts(HYPS), counts(OTHERS))
    assert p is not None
    assert f"{p:.4f}" == expected


def test_equal_scores_have_no_p_value() -> None:
    assert p_value(counts(HYPS), counts(HYPS)) is None


@pytest.mark.parametrize("num_changed", [1, 3, 6])
def test_changes_in_one_direction_are_as_likely_as_coins_that_all_agree(num_changed: int) -> None:
    changed = counts([*OTHERS[:num_changed], *HYPS[num_changed:]])
    p = p_value(counts(HYPS), changed, trials=4000)
    assert p == pytest.approx(2 / 2**num_changed, abs=0.02)


@pytest.mark.parametrize("text", ["", "no base64!", "AAAA"])
def test_damaged_counts_are_refused(text: str) -> None:
    with pytest.raises(DataError, match="no statistics of 3 sentences"):
        unpack(text, n=3)
