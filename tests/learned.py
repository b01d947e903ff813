"""Tokenizers learned from pairs at hand, as `prepare` learns them from a corpus."""

from collections.abc import Iterable
from itertools import islice

from mt_cli.config.schema import TokenizerConfig
from mt_cli.text.tokenizer import (
    SAMPLE_SIZE,
    PairSample,
    TextOptions,
    Tokenizers,
    WordCounts,
    build_word_tokenizers,
    count_pairs,
    learn_subword_tokenizers,
)


def learn_tokenizers(
    pairs: Iterable[tuple[str, str]],
    config: TokenizerConfig,
    *,
    src_lang: str,
    tgt_lang: str,
    lowercase: bool,
    counted_together: int = 1000,
) -> Tokenizers:
    """Tokenizers of both sides, learned from normalised `pairs`."""
    options = TextOptions(src_lang, tgt_lang, lowercase)
    if config.kind == "spacy":
        counts, stream = WordCounts(), iter(pairs)
        while group := list(islice(stream, counted_together)):
            counts.update(count_pairs(group, options))
        return build_word_tokenizers(counts, config, options)
    sample = PairSample(SAMPLE_SIZE, seed=0)
    for pair in pairs:
        sample.add(pair)
    return learn_subword_tokenizers(sample.pairs, config, options)
