"""Tokenizers learned from pairs at hand, as `prepare` learns them from a corpus."""

from collections.abc import Iterable

from mt_cli.config.schema import FilterConfig, TokenizerConfig
from mt_cli.data.prepare import survey_pairs
from mt_cli.text import tokenizer
from mt_cli.text.tokenizer import TextOptions, Tokenizers


def learn_tokenizers(
    pairs: Iterable[tuple[str, str]],
    config: TokenizerConfig,
    *,
    src_lang: str,
    tgt_lang: str,
    lowercase: bool,
) -> Tokenizers:
    """Tokenizers of both sides, learned from normalised `pairs`."""
    options = TextOptions(src_lang, tgt_lang, lowercase)
    raw = [(src.encode(), tgt.encode()) for src, tgt in pairs]
    found = survey_pairs(raw, options=options, filtered=FilterConfig(), kind=config.kind)
    return tokenizer.learn_tokenizers(found.src_words, found.tgt_words, found.pairs, config, options)
