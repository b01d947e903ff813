"""Which training pairs are left out by their text, before any tokenizer is learned."""

from mt_cli.config.schema import DataConfig, FilterConfig
from mt_cli.text.language import other_language
from mt_cli.text.tokenizers import TextOptions

KEPT = ""
EMPTY = "empty"
DUPLICATE = "duplicates"
REASONS = (KEPT, EMPTY, "copies", "max_ratio", "min_chars", "max_chars", "languages", DUPLICATE)
"""Why a pair is left out: a side is empty, or a key of [data.filter]; arrays hold their places."""


def text_options(data: DataConfig) -> TextOptions:
    """The options of the text in `[data]`."""
    return TextOptions(data.src_lang, data.tgt_lang, data.lowercase)


def drop_reason(  # noqa: PLR0911 — one return a rule
    src: str, tgt: str, config: FilterConfig, options: TextOptions
) -> str:
    """Why this normalized pair is left out, judged alone; `KEPT` if it stays."""
    shorter, longer = sorted((len(src), len(tgt)))
    if not shorter:
        return EMPTY
    if config.copies and src == tgt:
        return "copies"
    if config.max_ratio and longer > config.max_ratio * shorter:
        return "max_ratio"
    if shorter < config.min_chars:
        return "min_chars"
    if config.max_chars and longer > config.max_chars:
        return "max_chars"
    if config.languages and (
        other_language(src, options.src_lang) or other_language(tgt, options.tgt_lang)
    ):
        return "languages"
    return KEPT
