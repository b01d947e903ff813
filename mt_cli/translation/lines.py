"""Lines to translate: their parts, and the translations of parts joined again."""

import logging
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path

import numpy as np

from mt_cli.config.schema import CapitalsReading, DecodingConfig
from mt_cli.errors import DataError, UsageError
from mt_cli.runs.run import Run
from mt_cli.text import BOS_ID, PAD_ID, SPECIALS, UNK_ID
from mt_cli.text.language import other_language
from mt_cli.text.normalize import in_case, normalize, read_capitals
from mt_cli.text.tokenizers import Tokenizer, Tokenizers

log = logging.getLogger(__name__)


BESIDE = r"\s<>\"„“”«»‹›（）「」『』《》，、。；！？"
"""Space and marks that end an address."""
BRACKETS = r"()\[\]{}’"
"""Marks that also stand within one."""
WITHIN = f"[^{BRACKETS}{BESIDE}]"
URL = rf"""
    (?<![a-z0-9+.-]) (?: [a-z] [a-z0-9+.-]*+ :// | www\. )
    (?: {WITHIN} | \( {WITHIN}* \) | \[ {WITHIN}* \] | \{{ {WITHIN}* \}}
      | [{BRACKETS}] (?= [{BRACKETS}]{{0,3}} [^{BRACKETS}{BESIDE}.,;:!?]) )+"""
NO_AT = f"[^{BRACKETS}{BESIDE}@]"
EMAIL = rf"(?<! {NO_AT} ) {NO_AT}++ @ [^{BRACKETS}{BESIDE}@.]++ \. {WITHIN}+"
ADDRESSES = f"{URL} | {EMAIL}"
ENCLOSED = " | ".join(
    f"{begin} (?: {ADDRESSES} ) {end} [.,;:!?]*"
    for begin, end in ("<>", '""', "„“", "«»", (r"\(", r"\)"), (r"\[", r"\]"))
)
ADDRESS = re.compile(f"{ENCLOSED} | {ADDRESSES}", re.VERBOSE | re.IGNORECASE)
"""A web or an e-mail address with the marks around it; a long word takes linear time."""
SYMBOL = "\u2190-\u2bff\U0001f000-\U0001faff"
"""Arrows, signs and emoji."""
SYMBOLS = re.compile(f"[{SYMBOL}]")
PLACEHOLDER = r"""
    </? [a-z] [^<>]{0,200} > | \$? \{\{? [^{}\s]{0,50} \}\}? | (?<!:) \\ [nrt]
    | (?<![\d%]) % (?: \d{1,2} \$ | \( \w{1,50} \) )? [-+0]? \d{0,2} (?: \.\d )? [sdfiux@]
    (?![^\W_])"""
"""What programs replace: tags, `{name}`, `${x}`, `%s`, `%1$s`, and `\\n` in two letters."""
COPIED = re.compile(
    f"{ADDRESS.pattern} | {PLACEHOLDER} | [{SYMBOL}][{SYMBOL}\u200d\ufe0f\u20e3]*",
    re.VERBOSE | re.IGNORECASE,
)
"""What is copied if the model cannot know it; a symbol with what joins it to others."""
MARKS = ".,;:!?…"
"""That follow a word without a space."""


@dataclass(frozen=True)
class Translation:
    """One translation of a line."""

    text: str
    score: float
    """Log-probability over the length penalty; of a line in parts, their sum."""
    tokens: tuple[str, ...] = field(default=(), repr=False)
    src_tokens: tuple[str, ...] = field(default=(), repr=False)
    alignment: tuple[tuple[int, int], ...] = field(default=(), repr=False)
    """(place in `src_tokens`, place in `tokens`) for each of `tokens`, where it was asked for."""
    log_prob: float = field(default=0.0, repr=False)
    """Natural logarithm of the probability of what was not given; of a line in parts, their sum."""
    num_given: int = field(default=0, repr=False)
    """How many of `tokens` had to be there: those of a prefix, and all up to the last term that was
    missing.
    """
    words: tuple[tuple[str, float], ...] = field(default=(), repr=False)
    """Each word, and the log-probability of its tokens together, where it was asked for."""

    @property
    def mean_log_prob(self) -> float:
        """The log-probability of a token on average, the sentence end counted as one.

        Given tokens do not count.
        """
        return self.log_prob / (len(self.tokens) - self.num_given + 1)


@dataclass(frozen=True)
class Part:
    """A line, or as much of it as the model can take at once."""

    text: str
    """Normalized; in another case if `decoding.capitals` says so."""
    ids: list[int]


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
        UsageError: it is no str.
    """
    if not isinstance(line, str):
        raise UsageError(f"{name}: expected a str, found {line!r:.60}")
    return line


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


@dataclass(frozen=True)
class Copied:
    """A part of a line that is not translated."""

    text: str
    place: int
    """How many words of the line's rest come before it."""
    joins_left: bool = False
    """Whether it follows what is before it without a space."""
    joins_right: bool = False
    has_mark: bool = False
    """Whether a mark of the sentence comes after it."""


