"""The first steps for a line: cut out what stays untranslated, split the rest, encode the parts."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from mt_cli.errors import UsageError
from mt_cli.text import UNK_ID
from mt_cli.text.normalize import normalize, read_capitals
from mt_cli.text.sentences import split_sentences, split_text
from mt_cli.text.tokenizers import Learnt, Tokenizers
from mt_cli.translation.engine import Engine
from mt_cli.translation.untranslated import INDENTATION, Segment, cut

ALIKE = ("'’ʼ´`", "-‐‑")
"""Groups of characters within words that people type in place of each other."""


@dataclass(frozen=True)
class Part:
    """A line, or a piece of it that is short enough for the model."""

    text: str
    """Normalized; its case may be changed by `decoding.capitals`."""
    ids: list[int]
    prefix: Sequence[int] = ()
    """Ids that its translation begins with."""


@dataclass(frozen=True)
class Line:
    """A line, ready to be translated."""

    original: str
    text: str
    """The text to translate; empty if nothing is translated."""
    segments: Sequence[Segment] = ()
    """What stays untranslated."""
    parts: Sequence[Part] = field(default=(), repr=False)
    """`text` in pieces for the model: usually one; none if nothing is translated."""
    unlearnt: tuple[str, ...] = ()
    """Letters of `text` that the model never saw in training."""
    is_split: bool = False
    """Whether a sentence was too long for the model and had to be split."""


def checked_lines(lines: Iterable[str]) -> list[str]:
    """`lines` as a list, after checking that each is a line.

    Raises:
        UsageError: `lines` is something else, such as a single str.
    """
    if isinstance(lines, str):
        raise UsageError("lines: expected a list of lines, found a str")
    if isinstance(lines, bytes) or not isinstance(lines, Iterable):
        raise UsageError(f"lines: expected a list of lines, found {type(lines).__name__}")
    return [checked_line(line, name=f"lines[{i}]") for i, line in enumerate(lines)]


def checked_line(line: object, *, name: str) -> str:
    """`line`, after checking that it is a single line; errors call it `name`.

    Raises:
        UsageError: it is not a str, or has several lines.
    """
    if not isinstance(line, str):
        raise UsageError(f"{name}: expected a str, found {line!r:.60}")
    if "\n" in line:
        raise UsageError(f"{name}: expected one line, found {line!r:.60}; split it at line ends")
    return line


def read_lines(
    lines: Sequence[str], engine: Engine, tokenizers: Tokenizers, *, prefix: Sequence[int] = ()
) -> list[Line]:
    """Prepare each of `lines` for translation; `prefix` goes to the first part of each."""
    texts = []
    kept = []
    for original in lines:
        text, segments = _cut(original, tokenizers.learnt)
        texts.append(read_capitals(text, engine.config.capitals))
        kept.append(segments)
    encoded = tokenizers.encode(texts, "src")
    read = []
    for original, text, segments, ids in zip(lines, texts, kept, encoded, strict=True):
        parts, is_split = _split(text, ids, engine, tokenizers)
        if parts and prefix:
            parts[0] = replace(parts[0], prefix=prefix)
        unlearnt = [each for each in tokenizers.learnt.lacks(text) if each.isalpha()]
        read.append(
            Line(
                original,
                text,
                segments,
                parts,
                unlearnt=tuple(sorted(unlearnt, key=text.find)),
                is_split=is_split,
            )
        )
    return read


def _cut(original: str, learnt: Learnt) -> tuple[str, list[Segment]]:
    """The normalized text to translate, and what stays untranslated."""
    indentation = INDENTATION.match(original)
    blanks = indentation[0] if indentation else ""
    text = _spelt_as_learnt(normalize(original), learnt)
    return cut(text, learnt, indentation=blanks if len(blanks) > 1 or "\t" in blanks else "")


def _spelt_as_learnt(text: str, learnt: Learnt) -> str:
    """`text` with unknown apostrophes and hyphens within words replaced by known ones."""
    for unlearnt in learnt.lacks(text):
        for alike in ALIKE:
            learnt_ones = [sign for sign in alike if sign in learnt.characters]
            if unlearnt in alike and learnt_ones:
                text = re.sub(rf"(?<=[^\W\d_]){unlearnt}(?=[^\W\d_])", learnt_ones[0], text)
    return text


def _split(
    text: str, ids: list[int], engine: Engine, tokenizers: Tokenizers
) -> tuple[list[Part], bool]:
    """Split a line into parts no longer than the model takes or than those seen in training.

    Also returns whether a sentence is too long for the model.
    """
    if not ids:
        return [], False
    trained = engine.lengths
    longest = engine.longest_sentence
    lang = tokenizers.options.src_lang
    sentences = split_sentences(text, lang)
    is_like_training = len(sentences) <= trained.sentences and len(ids) <= trained.src_tokens
    if len(ids) <= longest and (is_like_training or len(sentences) == 1):
        return [Part(text, ids)], False
    texts = split_text(
        text,
        lang,
        num_tokens=lambda part: len(tokenizers.encode([part], "src")[0]),
        longest=longest,
        longest_together=min(trained.src_tokens, longest),
        most_together=trained.sentences,
    )
    parts = []
    for part, part_ids in zip(texts, tokenizers.encode(texts, "src"), strict=True):
        if part_ids:
            parts.append(Part(part, part_ids[:longest]))
    encoded = tokenizers.encode(sentences, "src")
    return parts, any(len(sentence_ids) > longest for sentence_ids in encoded)


def ids_of_prefix(prefix: str, tokenizers: Tokenizers, *, longest: int) -> list[int]:
    """The ids of `prefix`, with which translations have to begin.

    Raises:
        UsageError: the vocabulary lacks a word, or there are more than `longest` ids.
    """
    (ids,) = tokenizers.encode([checked_line(prefix, name="prefix")], "tgt")
    if UNK_ID in ids:
        raise UsageError(f"prefix: {prefix!r} has a word that is not in the vocabulary")
    if len(ids) > longest:
        raise UsageError(f"prefix: {len(ids)} tokens, but the model takes at most {longest}")
    return ids
