"""The tokenizers of both sides: interface, storage and learning."""

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict

from mt_cli.config.schema import Language, TokenizerConfig, TokenizerKind
from mt_cli.errors import DataError
from mt_cli.machine.files import parsed, read_file
from mt_cli.text import SPECIALS
from mt_cli.text.normalize import normalize
from mt_cli.text.subwords import SubwordTokenizer, learn_subwords
from mt_cli.text.words import WordTokenizer, learn_vocabulary, split_words

Item = TypeVar("Item")
TOKENIZER_FOLDER = "tokenizer"
"""Folder name in prepared data and in runs."""
DESCRIPTION = "tokenizer.json"


@dataclass(frozen=True)
class TextOptions:
    """Languages and case of the text before tokenization."""

    src_lang: str
    tgt_lang: str
    lowercase: bool


Tokenizer = WordTokenizer | SubwordTokenizer
"""Converts one side's normalized text to ids, without `<s>` and `</s>`, and back."""


@dataclass(frozen=True)
class Learnt:
    """The source characters that a model can know, by its vocabulary."""

    characters: frozenset[str]
    """Characters that are in the vocabulary, other than as bytes or `<unk>`."""
    is_lowercase: bool = False

    def lacks(self, text: str) -> set[str]:
        """The characters of the normalized `text` that the vocabulary lacks."""
        return set(text.lower() if self.is_lowercase else text) - self.characters


@dataclass(frozen=True)
class Tokenizers:
    """The tokenizers of both sides, with the options of their text."""

    src: Tokenizer
    tgt: Tokenizer
    """The same object as `src` for joint subwords."""
    kind: TokenizerKind
    joint: bool
    options: TextOptions

    def encode(self, lines: Sequence[str], side: Literal["src", "tgt"]) -> list[list[int]]:
        """Normalize `lines` like the training text, and encode them."""
        tokenizer = self.src if side == "src" else self.tgt
        return tokenizer.encode(
            [normalize(line, lowercase=self.options.lowercase) for line in lines]
        )

    @cached_property
    def learnt(self) -> Learnt:
        """The source characters that the model can know."""
        unknown = {*range(len(SPECIALS)), *self.src.unknown_ids}
        entries = [entry for i, entry in enumerate(self.src.entries) if i not in unknown]
        return Learnt(frozenset(chain(" ", *entries)), is_lowercase=self.options.lowercase)

    def to_files(self) -> dict[str, bytes]:
        """File contents by name, to be read by `from_files`."""
        description = _Description(
            format=1, kind=self.kind, joint=self.joint, **asdict(self.options)
        )
        src_name, tgt_name = _file_names(self.kind, joint=self.joint)
        return {
            DESCRIPTION: (description.model_dump_json(indent=2) + "\n").encode(),
            src_name: self.src.to_bytes(),
            tgt_name: self.tgt.to_bytes(),  # the same file for joint tokenizers
        }

    @staticmethod
    def read(paths: Iterable[Path]) -> "Tokenizers":
        """Read the files that `to_files` made."""
        return Tokenizers.from_files({path.name: read_file(path) for path in paths})

    @staticmethod
    def from_files(files: Mapping[str, bytes]) -> "Tokenizers":
        """Load the tokenizers that `to_files` wrote.

        Raises:
            DataError: a file is missing or malformed.
        """

        def content_of(name: str) -> bytes:
            if name not in files:
                raise DataError(f"{name}: missing; found {', '.join(sorted(files)) or 'nothing'}")
            return files[name]

        description = parsed(_Description, content_of(DESCRIPTION), DESCRIPTION)
        kind = description.kind
        joint = description.joint

        def read(name: str, lang: str) -> Tokenizer:
            if kind == "spacy":
                return WordTokenizer.from_bytes(lang, content_of(name))
            return SubwordTokenizer(content_of(name), kind)

        src_name, tgt_name = _file_names(kind, joint=joint)
        src = read(src_name, description.src_lang)
        tgt = src if joint and kind != "spacy" else read(tgt_name, description.tgt_lang)
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
    pattern = "vocab.{}.json" if kind == "spacy" else "{}.model"
    if joint:
        return pattern.format("joint"), pattern.format("joint")
    return pattern.format("src"), pattern.format("tgt")


class Sample(Generic[Item]):
    """A reproducible uniform random sample of a stream (Vitter 1985, algorithm R).

    A stream of at most `size` items is kept as a whole, in order.
    """

    def __init__(self, size: int) -> None:
        self.items: list[Item] = []
        self._size = size
        self._num_seen = 0
        self._rng = random.Random(0)

    def extend(self, items: Iterable[Item]) -> None:
        """Sample from the next `items` of the stream."""
        for item in items:
            self._num_seen += 1
            if self._num_seen <= self._size:
                self.items.append(item)
                continue
            place = self._rng.randrange(self._num_seen)
            if place < self._size:
                self.items[place] = item


def _count_words(texts: Iterable[str], lang: str) -> Counter[str]:
    """Count the words in `texts`."""
    counts: Counter[str] = Counter()
    for text in texts:
        (words,) = split_words([text], lang)
        counts.update(words)
    return counts


def learn_tokenizers(
    pairs: Sequence[tuple[str, str]], config: TokenizerConfig, options: TextOptions
) -> Tokenizers:
    """Learn tokenizers from normalized `pairs`: spaCy words, or subwords."""
    src_size = config.vocab_size
    tgt_size = config.tgt_vocab_size or config.vocab_size
    src_texts = [src for src, _ in pairs]
    tgt_texts = [tgt for _, tgt in pairs]
    if config.kind == "spacy":
        src_words = _count_words(src_texts, options.src_lang)
        tgt_words = _count_words(tgt_texts, options.tgt_lang)
        if config.joint:
            src_words += tgt_words
            tgt_words = src_words
        src_entries = learn_vocabulary(src_words, max_size=src_size, min_freq=config.min_freq)
        tgt_entries = learn_vocabulary(tgt_words, max_size=tgt_size, min_freq=config.min_freq)
        src_tokenizer = WordTokenizer(options.src_lang, src_entries)
        tgt_tokenizer = WordTokenizer(options.tgt_lang, tgt_entries)
        return Tokenizers(src_tokenizer, tgt_tokenizer, config.kind, config.joint, options)
    learn = partial(learn_subwords, kind=config.kind, split_digits=config.split_digits)
    if config.joint:
        src = tgt = learn(chain.from_iterable(pairs), vocab_size=src_size)
    else:
        src = learn(src_texts, vocab_size=src_size)
        tgt = learn(tgt_texts, vocab_size=tgt_size)
    return Tokenizers(src, tgt, config.kind, config.joint, options)