@dataclass(frozen=True)
class Line:
    """A line: what is translated of it, and what is copied."""

    original: str
    text: str
    """What is translated; empty if all is copied."""
    copied: tuple[Copied, ...] = ()

    def around(self, translation: str, place_of: Callable[[int], int]) -> str:
        """`translation` with what is copied, after as many words as `place_of` its place says."""
        words = translation.split()
        found = ""
        done = 0
        joins = True  # the next word joins what is before it

        for each in self.copied:
            place = max(done, place_of(each.place))
            if place > done:
                found += ("" if joins else " ") + " ".join(words[done:place])
                joins = False
            done = place
            marks = found[len(found.rstrip(MARKS)) :] if each.has_mark else ""
            found = found.removesuffix(marks)
            found += ("" if joins or each.joins_left else " ") + each.text + marks
            joins = each.joins_right
        if words[done:]:
            found += ("" if joins else " ") + " ".join(words[done:])
        return found


def read_line(text: str, *, knows: Callable[[str], bool]) -> Line:
    """`text` without what a model would replace by something invented, which is copied.

    That is all of a line without words, and addresses, placeholders and symbols that the model does
    not know.
    """
    rest = ""
    copied: list[Copied] = []
    end = 0
    for found in COPIED.finditer(text):
        if knows(found[0]):
            continue
        rest += text[end : found.start()]
        place = len(rest.split())
        end = found.end()
        if place == 0:  # there is no word that could keep the marks after it
            end += len(text[end:]) - len(text[end:].lstrip(MARKS))
        follows = text[end : end + 1] or " "
        copied.append(
            Copied(
                text[found.start() : end],
                place,
                joins_left=not text[: found.start()][-1:].isspace(),
                joins_right=not follows.isspace() and follows not in MARKS,
                has_mark=follows in MARKS,
            )
        )
        rest = rest.rstrip() if follows in MARKS else f"{rest} "
    rest = " ".join((rest + text[end:]).split())
    if not has_words(rest):
        return Line(text, "", (Copied(text, 0),))
    return Line(text, rest, tuple(copied))


def read_words_in_capitals(text: str, reading: CapitalsReading) -> str:
    """`text` in another case, if its words are in capitals; what may be copied keeps its own."""
    words = COPIED.sub(" ", text)
    if read_capitals(words, reading) == words:
        return text
    read = ""
    end = 0
    for found in COPIED.finditer(text):
        read += in_case(text[end : found.start()], reading) + found[0]
        end = found.end()
    return read + in_case(text[end:], reading)


def has_words(text: str) -> bool:
    """Whether `text` has more than numbers, signs, emoji and addresses."""
    return any(map(str.isalpha, ADDRESS.sub("", text)))


def joined(parts: Sequence[Translation], *, space: str) -> Translation:
    """The translation of a line from those of its `parts`, with `space` between them."""
    if len(parts) == 1:
        return parts[0]
    tokens: list[str] = []
    src_tokens: list[str] = []
    alignment: list[tuple[int, int]] = []
    for part in parts:
        for src, tgt in part.alignment:
            alignment.append((len(src_tokens) + src, len(tokens) + tgt))
        tokens += part.tokens
        src_tokens += part.src_tokens
    return Translation(
        space.join(part.text for part in parts if part.text),
        sum(part.score for part in parts),
        tokens=tuple(tokens),
        src_tokens=tuple(src_tokens),
        alignment=tuple(alignment),
        log_prob=sum(part.log_prob for part in parts),
        num_given=sum(part.num_given for part in parts),
        words=tuple(chain.from_iterable(part.words for part in parts)),
    )


def place_of_copied(
    place: int,
    *,
    parts: Sequence[Part],
    hyps: Sequence[Sequence[int]],
    texts: Sequence[str],
    align: Callable[[int], Sequence[int]],
    tokenizers: Tokenizers,
) -> int:
    """After how many words of a translation stands what stands after `place` source words.

    It parts the translation as the source is parted: fewest tokens attend to what is on the other
    side. The translation is that of the `parts` of a line, with `hyps` and `texts`; `align` gives
    the source token of each token of a part.
    """
    done = 0
    for number, (part, hyp, text) in enumerate(zip(parts, hyps, texts, strict=True)):
        words = part.text.split()
        num_translated = len(text.split())
        if place == 0:
            return done
        if place < len(words):
            (before,) = tokenizers.encode([" ".join(words[:place])], "src")
            ends = [t for t, i in enumerate(hyp) if t and tokenizers.tgt.begins_word(i)]
            is_before = np.array(align(number)) < len(before)
            crossing = [
                int((~is_before[:t]).sum() + is_before[t:].sum()) for t in (0, *ends, len(hyp))
            ]
            return done + min(int(np.argmin(crossing)), num_translated)
        place -= len(words)
        done += num_translated
    return done


def words_of(
    ids: Sequence[int], log_probs: Sequence[float], tokenizer: Tokenizer
) -> tuple[tuple[str, float], ...]:
    """The words of `ids`, each with the sum of its `log_probs`; none if these are not known."""
    words: list[list[int]] = []
    sums: list[float] = []
    for token_id, log_prob in zip(ids, log_probs, strict=False):
        if not words or tokenizer.begins_word(token_id):
            words.append([])
            sums.append(0.0)
        words[-1].append(token_id)
        sums[-1] += log_prob
    return tuple(zip(tokenizer.decode(words), sums, strict=True))


