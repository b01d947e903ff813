"""Word tokenization by spaCy's rules, with marks to restore the text exactly, and vocabularies.

A token without a space before it starts with `JOINER`: "Hund." is "Hund", "￭.". If the text itself
contains a joiner or a special symbol, `ESCAPE` is put before it. The only module that imports
torchtext.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from mt_cli.errors import ConfigError, DataError
from mt_cli.machine.files import parsed
from mt_cli.text import INVISIBLE_IDS, SPECIALS, UNK_ID
from mt_cli.text.language import base_language

if TYPE_CHECKING:
    from spacy.language import Language


def learn_vocabulary(counts: Counter[str], *, max_size: int, min_freq: int) -> list[str]:
    """The special symbols, then the most frequent tokens, sorted by frequency and alphabet.

    `max_size` includes the special symbols.

    Raises:
        DataError: no token is frequent enough.
    """
    from torchtext.vocab import Vocab

    # Only the list of tokens is used: Vocab.stoi is a defaultdict that grows when read.
    built = Vocab(
        counts, max_size=max_size - len(SPECIALS), min_freq=min_freq, specials=list(SPECIALS)
    )
    if len(built.itos) == len(SPECIALS):
        raise DataError(f"no word occurs {min_freq} times; lower tokenizer.min_freq")
    return [str(token) for token in built.itos]


JOINER = "￭"
ESCAPE = "\u2060"
"""Word joiner: invisible and never in normalized text, so it needs no escape itself."""
MAX_CHUNK = 100
"""Longer chunks without white space are split losslessly: spaCy takes quadratic time for them."""
CACHED_CHUNKS = 1 << 18


class WordTokenizer:
    """Tokenizes one language into words, and maps them to ids by a vocabulary."""

    def __init__(self, lang: str, entries: Sequence[str]) -> None:
        """`entries` are the tokens of the vocabulary, with marks: "￭." is not ".".

        Raises:
            DataError: `entries` do not begin with the special symbols, or have duplicates.
        """
        self.lang = lang
        self.entries = list(entries)
        self.vocab_size = len(entries)
        self.unknown_ids = [UNK_ID]
        """Ids for words that are not in the vocabulary."""
        self._ids = {token: i for i, token in enumerate(entries)}
        if self.entries[: len(SPECIALS)] != list(SPECIALS):
            raise DataError(f"the vocabulary does not begin with {' '.join(SPECIALS)}")
        if len(self._ids) != len(entries):
            twice = next(token for i, token in enumerate(entries) if self._ids[token] != i)
            raise DataError(f"the vocabulary has the token {twice!r} twice")

    @classmethod
    def from_bytes(cls, lang: str, data: bytes) -> "WordTokenizer":
        """Load a tokenizer from the output of `to_bytes`.

        Raises:
            DataError: `data` is not a vocabulary.
        """
        tokens = parsed(list[str], data, "a vocabulary")
        if any("\n" in token for token in tokens):
            raise DataError("the vocabulary has a token that contains a line break")
        return cls(lang, tokens)

    def to_bytes(self) -> bytes:
        """The vocabulary as JSON, one token per line; a token's id is its line number minus two."""
        # ASCII only, because some characters in tokens look like line ends to editors.
        return json.dumps(self.entries, indent=0).encode()

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode normalized texts; words that are not in the vocabulary become `<unk>`."""
        sequences = []
        for tokens in split_words(texts, self.lang):
            sequences.append([self._ids.get(token, UNK_ID) for token in tokens])
        return sequences

    def decode(self, sequences: Sequence[Sequence[int]]) -> list[str]:
        """Decode sequences of ids."""
        return [join_words(self._marked_tokens(ids)) for ids in sequences]

    def is_broken(self, ids: Sequence[int]) -> bool:
        """Always False: words have no bytes."""
        return False

    def begins_word(self, token_id: int) -> bool:
        """Whether there is a space before the token."""
        return not self.entries[token_id].startswith(JOINER)

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """The words of `ids`, without marks, padding and sentence ends."""
        marked = self._marked_tokens(ids)
        return [token.removeprefix(JOINER).replace(ESCAPE, "") for token in marked]

    def _marked_tokens(self, ids: Sequence[int]) -> list[str]:
        return [self.entries[i] for i in ids if i not in INVISIBLE_IDS]


def split_words(texts: Sequence[str], lang: str) -> list[list[str]]:
    """Tokens of each normalized text, marked so that `join_words` gives the text back.

    spaCy's rules never look past white space, so each chunk between spaces is split once.
    """
    split_texts = []
    # spaCy caches every word it has seen; the memory zone frees them.
    with _rules(lang).memory_zone():
        for text in texts:
            tokens: list[str] = []
            for chunk in text.split():
                tokens += _split_chunk(chunk, lang)
            split_texts.append(tokens)
    return split_texts


@cache
def _rules(lang: str) -> "Language":
    """SpaCy's tokenization rules for one language."""
    import spacy  # lazily: it takes seconds

    try:
        return spacy.blank(base_language(lang))
    except ImportError as error:
        raise ConfigError(
            f"spaCy has no rules for '{lang}'; use tokenizer.kind = \"bpe\""
        ) from error


@lru_cache(CACHED_CHUNKS)
def _split_chunk(chunk: str, lang: str) -> tuple[str, ...]:
    tokens: list[str] = []
    for begin in range(0, len(chunk), MAX_CHUNK):
        for word in _rules(lang).make_doc(chunk[begin : begin + MAX_CHUNK]):
            escaped = _escape(word.text)
            tokens.append(JOINER + escaped if tokens else escaped)
    return tuple(tokens)


def join_words(tokens: Iterable[str]) -> str:
    """Restore the text from marked `tokens`."""
    pieces = []
    for token in tokens:
        pieces.append(token.removeprefix(JOINER) if token.startswith(JOINER) else f" {token}")
    return "".join(pieces).replace(ESCAPE, "").removeprefix(" ")


def _escape(word: str) -> str:
    escaped = word.replace(JOINER, ESCAPE + JOINER)
    return ESCAPE + escaped if escaped in SPECIALS else escaped
