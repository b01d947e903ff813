"""Tokenizers of both sides: their interface, how they are stored, and how they are learned.

Learning takes memory that does not grow with the corpus.
"""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal, Protocol

from pydantic import BaseModel, ConfigDict, ValidationError

from mt_cli.config.schema import Language, TokenizerConfig, TokenizerKind
from mt_cli.errors import DataError
from mt_cli.text import SPECIALS
from mt_cli.text.normalize import normalize
from mt_cli.text.subwords import SubwordTokenizer, learn_subwords
from mt_cli.text.words import Vocabulary, WordTokenizer, count_words, learn_vocabulary

DESCRIPTION = "tokenizer.json"
FORMAT: Literal[1] = 1


@dataclass(frozen=True)
class TextOptions:
    """What has to be known of the text before it is tokenised."""

    src_lang: str
    tgt_lang: str
    lowercase: bool


class Tokenizer(Protocol):
    """Converts one side's normalised text to ids, without `<s>` and `</s>`, and back."""

    @property
    def vocab_size(self) -> int:
        """Entries, special symbols included."""

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each normalised text."""

    def decode(self, sequences: Sequence[Sequence[int]]) -> list[str]:
        """Text of each sequence of ids, one line each; padding and sentence ends are skipped."""

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """The tokens that `ids` stand for, in readable form."""

    @property
    def entries(self) -> list[str]:
        """A string for each id, no two alike."""

    def to_bytes(self) -> bytes:
        """The tokenizer in serialised form."""


@dataclass(frozen=True)
class Tokenizers:
    """The tokenizers of both sides, and how their text was normalised."""

    src: Tokenizer
    tgt: Tokenizer
    """The same object as `src` for joint subwords."""
    kind: TokenizerKind
    joint: bool
    options: TextOptions

    def encode(self, lines: Sequence[str], side: Literal["src", "tgt"]) -> list[list[int]]:
        """Ids of each of `lines`, which are normalised first, as the training text was."""
        tokenizer = self.src if side == "src" else self.tgt
        return tokenizer.encode([normalize(line, lowercase=self.options.lowercase) for line in lines])

    def to_files(self) -> dict[str, bytes]:
        """Content by file name; `from_files` reads it again."""
        description = _Description(format=FORMAT, kind=self.kind, joint=self.joint, **asdict(self.options))
        names = _file_names(self.kind, joint=self.joint)  # of joint ones, the same name twice
        return {
            DESCRIPTION: (description.model_dump_json(indent=2) + "\n").encode(),
            **{name: side.to_bytes() for name, side in zip(names, (self.src, self.tgt), strict=True)},
        }

    @staticmethod
    def from_files(files: Mapping[str, bytes]) -> "Tokenizers":
        """The tokenizers from which `to_files` made `files`.

        Raises:
            DataError: a file is missing or malformed.
        """
        description = _read_description(files)
        kind, joint = description.kind, description.joint
        src_name, tgt_name = names = _file_names(kind, joint=joint)
        for name in names:
            if name not in files:
                raise DataError(f"{name}: missing beside {DESCRIPTION}; found {', '.join(sorted(files))}")
        src = tgt = _read_tokenizer(kind, description.src_lang, src_name, files[src_name])
        if not joint:
            tgt = _read_tokenizer(kind, description.tgt_lang, tgt_name, files[tgt_name])
        elif isinstance(src, WordTokenizer):
            tgt = WordTokenizer(description.tgt_lang, src.vocabulary)
        options = TextOptions(description.src_lang, description.tgt_lang, description.lowercase)
        return Tokenizers(src, tgt, kind, joint, options)


class _Description(BaseModel):
    """`tokenizer.json`."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    format: Literal[1]
    kind: TokenizerKind
    joint: bool
    src_lang: Language
    tgt_lang: Language
    lowercase: bool


def _file_names(kind: TokenizerKind, *, joint: bool) -> tuple[str, str]:
    src, tgt = ("joint", "joint") if joint else ("src", "tgt")
    return (f"vocab.{src}.json", f"vocab.{tgt}.json") if kind == "spacy" else (f"{src}.model", f"{tgt}.model")


