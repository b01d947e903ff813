"""The first steps of a line: read it, cut out what stays, split the rest, encode its parts."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from mt_cli.errors import UsageError
from mt_cli.text import UNK_ID
from mt_cli.text.normalize import normalize, read_capitals
from mt_cli.text.sentences import split_sentences, split_text
from mt_cli.text.tokenizers import Learnt, Tokenizers
from mt_cli.translation.engine import Engine
from mt_cli.translation.segments import INDENTATION, Segment, cut

ALIKE = ("'’ʼ´`", "-‐‑")
"""Signs within a word that people type one for the other."""


@dataclass(frozen=True)
class Part:
    """A line, or as much of it as the model can take at once."""

    text: str
    """Normalized; in another case if `decoding.capitals` says so."""
    ids: list[int]
    prefix: Sequence[int] = ()
    """What its translation begins with."""


@dataclass(frozen=True)
class Line:
    """A line as it is translated."""

    original: str
    text: str
    """What is translated; empty if all stays."""
    segments: Sequence[Segment] = ()
    """What stays."""
    parts: Sequence[Part] = field(default=(), repr=False)
    """`text` as the model takes it: usually one part; none if all stays."""
    unlearnt: tuple[str, ...] = ()
    """Letters of `text` that the model has never learnt."""
    is_split: bool = False
    """Whether a sentence was longer than the model takes."""


def checked_lines(lines: Iterable[str]) -> list[str]:
    """`lines` as a list, after checking that they are lines.

    Raises:
        UsageError: they are something else, such as one line that is not in a list.
    """
    if isinstance(lines, str):
        raise UsageError("lines: expected a list of lines, found a str")
    if isinstance(lines, bytes) or not isinstance(lines, Iterable):
        raise UsageError(f"lines: expected a list of lines, found {type(lines).__name__}")
    return [checked_line(line, name=f"lines[{i}]") for i, line in enumerate(lines)]


def checked_line(line: object, *, name: str) -> str:
    """`line`, after checking that it is one; `name` is what the caller calls it.

    Raises:
        UsageError: it is no str, or several lines.
    """
    if not isinstance(line, str):
        raise UsageError(f"{name}: expected a str, found {line!r:.60}")
    if "\n" in line:
        raise UsageError(f"{name}: expected one line, found {line!r:.60}; split it at line ends")
    return line


def read_lines(
    lines: Sequence[str], engine: Engine, tokenizers: Tokenizers, *, prefix: Sequence[int] = ()
) -> list[Line]:
    """Each of `lines` as it is translated, the first part of each to begin with `prefix`."""
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
    """What is translated of a line, normalized, and what stays."""
    indentation = INDENTATION.match(original)
    blanks = indentation[0] if indentation else ""
    text = _spelt_as_learnt(normalize(original), learnt)
    return cut(text, learnt, indentation=blanks if len(blanks) > 1 or "\t" in blanks else "")


def _spelt_as_learnt(text: str, learnt: Learnt) -> str:
    """`text` with the apostrophe and the hyphen between letters that the model knows."""
    for unlearnt in learnt.lacks(text):
        for alike in ALIKE:
            learnt_ones = [sign for sign in alike if sign in learnt.characters]
            if unlearnt in alike and learnt_ones:
                text = re.sub(rf"(?<=[^\W\d_]){unlearnt}(?=[^\W\d_])", learnt_ones[0], text)
    return text


def _split(
    text: str, ids: list[int], engine: Engine, tokenizers: Tokenizers
) -> tuple[list[Part], bool]:
    """The parts of a line: no longer than the model takes, nor than training showed it.

    Also tells whether one of its sentences is longer than the model takes.
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
    """The ids that a translation has which begins with `prefix`.

    Raises:
        UsageError: the vocabulary lacks one of its words, or there are more than `longest`.
    """
    (ids,) = tokenizers.encode([checked_line(prefix, name="prefix")], "tgt")
    if UNK_ID in ids:
        raise UsageError(f"prefix: the vocabulary lacks a word of {prefix!r}")
    if len(ids) > longest:
        raise UsageError(f"prefix: {len(ids)} tokens, but the model takes {longest}")
    return ids
