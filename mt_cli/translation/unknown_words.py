"""`UnknownWords`: the source's own word where a word model would say `<unk>`.

Knows words and places; which word stands for which, the attention says.
"""

from collections.abc import Sequence

from mt_cli.config import DecodingConfig
from mt_cli.text.normalize import normalize
from mt_cli.text.symbols import BOS_ID, PAD_ID, UNK_ID
from mt_cli.text.tokenizer import Tokenizers
from mt_cli.text.words import WordTokenizer
from mt_cli.translation.lines import Part

NEVER_SAID = (PAD_ID, BOS_ID)
"""Symbols that no translation has."""


class UnknownWords:
    """Puts source words into translations of a word model."""

    def __init__(self, src: WordTokenizer, tgt: WordTokenizer) -> None:
        self._src, self._tgt = src, tgt

    @staticmethod
    def of(tokenizers: Tokenizers) -> "UnknownWords | None":
        """None for subwords, which know every word."""
        src, tgt = tokenizers.src, tokenizers.tgt
        if isinstance(src, WordTokenizer) and isinstance(tgt, WordTokenizer):
            return UnknownWords(src, tgt)
        return None

    def candidates(self, part: Part) -> Sequence[int]:
        """Places in `part` from which a word may come: of unknown words if there are any, else all."""
        # What is unknown in the translation is nearly always unknown in the source too.
        return [place for place, i in enumerate(part.ids) if i == UNK_ID] or range(len(part.ids))

    def replace(self, part: Part, hyp: Sequence[int], aligned: Sequence[int]) -> str:
        """The text of `hyp`, in which the word of `part` that it is `aligned` to stands for each `<unk>`."""
        words = self._src.marked_words(part.text)
        if len(words) != len(part.ids):  # in lower case, the words were others
            words = self._src.marked_words(normalize(part.text, lowercase=True))
        return self._tgt.decode_with(
            hyp, {i: words[aligned[i]] for i, each in enumerate(hyp) if each == UNK_ID}
        )


def forbidden_ids(tokenizers: Tokenizers, config: DecodingConfig) -> Sequence[int]:
    """Ids that a search may not choose. `<unk>` is one unless a word from the source will stand for it.

    No reader has any use for `<unk>`: the likeliest real word stands in its place then.
    """
    is_replaced = config.replace_unk and UnknownWords.of(tokenizers) is not None
    return NEVER_SAID if is_replaced else (*NEVER_SAID, UNK_ID)


def unk_rate(lines: Sequence[str], tokenizers: Tokenizers) -> float:
    """Share of the tokens of the source `lines` that the vocabulary lacks; subwords lack none."""
    lowercase = tokenizers.options.lowercase
    ids = tokenizers.src.encode([normalize(line, lowercase=lowercase) for line in lines])
    return sum(each.count(UNK_ID) for each in ids) / max(1, sum(map(len, ids)))
