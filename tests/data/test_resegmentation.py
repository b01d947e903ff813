"""BPE-dropout: the text stays, its splits change."""

from pathlib import Path

import numpy as np
from learned import learn_tokenizers

from mt_cli.config import TokenizerConfig
from mt_cli.data.encoded import EncodedSplit, Sequences
from mt_cli.data.normalize import normalize
from mt_cli.data.resegmentation import Resegmenter

SAMPLE = Path(__file__).parents[2] / "data" / "sample"
PAIRS = [
    (normalize(src), normalize(tgt))
    for src, tgt in zip(
        *(SAMPLE.joinpath(f"train.{lang}").read_text("utf-8").splitlines()[:300] for lang in ("de", "en")),
        strict=True,
    )
]
TOKENIZERS = learn_tokenizers(
    PAIRS, TokenizerConfig(vocab_size=500, joint=False), src_lang="de", tgt_lang="en", lowercase=False
)
SPLIT = EncodedSplit(
    Sequences.of(TOKENIZERS.src.encode([src for src, _ in PAIRS]), vocab_size=500),
    Sequences.of(TOKENIZERS.tgt.encode([tgt for _, tgt in PAIRS]), vocab_size=500),
)
INDICES = np.array([7, 0, 299, 7])


def resegmented(*, dropout: float = 0.3, max_len: int = 100, seed: int = 1) -> EncodedSplit:
    return Resegmenter(TOKENIZERS, dropout=dropout, max_len=max_len)(SPLIT, INDICES, seed=seed)


def ids_of(split: EncodedSplit) -> list[list[int]]:
    return [[int(i) for i in side[row]] for side in (split.src, split.tgt) for row in range(len(side))]


def test_both_sides_spell_the_same_text_in_the_order_asked_for() -> None:
    fresh = ids_of(resegmented())
    assert TOKENIZERS.src.decode(fresh[:4]) == [PAIRS[i][0] for i in INDICES]
    assert TOKENIZERS.tgt.decode(fresh[4:]) == [PAIRS[i][1] for i in INDICES]


def test_more_dropout_makes_more_pieces() -> None:
    sizes = [sum(map(len, ids_of(resegmented(dropout=dropout)))) for dropout in (0.0, 0.1, 0.5, 0.99)]
    assert sizes == sorted(set(sizes))
    assert sizes[0] == sum(len(side[int(i)]) for side in (SPLIT.src, SPLIT.tgt) for i in INDICES)


def test_seed_decides_the_splits() -> None:
    assert ids_of(resegmented(seed=3)) == ids_of(resegmented(seed=3)) != ids_of(resegmented(seed=4))


def test_a_sentence_that_would_grow_too_long_stays_as_it_was() -> None:
    longest = max(len(side[int(i)]) for side in (SPLIT.src, SPLIT.tgt) for i in INDICES)
    fresh = resegmented(dropout=0.99, max_len=longest)
    plain = [[int(i) for i in side[int(row)]] for side in (SPLIT.src, SPLIT.tgt) for row in INDICES]
    assert ids_of(fresh) == plain
