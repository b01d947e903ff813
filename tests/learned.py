"""Tokenizers learned from pairs at hand."""

from collections.abc import Iterable

from mt_cli.config.schema import TokenizerConfig
from mt_cli.text import tokenizers
from mt_cli.text.tokenizers import TextOptions, Tokenizers


def learn_tokenizers(
    pairs: Iterable[tuple[str, str]],
    config: TokenizerConfig,
    *,
    src_lang: str,
    tgt_lang: str,
    lowercase: bool,
) -> Tokenizers:
    """Tokenizers of both sides, learned from normalised `pairs`."""
    return tokenizers.learn_tokenizers(
        list(pairs), config, TextOptions(src_lang, tgt_lang, lowercase)
    )
