"""What becomes of a line: the parts that are translated alone, and its translation put together again.

Knows text and tokens, neither models nor search.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import accumulate

from mt_cli.errors import WrongTypeError
from mt_cli.text.normalize import normalize
from mt_cli.text.splitting import split_text
from mt_cli.text.tokenizer import Tokenizers

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Translation:
    """One translation of a line. A notebook shows it with its score and its alignment."""

    text: str
    score: float
    """Natural logarithm of its probability, over the length penalty; of a line in parts, their sum."""
    tokens: tuple[str, ...] = field(default=(), repr=False)
    src_tokens: tuple[str, ...] = field(default=(), repr=False)
    alignment: tuple[tuple[int, int], ...] = field(default=(), repr=False)
    """(place in `src_tokens`, place in `tokens`) for each of `tokens`, where it was asked for."""
    log_prob: float = field(default=0.0, repr=False)
    """Natural logarithm of its probability, without the length penalty; of a line in parts, their sum."""

    def _repr_html_(self) -> str:
        aligned = {
            "source": [self.src_tokens[src] for src, _ in self.alignment],
            "translation": [self.tokens[tgt] for _, tgt in self.alignment],
        }
        rows = "".join(_html_row(side, tokens) for side, tokens in aligned.items() if tokens)
        table = f"<table>{rows}</table>" if rows else ""
        line = f"<p>{escape(self.text)} <small>score {self.score:.4f}</small></p>"
        # Notebooks set what stands between dollar signs as a formula, unless told not to.
        return f'<div class="tex2jax_ignore mathjax_ignore">{line}{table}</div>'


def _html_row(heading: str, cells: Iterable[str]) -> str:
    return f"<tr><th>{heading}</th>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"


@dataclass(frozen=True)
class Part:
    """A line, or as much of it as the model can take at once."""

    text: str
    """Normalised, as the user wrote it."""
    ids: list[int]


def checked_lines(lines: Iterable[str]) -> list[str]:
    """`lines` as a list, once it is sure that they are lines.

    Raises:
        WrongTypeError: they are something else, such as one line that is not in a list.
    """
    if isinstance(lines, str):
        raise WrongTypeError("lines: expected a list of lines, found a str; put the one line into a list")
    if isinstance(lines, bytes) or not isinstance(lines, Iterable):
        raise WrongTypeError(f"lines: expected a list of lines, found {type(lines).__name__}")
    return [checked_line(line, name=f"lines[{i}]") for i, line in enumerate(lines)]


def checked_line(line: object, *, name: str) -> str:
    """`line`, once it is sure that it is one; `name` is what the caller calls it.

    Raises:
        WrongTypeError: it is no str.
    """
    if not isinstance(line, str):
        raise WrongTypeError(f"{name}: expected a str, found {line!r:.60}")
    return line


class Splitter:
    """Makes of each line the parts that a model can take."""

    def __init__(self, tokenizers: Tokenizers, *, longest: int, quiet: bool = False) -> None:
        """`longest` is the most ids of a part; `quiet` splits without a warning."""
        self._tokenizers = tokenizers
        self._longest = longest
        self._level = logging.DEBUG if quiet else logging.WARNING

    def split(self, lines: Iterable[str]) -> list[list[Part]]:
        """The parts of each of `lines`, usually one; none of an empty line.

        Raises:
            WrongTypeError: `lines` are no lines.
        """
        texts = [normalize(line) for line in checked_lines(lines)]
        return [list(self._parts(text, ids)) for text, ids in zip(texts, self._encode(texts), strict=True)]

    def _parts(self, text: str, ids: list[int]) -> Iterator[Part]:
        if not ids:
            return
        if len(ids) <= self._longest:
            yield Part(text, ids)
            return
        texts = split_text(text, lambda part: len(self._encode([part])[0]) <= self._longest)
        log.log(
            self._level,
            "a line of %d tokens, more than the model's %d, is translated in %d parts: %.60s…",
            len(ids),
            self._longest,
            len(texts),
            text,
        )
        for part, part_ids in zip(texts, self._encode(texts), strict=True):
            if part_ids:
                yield Part(part, part_ids[: self._longest])

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each of the normalised `texts`."""
        if self._tokenizers.options.lowercase:
            texts = [normalize(text, lowercase=True) for text in texts]
        return self._tokenizers.src.encode(texts)


def joined_texts(texts: Iterable[str]) -> str:
    """The translation of a line whose parts are translated as `texts`; of some there may be nothing."""
    return " ".join(filter(None, texts))


def joined(parts: Sequence[Translation]) -> Translation:
    """The translation of a line of which `parts` are the translations."""
    if len(parts) == 1:
        return parts[0]
    src_starts = [0, *accumulate(len(part.src_tokens) for part in parts)]
    starts = [0, *accumulate(len(part.tokens) for part in parts)]
    return Translation(
        joined_texts(part.text for part in parts),
        sum(part.score for part in parts),
        tokens=tuple(token for part in parts for token in part.tokens),
        src_tokens=tuple(token for part in parts for token in part.src_tokens),
        alignment=tuple(
            (src + src_start, tgt + start)
            for part, src_start, start in zip(parts, src_starts, starts, strict=False)
            for src, tgt in part.alignment
        ),
        log_prob=sum(part.log_prob for part in parts),
    )


def counting_lines(
    of_lines: Sequence[Sequence[Part]], on_progress: Callable[[int], None] | None
) -> Callable[[Sequence[int]], None] | None:
    """From places of parts that are done: tell `on_progress` how many lines that is, empty ones at once.

    A line counts with its first part.
    """
    if on_progress is None:
        return None
    is_first = [number == 0 for of_line in of_lines for number in range(len(of_line))]
    if num_empty := sum(not of_line for of_line in of_lines):
        on_progress(num_empty)
    return lambda places: on_progress(sum(is_first[place] for place in places))
