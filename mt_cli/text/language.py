"""Which language a text is in, as py3langid tells (Lui and Baldwin 2012)."""

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier

CLEARLY = 0.9
"""Probability from which on a guess counts."""


def other_language(text: str, lang: str) -> str | None:
    """The language that `text` clearly is in, if it is not `lang`.

    None too if `lang` is a language that py3langid does not know.
    """
    identifier = _identifier()
    found, probability = identifier.classify(text)
    is_other = found != lang and probability > CLEARLY and lang in identifier.labels
    return str(found) if is_other else None


def is_known(lang: str) -> bool:
    """Whether py3langid knows a language."""
    return lang in _identifier().labels


@cache
def _identifier() -> "LanguageIdentifier":
    from py3langid.langid import MODEL_FILE, LanguageIdentifier  # late: its model takes half a second

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