def _read_description(files: Mapping[str, bytes]) -> _Description:
    if DESCRIPTION not in files:
        raise DataError(f"{DESCRIPTION}: missing; found {', '.join(sorted(files)) or 'nothing'}")
    try:
        return _Description.model_validate_json(files[DESCRIPTION])
    except ValidationError as error:
        detail = error.errors()[0]
        place = ".".join(str(part) for part in detail["loc"])
        raise DataError(
            f"{DESCRIPTION}: {place}: {detail['msg']}; the file is damaged or of another version"
        ) from error


def _read_tokenizer(kind: TokenizerKind, lang: str, name: str, data: bytes) -> Tokenizer:
    try:
        return WordTokenizer.from_bytes(lang, data) if kind == "spacy" else SubwordTokenizer(data)
    except DataError as error:
        raise DataError(f"{name}: {error}") from error


SAMPLE_SIZE = 500_000
"""Subwords are learned from this many pairs, a million lines; more would change little and cost memory."""


@dataclass(frozen=True)
class WordCounts:
    """How often each word occurs on each side."""

    src: Counter[str] = field(default_factory=Counter)
    tgt: Counter[str] = field(default_factory=Counter)

    def update(self, other: "WordCounts") -> None:
        """Add the counts of further text."""
        self.src.update(other.src)
        self.tgt.update(other.tgt)


class PairSample:
    """A uniform random sample of a stream of pairs (Vitter 1985, algorithm R).

    If there are no more than `size` pairs, it keeps them all, in order.
    """

    def __init__(self, size: int, *, seed: int) -> None:
        self.pairs: list[tuple[str, str]] = []
        self._size = size
        self._seen = 0
        self._random = random.Random(seed)

    def add(self, pair: tuple[str, str]) -> None:
        """Offer the next pair of the stream."""
        self._seen += 1
        if len(self.pairs) < self._size:
            self.pairs.append(pair)
            return
        place = self._random.randrange(self._seen)
        if place < self._size:
            self.pairs[place] = pair


def count_pairs(pairs: Sequence[tuple[str, str]], options: TextOptions) -> WordCounts:
    """Word counts of normalised `pairs`."""
    return WordCounts(
        count_words([src for src, _ in pairs], options.src_lang),
        count_words([tgt for _, tgt in pairs], options.tgt_lang),
    )


def build_word_tokenizers(counts: WordCounts, config: TokenizerConfig, options: TextOptions) -> Tokenizers:
    """Tokenizers with spaCy's rules and vocabularies ordered by frequency.

    Raises:
        DataError: a vocabulary has no word.
    """

    def learn(words: Counter[str], size: int) -> Vocabulary:
        found = learn_vocabulary(words, max_size=size, min_freq=config.min_freq)
        if len(found) == len(SPECIALS):
            raise DataError(
                f"no word occurs tokenizer.min_freq = {config.min_freq} times in the training text; lower it"
            )
        return found

    if config.joint:
        src = tgt = learn(counts.src + counts.tgt, config.vocab_size)
    else:
        src = learn(counts.src, config.vocab_size)
        tgt = learn(counts.tgt, config.tgt_vocab_size or config.vocab_size)
    return Tokenizers(
        WordTokenizer(options.src_lang, src),
        WordTokenizer(options.tgt_lang, tgt),
        "spacy",
        config.joint,
        options,
    )


def learn_subword_tokenizers(
    pairs: Sequence[tuple[str, str]], config: TokenizerConfig, options: TextOptions
) -> Tokenizers:
    """SentencePiece subwords learned from `pairs`."""
    kind = config.kind
    assert kind != "spacy"
    if config.joint:
        both = (text for pair in pairs for text in pair)
        src = tgt = learn_subwords(both, kind=kind, vocab_size=config.vocab_size)
    else:
        tgt_size = config.tgt_vocab_size or config.vocab_size
        src = learn_subwords((src for src, _ in pairs), kind=kind, vocab_size=config.vocab_size)
        tgt = learn_subwords((tgt for _, tgt in pairs), kind=kind, vocab_size=tgt_size)
    return Tokenizers(src, tgt, kind, config.joint, options)
