"""`Translation`: the result for a line, with signs of problems, and the warnings about them."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

from mt_cli.runs.run import Run
from mt_cli.text.language import foreign_language
from mt_cli.text.normalize import normalize
from mt_cli.text.numbers import changes_a_number
from mt_cli.text.tokenizers import Tokenizers

if TYPE_CHECKING:
    from mt_cli.translation.glossary import Glossary
    from mt_cli.translation.reading import Line

DOUBTED = math.log(0.5)
"""Words less likely than this are doubtful."""
FEW_CUT = 3
"""Do not warn if fewer translations than this reached their maximum length."""
SMALL_SHARE_CUT = 0.01
"""Do not warn if only this share of them did."""
FAR = 1.4
"""Warn of text with this many times the tokens per word of the training text."""
FEW_WORDS = 20
"""Minimum words for that; with 20, it warns of 2 % of Tatoeba's test texts, 66 % of newstest2019's.
"""
FEW_TERMS = 10
"""Unused terms are reported up to this number or the number of lines: large glossaries have many.
"""


@dataclass(frozen=True)
class Translation:
    """One translation of a line, with signs of problems."""

    text: str
    score: float
    """Log-probability divided by the length penalty, summed over the parts of a line; after
    reranking, the reranker's score.
    """
    tokens: tuple[str, ...] = field(default=(), repr=False)
    src_tokens: tuple[str, ...] = field(default=(), repr=False)
    alignment: tuple[tuple[int, int], ...] = field(default=(), repr=False)
    """(index in `src_tokens`, index in `tokens`) for each of `tokens`, if requested."""
    log_prob: float = field(default=0.0, repr=False)
    """Natural log-probability of the tokens that were not given, summed over a line's parts."""
    num_given: int = field(default=0, repr=False)
    """How many of `tokens` were given: those of a prefix, and all up to the last term that was
    placed.
    """
    num_parts: int = field(default=1, repr=False)
    """How many parts of the line were translated apart, each with its own end."""
    words: tuple[tuple[str, float], ...] = field(default=(), repr=False)
    """Each word with the total log-probability of its tokens, if requested."""
    source: str = field(default="", repr=False)
    """The source line."""
    src_lang: str = field(default="", repr=False)
    """The model's source language."""
    changed_number: bool = field(default=False, repr=False)
    """Whether the translation lost or changed a number."""
    missing_terms: tuple[str, ...] = field(default=(), repr=False)
    """Glossary terms in the line whose required translation is missing."""
    doubled_terms: tuple[str, ...] = field(default=(), repr=False)
    """Placed glossary terms that the translation now has more often than the line."""
    unlearnt_letters: tuple[str, ...] = field(default=(), repr=False)
    """Letters of the line that the model never saw in training."""
    is_split: bool = field(default=False, repr=False)
    """Whether a sentence was too long for the model and was translated in pieces."""
    is_cut: bool = field(default=False, repr=False)
    """Whether the translation reached its maximum length."""
    is_broken: bool = field(default=False, repr=False)
    """Whether the model produced invalid UTF-8 bytes, which were removed."""

    @property
    def mean_log_prob(self) -> float:
        """The mean log-probability per token, with the parts' ends and without given tokens."""
        return self.log_prob / (len(self.tokens) - self.num_given + self.num_parts)

    @property
    def doubtful_words(self) -> list[str]:
        """The words with a probability below one half."""
        return [word for word, log_prob in self.words if log_prob < DOUBTED]

    @cached_property
    def language(self) -> str | None:
        """The language of the line if it is clearly not the model's source language.

        The first call may take half a second.
        """
        return foreign_language(self.source, self.src_lang) if self.src_lang else None

    @property
    def facts(self) -> dict[str, object]:
        """The signs of problems, by name, as `--json` and `serve` report them."""
        return {name: getattr(self, name) for name in WARNINGS}


def joined(parts: Sequence[Translation], *, space: str) -> Translation:
    """Join the translations of a line's parts, with `space` between them."""
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
        sum((part.score for part in parts), 0.0),
        tokens=tuple(tokens),
        src_tokens=tuple(src_tokens),
        alignment=tuple(alignment),
        log_prob=sum((part.log_prob for part in parts), 0.0),
        num_given=sum(part.num_given for part in parts),
        num_parts=max(1, len(parts)),
        words=tuple(chain.from_iterable(part.words for part in parts)),
        is_cut=any(part.is_cut for part in parts),
        is_broken=any(part.is_broken for part in parts),
    )


