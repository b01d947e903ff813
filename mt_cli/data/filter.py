"""Which training pairs are left out by their text, before any tokenizer is learned."""

from mt_cli.config.schema import FilterConfig
from mt_cli.text.language import other_language
from mt_cli.text.tokenizer import TextOptions

KEPT = ""
EMPTY, COPY, RATIO = "empty", "the same on both sides", "unlike lengths"
SHORT, LONG, LANGUAGE = "too few characters", "too many characters", "another language"
DUPLICATE = "repeats another"
REASONS = (KEPT, EMPTY, COPY, RATIO, SHORT, LONG, LANGUAGE, DUPLICATE)
"""Why a pair is left out; a number is its place here."""


def reason_of(src: str, tgt: str, config: FilterConfig, options: TextOptions) -> str:
    """Why the normalised pair is left out by itself, or `KEPT`. That it repeats another is not known here."""
    shorter, longer = sorted((len(src), len(tgt)))
    reason = KEPT
    if not shorter:
        reason = EMPTY
    elif config.copies and src == tgt:
        reason = COPY
    elif config.max_ratio and longer > config.max_ratio * shorter:
        reason = RATIO
    elif shorter < config.min_chars:
        reason = SHORT
    elif config.max_chars and longer > config.max_chars:
        reason = LONG
    elif config.languages and (
        other_language(src, options.src_lang) or other_language(tgt, options.tgt_lang)
    ):
        reason = LANGUAGE
    return reason
