"""Which training pairs are left out by their text, before any tokenizer is learned."""

from mt_cli.config.schema import DataConfig, FilterConfig
from mt_cli.text.language import other_language
from mt_cli.text.tokenizer import TextOptions

KEPT, EMPTY, DUPLICATE = "", "empty", "duplicates"
REASONS = (KEPT, EMPTY, "copies", "max_ratio", "min_chars", "max_chars", "languages", DUPLICATE)
"""Why a pair is left out: a side is empty, or a key of [data.filter]. Arrays hold places in this
list.
"""


def text_options(data: DataConfig) -> TextOptions:
    """What `[data]` says of the text."""
    return TextOptions(data.src_lang, data.tgt_lang, data.lowercase)


def drop_reason(src: str, tgt: str, config: FilterConfig, options: TextOptions) -> str:
    """Why this normalised pair is left out, judged alone (repeats are found later); `KEPT` if it
    stays.
    """
    shorter, longer = sorted((len(src), len(tgt)))
    reason = KEPT
    if not shorter:
        reason = EMPTY
    elif config.copies and src == tgt:
        reason = "copies"
    elif config.max_ratio and longer > config.max_ratio * shorter:
        reason = "max_ratio"
    elif shorter < config.min_chars:
        reason = "min_chars"
    elif config.max_chars and longer > config.max_chars:
        reason = "max_chars"
    elif config.languages and (
        other_language(src, options.src_lang) or other_language(tgt, options.tgt_lang)
    ):
        reason = "languages"
    return reason