def judged(
    translation: Translation, line: "Line", tokenizers: Tokenizers, glossary: "Glossary | None"
) -> Translation:
    """`translation` with the signs of problems that depend on the source `line`."""
    options = tokenizers.options
    missing: list[str] = []
    doubled: list[str] = []
    if glossary is not None:
        terms = glossary.terms_in(line.text)
        missing = glossary.missing(terms, translation.text)
        has_placed = translation.num_given > sum(len(part.prefix) for part in line.parts)
        doubled = glossary.doubled(terms, translation.text) if has_placed else []
    return replace(
        translation,
        source=line.original,
        src_lang=options.src_lang,
        changed_number=changes_a_number(
            line.original,
            translation.text,
            src_lang=options.src_lang,
            tgt_lang=options.tgt_lang,
        ),
        missing_terms=tuple(missing),
        doubled_terms=tuple(doubled),
        unlearnt_letters=line.unlearnt,
        is_split=line.is_split,
    )


WARNINGS: Mapping[str, str] = {
    "language": "{num} of {lines} lines look like {what}, first line {first}; the model translates "
    "from {lang}",
    "unlearnt_letters": "{num} of {lines} lines have letters that the model never saw in training, "
    "such as {what} in line {first}",
    "is_split": "{num} of {lines} lines have a sentence that is too long for the model, so it was "
    "split, first line {first}",
    "changed_number": "{num} of {lines} translations lost or changed a number, first line {first}",
    "missing_terms": "{num} of {lines} translations miss a glossary term, first line {first} "
    "({what})",
    "doubled_terms": "{num} of {lines} translations repeat a glossary term too often, first line "
    "{first} ({what})",
    "is_broken": "{num} of {lines} translations contained invalid UTF-8 bytes, which were removed, "
    "first line {first}",
    "is_cut": "{num} of {lines} translations hit the length limit; raise it with --set "
    "decoding.max_len_factor=N, unless the model repeats itself",
}
"""The warning for each attribute of a translation that is a sign of a problem."""


class Problems:
    """Counts the problems of translations, line by line, for warnings at the end."""

    def __init__(self, glossary: "Glossary | None" = None) -> None:
        self._glossary = glossary
        self._counts = dict.fromkeys(WARNINGS, 0)
        self._firsts: dict[str, dict[str, object]] = {}
        self._used: set[str] = set()
        self._inflected: dict[str, str] = {}
        self._num_lines = 0

    def add(self, result: Translation) -> None:
        """Count the problems of the next line's translation."""
        self._num_lines += 1
        for name, value in result.facts.items():
            if value:
                self._counts[name] += 1
                what = value[0] if isinstance(value, tuple) else value
                about = {"first": self._num_lines, "what": what, "lang": result.src_lang}
                self._firsts.setdefault(name, about)
        if self._glossary is not None:
            source = normalize(result.source)
            self._used.update(term.name for term in self._glossary.terms_in(source))
            self._inflected |= self._glossary.inflected_in(source)

    def warnings(self) -> list[str]:
        """The warnings about all lines, one per kind of problem."""
        num_cut = self._counts["is_cut"]
        has_many_cut = num_cut >= FEW_CUT and num_cut > SMALL_SHARE_CUT * self._num_lines
        warnings = []
        for name, sentence in WARNINGS.items():
            if name in self._firsts and (name != "is_cut" or has_many_cut):
                facts = {"num": self._counts[name], "lines": self._num_lines, **self._firsts[name]}
                warnings.append(sentence.format(**facts))
        if self._glossary is not None:
            terms = self._glossary.terms
            warnings += _unused(terms, self._used, self._inflected, num_lines=self._num_lines)
        return warnings


def warnings_of(results: Iterable[Translation], glossary: "Glossary | None" = None) -> list[str]:
    """The warnings about `results`, one per kind of problem; there is one result per line."""
    problems = Problems(glossary)
    for result in results:
        problems.add(result)
    return problems.warnings()


def _unused(
    terms: Iterable[str], used: set[str], inflected: Mapping[str, str], *, num_lines: int
) -> list[str]:
    """Warnings about glossary terms that occur in no line, or only with other endings."""
    unused = [name for name in terms if name not in used]
    other_forms = [name for name in unused if name in inflected]
    nowhere = [name for name in unused if name not in inflected]
    warnings = []
    if other_forms:
        name = other_forms[0]
        warnings.append(
            f"{len(other_forms)} glossary terms occur only in inflected forms, such as {name} in "
            f"{inflected[name]}; write {name}* to match any ending"
        )
    if nowhere and len(unused) <= max(FEW_TERMS, num_lines):
        warnings.append(f"{len(nowhere)} glossary terms occur in no line, such as {nowhere[0]}")
    return warnings


def unlike_training(lines: Sequence[str], run: Run) -> str | None:
    """A warning if `lines` are unlike the training text of `run`."""
    usual = run.manifest.lengths.tokens_per_word
    num_words = len(" ".join(lines).split())
    if not usual or num_words < FEW_WORDS:
        return None
    rate = sum(map(len, run.tokenizers.encode(lines, "src"))) / num_words
    if rate <= FAR * usual:
        return None
    return (
        "this text differs from the model's training data "
        f"({', '.join(run.config.data.corpus)}): {rate:.1f} tokens per word instead of "
        f"{usual:.1f}; expect mistakes"
    )
