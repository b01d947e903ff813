"""`Vocabulary`: tokens and their ids, the special symbols first.

The one module that imports torchtext. Knows tokens, never how text becomes tokens.
"""

from collections import Counter
from collections.abc import Sequence

from mt_cli.errors import DataError
from mt_cli.text.symbols import SPECIALS, UNK_ID


class Vocabulary:
    """Tokens by id and ids by token; unknown tokens have the id of `<unk>`."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self.tokens = tuple(tokens)
        self._ids = {token: i for i, token in enumerate(self.tokens)}
        if self.tokens[: len(SPECIALS)] != SPECIALS:
            raise DataError(f"a vocabulary begins with {' '.join(SPECIALS)}, found {self.tokens[:4]}")
        if len(self._ids) != len(self.tokens):
            twice = next(token for i, token in enumerate(self.tokens) if self._ids[token] != i)
            raise DataError(f"a vocabulary names each token once; {twice!r} is there twice")

    def __len__(self) -> int:
        return len(self.tokens)

    def id_of(self, token: str) -> int:
        """Id of `token`, or that of `<unk>`."""
        return self._ids.get(token, UNK_ID)


def learn_vocabulary(counts: Counter[str], *, max_size: int, min_freq: int) -> Vocabulary:
    """The most frequent tokens, alphabetically where equally frequent; `max_size` counts the specials."""
    from torchtext.vocab import Vocab

    # Vocab.stoi is a defaultdict that grows when read, so only the list of tokens is taken.
    built = Vocab(counts, max_size=max_size - len(SPECIALS), min_freq=min_freq, specials=list(SPECIALS))
    return Vocabulary([str(token) for token in built.itos])
