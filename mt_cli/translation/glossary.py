"""Glossaries: terms of the source language, and how they have to be translated.

A translation that lacks a term is cut where it attends to the term in the source, gets the term's
translation there, and is searched for anew from that prefix. This gives better translations than
constrained beam search (Post and Vilar 2018); see "A glossary" in docs/experiments.md.

Letters: T tokens of a translation, S of its source.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path

import numpy as np

from mt_cli.data.readers import read_text, scored_lines
from mt_cli.decoding import Hyp, Ids
from mt_cli.errors import DataError
from mt_cli.text import UNK_ID
from mt_cli.text.language import UNSPACED
from mt_cli.text.normalize import normalize
from mt_cli.text.tokenizers import Tokenizers
from mt_cli.text.words import JOINER
from mt_cli.translation.lines import Part
from mt_cli.translation.searcher import CrossAttention, Engine

ANY = "*"
"""In a term, it stands for any letters: "Hund*" is also in "Hundes"."""
BEGINNING = re.compile(rf"(?<!\w)\S|{UNSPACED}")
"""Where a term may begin."""


@dataclass(frozen=True)
class Term:
    """A term in a text."""

    name: str
    start: int
    """Place of its first character."""
    end: int
    """And of the character after its last."""
    translations: Sequence[str]
    """Any of them will do."""

    def is_in(self, translation: str) -> bool:
        """Whether `translation` has one of its translations, in any case."""
        return any(_whole(re.escape(each)).search(translation) for each in self.translations)


class Glossary:
    """Which terms a text has, whatever their case."""

    def __init__(self, terms: Mapping[str, Sequence[str]]) -> None:
        """`terms` and their translations are normalized."""
        self._terms = terms

    @classmethod
    def read(cls, path: Path) -> "Glossary":
        """The glossary in the file `path`: a term, a tab and its translation in each line.

        A term may have several lines. Empty ones are skipped.

        Raises:
            DataError: it is no such file.
        """
        terms: dict[str, list[str]] = {}
        for number, line in enumerate(scored_lines(read_text(path), path), start=1):
            if not line.strip():
                continue
            term, *translations = [normalize(cell) for cell in line.split("\t")]
            if len(translations) != 1 or not all([term.strip(ANY), *translations]):
                raise DataError(
                    f"{path}: line {number}: expected a term, a tab and its translation"
                )
            if term.startswith(ANY):
                raise DataError(f"{path}: line {number}: a term does not begin with {ANY}")
            terms.setdefault(term, []).extend(translations)
        if not terms:
            raise DataError(f"{path}: no term in it")
        return cls(terms)

    def terms_in(self, text: str) -> list[Term]:
        """The terms that the normalized `text` has, once each; the longest where several begin."""
        found: dict[str, Term] = {}
        end = 0
        for beginning in BEGINNING.finditer(text):
            start = beginning.start()
            for name, pattern in self._by_letter.get(text[start].lower(), ()):
                match = pattern.match(text, start) if start >= end else None
                if match:
                    end = match.end()
                    found.setdefault(name, Term(name, start, end, self._terms[name]))
                    break
        return list(found.values())

    def missing(self, text: str, translation: str) -> list[str]:
        """The terms that `text` has and `translation` does not translate so."""
        terms = self.terms_in(normalize(text))
        return [term.name for term in terms if not term.is_in(translation)]

    @cached_property
    def _by_letter(self) -> dict[str, list[tuple[str, re.Pattern[str]]]]:
        """The terms that begin with each letter, the longest first."""
        by_letter: dict[str, list[tuple[str, re.Pattern[str]]]] = {}
        for term in sorted(self._terms, key=len, reverse=True):
            words = re.escape(term).replace(re.escape(ANY), r"\w*")
            by_letter.setdefault(term[0].lower(), []).append((term, _whole(words)))
        return by_letter


@cache
def _whole(words: str) -> re.Pattern[str]:
    """The pattern `words` in any case, where no word goes on before or after it.

    Where there are no spaces between words, one always may.
    """
    begin = rf"(?:(?<!\w)|(?={UNSPACED}))"
    end = rf"(?:(?!\w)|(?<={UNSPACED}))"
    return re.compile(f"{begin}{words}{end}", re.IGNORECASE)


class TermPlacer:
    """Searches anew where a translation lacks a term of its source."""

    def __init__(self, glossary: Glossary, engine: Engine, tokenizers: Tokenizers) -> None:
        self._glossary = glossary
        self._engine = engine
        self._tokenizers = tokenizers
        tgt = tokenizers.tgt
        texts = [entry.lstrip(JOINER) for entry in tgt.entries]
        self._begins_word = [
            tgt.begins_word(i) or re.match(UNSPACED, text) is not None
            for i, text in enumerate(texts)
        ]
        """Of each id."""
        self._continues_word = [
            text[:1].isalnum() and not begins_word
            for text, begins_word in zip(texts, self._begins_word, strict=True)
        ]
        """Of each id; marks do neither."""

    def place(
        self,
        parts: Sequence[Part],
        hyps: Sequence[list[Hyp]],
        prefixes: Sequence[Ids],
        *,
        n_best: int,
        is_scored: bool,
    ) -> list[list[Hyp]]:
        """The `hyps` of `parts`, or others whose best has the terms that were missing.

        They begin with `prefixes`. A term is placed once; it is still missing if the vocabulary or
        the longest translation have no room for it.
        """
        tgt = self._tokenizers.tgt
        found = list(hyps)
        given = list(prefixes)
        left = [self._glossary.terms_in(part.text) for part in parts]
        while True:
            missing: dict[int, list[Term]] = {}
            for i in [i for i, terms in enumerate(left) if terms]:
                (text,) = tgt.decode([found[i][0].ids])
                missing[i] = [term for term in left[i] if not term.is_in(text)]
            todo = [i for i, terms in missing.items() if terms]
            if not todo:
                return found
            sources = [parts[i].ids for i in todo]
            attention = self._engine.cross_attention(sources, [found[i][0].ids for i in todo])
            longer = []
            for i, weights in zip(todo, attention, strict=True):
                hyp = found[i][0].ids
                term, begin = self._first(missing[i], parts[i], hyp, weights, begin=len(given[i]))
                left[i].remove(term)
                prefix = self._placed(term, parts[i], hyp[:begin])
                if prefix:
                    given[i] = prefix
                    longer.append(i)
            searched = self._search(
                [parts[i].ids for i in longer],
                [given[i] for i in longer],
                n_best=n_best,
                is_scored=is_scored,
            )
            for i, of_part in zip(longer, searched, strict=True):
                found[i] = of_part

    def _first(
        self, terms: Sequence[Term], part: Part, hyp: Ids, weights: CrossAttention, *, begin: int
    ) -> tuple[Term, int]:
        """The first of `terms` to come in `hyp` (T), and its place.

        It is the place of the word, from `begin`, that attends most to the term; `weights` are
        (T, S).
        """
        words = [t for t in range(begin, len(hyp)) if t == 0 or self._begins_word[hyp[t]]]
        places = []
        for term in terms:
            before, up_to = self._tokenizers.encode(
                [part.text[: term.start], part.text[: term.end]], "src"
            )
            attending = weights[:, len(before) : max(len(up_to), len(before) + 1)].sum(1)  # (T,)
            best = int(np.maximum.reduceat(attending, words).argmax()) if words else 0
            places.append(words[best] if words else begin)
        place = min(places)
        return terms[places.index(place)], place

    def _placed(self, term: Term, part: Part, before: Ids) -> Ids:
        """`before` and the likeliest translation of `term`; nothing if none is possible.

        A sentence begins with a capital, if the vocabulary has the word with one; names, such as
        "iPhone", stay as they are.
        """
        possible = []
        for translation in term.translations:
            is_name = not translation.islower()
            capital = translation if is_name else translation[0].upper() + translation[1:]
            spellings = [translation] if before else [capital, translation]
            for ids in self._tokenizers.encode(spellings, "tgt"):
                if UNK_ID not in ids and len(before) + len(ids) < self._engine.longest_sentence:
                    possible.append([*before, *ids])
                    break
        if len(possible) <= 1:
            return possible[0] if possible else ()
        found = self._engine.token_log_probs([part.ids] * len(possible), possible)
        log_probs = []
        for ids, each in zip(possible, found, strict=True):
            log_probs.append(sum(each[len(before) : len(ids)]))
        return possible[log_probs.index(max(log_probs))]

    def _search(
        self,
        sources: Sequence[Ids],
        prefixes: Sequence[Ids],
        *,
        n_best: int,
        is_scored: bool,
    ) -> list[list[Hyp]]:
        """Hypotheses that begin with `prefixes`, of which the best does not go on with their word.

        If it does, such as in "dog|gy runs", it is searched for again from "dog runs".
        """
        search = partial(self._engine.search, n_best=n_best, is_scored=is_scored)
        found = search(sources, prefixes=prefixes)
        again: dict[int, Ids] = {}
        for i, (prefix, of_source) in enumerate(zip(prefixes, found, strict=True)):
            rest = of_source[0].ids[len(prefix) :]
            others = [token_id for token_id in rest if not self._continues_word[token_id]]
            is_longer = len(prefix) + 1 < self._engine.longest_sentence
            if others and others[0] != rest[0] and is_longer:
                again[i] = [*prefix, others[0]]
        searched = search([sources[i] for i in again], prefixes=list(again.values()))
        for i, of_source in zip(again, searched, strict=True):
            found[i] = of_source
        return found