def counting_lines(
    of_lines: Sequence[Sequence[Part]], on_progress: Callable[[int], None] | None
) -> Callable[[Sequence[int]], None] | None:
    """A function that takes the places of finished parts and reports finished lines.

    A line counts with its first part, an empty one at once.
    """
    if on_progress is None:
        return None
    is_first: list[bool] = []
    num_empty = 0
    for of_line in of_lines:
        num_empty += not of_line
        is_first += [number == 0 for number in range(len(of_line))]
    if num_empty:
        on_progress(num_empty)
    return lambda places: on_progress(sum(is_first[place] for place in places))


NEVER_CHOSEN = (PAD_ID, BOS_ID)
"""Symbols that no translation has."""


def forbidden_ids(tokenizers: Tokenizers, config: DecodingConfig) -> Sequence[int]:
    """Ids that a search may not choose.

    `<unk>` is one of them unless a word from the source will replace it: no reader has any use for
    it.
    """
    is_replaced = config.replace_unk and tokenizers.kind == "spacy"
    return NEVER_CHOSEN if is_replaced else (*NEVER_CHOSEN, UNK_ID)


def unknown_places(ids: Sequence[int]) -> Sequence[int]:
    """Places of `<unk>` in a source, where a translation's `<unk>` is most likely from; or all."""
    return [place for place, token_id in enumerate(ids) if token_id == UNK_ID] or range(len(ids))


def unk_rate(lines: Sequence[str], tokenizers: Tokenizers) -> float:
    """Share of the tokens of the source `lines` that the vocabulary lacks, or that spell bytes."""
    ids = tokenizers.encode(lines, "src")
    unknown = set(tokenizers.src.unknown_ids)
    tokens = list(chain.from_iterable(ids))
    return sum(token in unknown for token in tokens) / max(1, len(tokens))


def check_aligned(path: Path, lines: Sequence[str], to: str, to_lines: Sequence[str]) -> None:
    """Make sure that `lines`, of `path`, are as many as `to_lines`, those of what `to` names.

    Raises:
        DataError: they are not.
    """
    if len(lines) != len(to_lines):
        raise DataError(
            f"{path}: {len(lines)} lines, but {to} has {len(to_lines)}; they must align"
        )


class SourceSide:
    """The letters and addresses that a source vocabulary has."""

    def __init__(self, tokenizers: Tokenizers) -> None:
        self._options = tokenizers.options
        self._tokenizer = tokenizers.src

    # Late, as few lines need what takes as long as translating one:

    @cached_property
    def _entries(self) -> list[str]:
        return self._tokenizer.entries[len(SPECIALS) :]

    @cached_property
    def _letters(self) -> frozenset[str]:
        letters = {" "}
        for entry in self._entries:
            if not entry.startswith("<0x"):
                letters.update(entry)
        return frozenset(letters)

    @cached_property
    def _has_addresses(self) -> bool:
        return any(re.search(r"http|www|\w@|@\w", entry) for entry in self._entries)

    def knows(self, copied: str) -> bool:
        """Whether the vocabulary has such addresses or symbols; of placeholders, it has none."""
        if ADDRESS.fullmatch(copied):
            return self._has_addresses
        return SYMBOLS.match(copied) is not None and self._letters.issuperset(copied)


# Whether text is for a model

MIN_TEXT = 20
"""Shortest line, in characters, whose language is guessed."""
MAX_LINES = 100
"""Most lines that are looked at."""
FAR = 1.4
"""Text whose words have this many times the tokens of training's is unlike it."""
FEW_WORDS = 20
"""In so many, of the test sets' texts 3 in 100 are unlike training, of newspapers' 60."""


def input_warning(lines: Sequence[str], run: Run, *, min_lines: int = 2) -> str | None:
    """Why `lines` are probably not for `run`: their language, or words unlike those of training.

    Their language is told from `min_lines` or more: that takes as long as translating one.
    """
    data = run.config.data
    texts = [normalize(line, lowercase=data.lowercase) for line in lines[-MAX_LINES:]]
    long = [text for text in texts if len(text) >= MIN_TEXT]
    if len(long) >= min_lines:
        found = list(filter(None, (other_language(text, data.src_lang) for text in long)))
        if len(found) > len(long) / 2:
            return (
                f"the text looks like {', '.join(dict.fromkeys(found))}; the model translates "
                f"{data.src_lang}"
            )
    usual = run.manifest.lengths.tokens_per_word
    num_words = len(" ".join(texts).split())
    if usual and num_words >= FEW_WORDS:
        rate = sum(map(len, run.tokenizers.encode(texts, "src"))) / num_words
        if rate > FAR * usual:
            return (
                f"this text is unlike what the model has learnt from ({', '.join(data.corpus)}): "
                f"{rate:.1f} tokens a word, {usual:.1f} there; expect mistakes"
            )
    return None
