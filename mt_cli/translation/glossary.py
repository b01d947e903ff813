"""Glossaries: terms of the source language, and how they have to be translated.

A translation that lacks a term is cut where it attends to the term in the source, gets the term's
translation there, and is searched for anew from that prefix. This gives better translations than
constrained beam search (Post and Vilar 2018); see "A glossary" in docs/experiments.md.

Letters: T tokens of a translation, S of its source.
"""

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from mt_cli.data.readers import read_text, scored_lines
from mt_cli.decoding import Hyp, Ids
from mt_cli.errors import DataError
from mt_cli.machine.files import sha256_json
from mt_cli.text import UNK_ID
from mt_cli.text.language import UNSPACED
from mt_cli.text.normalize import normalize
from mt_cli.text.tokenizers import Tokenizers
from mt_cli.text.words import JOINER
from mt_cli.translation.engine import CrossAttention, Engine
from mt_cli.translation.lines import Part

ANY = "*"
"""At the end of a term's word, it stands for any letters: "Hund*" is also in "Hundes"."""
WORD_BEGINS = re.compile(rf"(?<!\w)(?=\S)|(?={UNSPACED})")
WORD_ENDS = re.compile(rf"(?!\w)|(?<={UNSPACED})")
"""Where there are no spaces between words, one may end after each letter."""
LETTERS = re.compile(rf"(?:(?!{UNSPACED})\w)*")


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
        text, _ = _folded(translation)
        begins = [found.start() for found in WORD_BEGINS.finditer(text)]
        for each in self.translations:
            words = [_folded(each)[0]]
            if any(_end_of(words, text, begin) for begin in begins):
                return True
        return False


class Glossary:
    """Which terms a text has, whatever their case."""

    def __init__(self, terms: Mapping[str, Sequence[str]]) -> None:
        """`terms` and their translations are normalized."""
        self.terms = terms
        self._by_letter: dict[str, list[tuple[str, list[str]]]] = {}
        """Terms by their first letter, the longest first, in the pieces that `ANY` parts."""
        # An exact term before one that ends in any letters.
        for name in sorted(terms, key=lambda name: (-len(name.replace(ANY, "")), ANY in name)):
            pieces, _ = _folded(name)
            self._by_letter.setdefault(pieces[0], []).append((name, pieces.split(ANY)))

    @classmethod
    def read(cls, path: Path) -> "Glossary":
        """The glossary in the file `path`: a term, a tab and its translation in each line.

        A term may have several lines, and its case does not matter. Empty ones are skipped; cells
        may be quoted as in CSV.

        Raises:
            DataError: it is no such file.
        """
        terms: dict[str, list[str]] = {}
        names: dict[str, str] = {}
        for number, line in enumerate(scored_lines(read_text(path), path), start=1):
            cells = [normalize(cell) for cell in next(csv.reader([line], delimiter="\t"), [])]
            while cells and not cells[-1]:
                cells.pop()
            if not cells:
                continue
            if len(cells) != 2 or not cells[0]:
                raise DataError(
                    f"{path}: line {number}: expected a term, a tab and its translation, found "
                    f"{line[:60]!r}"
                )
            term, translation = cells
            if term.startswith(ANY) or re.search(r"\*\S|\s\*", term):
                raise DataError(f"{path}: line {number}: {term!r}: {ANY} ends a word")
            name = names.setdefault(term.casefold(), term)
            terms.setdefault(name, []).append(translation)
        if not terms:
            raise DataError(f"{path}: no term in it")
        return cls(terms)

    def terms_in(self, text: str) -> list[Term]:
        """The terms that the normalized `text` has, once each; the longest where several begin."""
        folded, places = _folded(text)
        found: dict[str, Term] = {}
        done = 0
        for match in WORD_BEGINS.finditer(folded):
            begin = match.start()
            if begin < done:
                continue
            for name, pieces in self._by_letter.get(folded[begin], ()):
                end = _end_of(pieces, folded, begin)
                if end:
                    term = Term(name, places[begin], places[end], self.terms[name])
                    found.setdefault(name, term)
                    done = end
                    break
        return list(found.values())

    @property
    def sha256(self) -> str:
        """Of all terms and their translations."""
        return sha256_json(list(self.terms.items()))


def _folded(text: str) -> tuple[str, list[int]]:
    """`text` without case, and the place in it of each character of that and of its end."""
    folded = ""
    places: list[int] = []
    for place, character in enumerate(text):
        folded += character.casefold()
        places += [place] * (len(folded) - len(places))
    return folded, [*places, len(text)]


def _end_of(pieces: Sequence[str], text: str, begin: int) -> int:
    """Where the words end that begin at `begin` of the folded `text`; 0 if they do not.

    Between the `pieces` of them are any letters.
    """
    end = begin
    for number, piece in enumerate(pieces):
        letters = LETTERS.match(text, end) if number else None
        end = letters.end() if letters else end
        if not text.startswith(piece, end):
            return 0
        end += len(piece)
    return end if WORD_ENDS.match(text, end) else 0


@dataclass
class Draft:
    """A translation on its way to have all terms."""

    part: Part
    hyps: list[Hyp]
    """The best first."""
    prefix: Ids
    """What they begin with."""
    terms: list[Term]
    """Those of the source that have not been placed."""
    missing: list[Term] = field(default_factory=list)
    """Those of them that the best lacks."""
    replaced: Ids = ()
    """The words whose place the last term took."""

    @property
    def ids(self) -> Ids:
        """Those of the best."""
        return self.hyps[0].ids

    def rest(self, hyp: Hyp) -> Ids:
        """What `hyp` has after the prefix."""
        return hyp.ids[len(self.prefix) :]


class TermPlacer:
    """Searches anew where a translation lacks a term of its source."""

    def __init__(self, glossary: Glossary, engine: Engine, tokenizers: Tokenizers) -> None:
        self._glossary = glossary
        self._engine = engine
        self._tokenizers = tokenizers
        self._begins_word: list[bool] = []
        """Of each id."""
        self._continues_word: list[bool] = []
        """Of each id; marks do neither."""
        for i, entry in enumerate(tokenizers.tgt.entries):
            text = entry.lstrip(JOINER)
            begins_word = tokenizers.tgt.begins_word(i) or re.match(UNSPACED, text) is not None
            self._begins_word.append(begins_word)
            self._continues_word.append(text[:1].isalnum() and not begins_word)

    def place(
        self,
        parts: Sequence[Part],
        hyps: Sequence[list[Hyp]],
        prefixes: Sequence[Ids],
        *,
        n_best: int,
        is_scored: bool,
    ) -> tuple[list[list[Hyp]], list[Ids]]:
        """The `hyps` of `parts`, or others whose best has the terms that were missing.

        They begin with `prefixes`, or longer ones, which are returned too. A term is placed once;
        it is still missing if the vocabulary or the longest translation have no room for it.
        """
        drafts = []
        for part, of_part, prefix in zip(parts, hyps, prefixes, strict=True):
            drafts.append(Draft(part, of_part, prefix, self._glossary.terms_in(part.text)))
        todo = self._lacking(drafts)
        while todo:
            sources = [draft.part.ids for draft in todo]
            attentions = self._engine.attentions(sources, [draft.ids for draft in todo])
            for draft, weights in zip(todo, attentions, strict=True):
                self._cut(draft, weights)
            self._search(todo, n_best=n_best, is_scored=is_scored)
            todo = self._lacking(todo)
        return [draft.hyps for draft in drafts], [draft.prefix for draft in drafts]

    def _lacking(self, drafts: Sequence[Draft]) -> list[Draft]:
        """Those of `drafts` that lack a term, with what is `missing`."""
        with_terms = [draft for draft in drafts if draft.terms]
        texts = self._tokenizers.tgt.decode([draft.ids for draft in with_terms])
        for draft, text in zip(with_terms, texts, strict=True):
            draft.missing = [term for term in draft.terms if not term.is_in(text)]
        return [draft for draft in with_terms if draft.missing]

    def _cut(self, draft: Draft, weights: CrossAttention) -> None:
        """Let `draft` begin with what it has up to the first missing term, and with that."""
        places = [self._place(term, draft, weights) for term in draft.missing]
        begin, draft.replaced = min(places, key=lambda place: place[0])
        term = draft.missing[places.index((begin, draft.replaced))]
        draft.terms.remove(term)
        draft.prefix = self._placed(term, draft.part, draft.ids[:begin]) or draft.prefix

    def _place(self, term: Term, draft: Draft, weights: CrossAttention) -> tuple[int, Ids]:
        """The place of `term` after the prefix of `draft`, and the words whose place it takes.

        They are the word that attends most to the term, and those near it that attend most to its
        other words; none if they mostly attend to others. `weights` are (T, S).
        """
        part = draft.part
        ids = draft.ids
        begin = len(draft.prefix)
        words = [t for t in range(begin, len(ids)) if t == 0 or self._begins_word[ids[t]]]
        if not words:
            return begin, ()
        before, up_to = self._tokenizers.encode(
            [part.text[: term.start], part.text[: term.end]], "src"
        )
        span = slice(len(before), max(len(up_to), len(before) + 1))
        best = int(np.maximum.reduceat(weights[:, span].sum(1), words).argmax())
        src_words = np.cumsum([self._tokenizers.src.begins_word(i) for i in part.ids])  # (S,)
        of_words = np.add.reduceat(weights, words)  # (W, S)
        attended = src_words[of_words.argmax(1)].tolist()  # (W,): the source word of each word
        others = {*src_words[span].tolist()} - {attended[best]}
        first = _reach(best, range(best - 1, -1, -1), attended, others)
        last = _reach(best, range(best + 1, len(words)), attended, others)
        of_old = of_words[first : last + 1]
        is_translation = of_old[:, span].sum() > of_old.sum() / 2
        end = [*words, len(ids)][last + 1]
        return words[first], ids[words[first] : end] if is_translation else ()

    def _placed(self, term: Term, part: Part, before: Ids) -> Ids:
        """`before` and the likeliest translation of `term`; nothing if none is possible.

        A sentence begins with a capital, if the vocabulary has the word with one; names, such as
        "iPhone", stay as they are.
        """
        possible: list[list[int]] = []
        (text,) = self._tokenizers.tgt.decode([before])
        for translation in term.translations:
            is_name = not translation.islower()
            capital = translation if is_name else translation[0].upper() + translation[1:]
            spellings = [translation] if before else [capital, translation]
            is_joined = all(re.match(UNSPACED, each) for each in (text[-1:], translation))
            for ids in self._tokenizers.encode(
                [text + each for each in spellings] if is_joined else spellings, "tgt"
            ):
                whole = ids if is_joined else [*before, *ids]
                if UNK_ID not in ids and len(whole) < self._engine.longest_sentence:
                    possible.append(whole)
                    break
        if len(possible) <= 1:
            return possible[0] if possible else ()
        found = self._engine.token_log_probs([part.ids] * len(possible), possible)
        log_probs = []
        for ids, each in zip(possible, found, strict=True):
            log_probs.append(sum(each[len(before) : len(ids)]))
        return possible[log_probs.index(max(log_probs))]

    def _search(self, drafts: Sequence[Draft], *, n_best: int, is_scored: bool) -> None:
        """Go on from the prefixes of `drafts`; the best hypotheses do so with another word.

        Where the best goes on with letters, or with words that were replaced, such as in "hound|s
        dog runs", it is searched for again from "hound runs". Others that do come last.
        """
        num_hyps = n_best if n_best == 1 else max(n_best, self._engine.config.beam_size)

        def search(drafts: Sequence[Draft]) -> None:
            found = self._engine.search(
                [draft.part.ids for draft in drafts],
                prefixes=[draft.prefix for draft in drafts],
                n_best=num_hyps,
                is_scored=is_scored,
            )
            for draft, hyps in zip(drafts, found, strict=True):
                hyps.sort(key=lambda hyp: self._num_skipped(draft, hyp) > 0 or not hyp.ids)
                draft.hyps = hyps[:n_best]

        search(drafts)
        again = []
        for draft in drafts:
            best = draft.hyps[0]
            skipped = self._num_skipped(draft, best)
            others = draft.rest(best)[skipped:]
            if skipped and others and len(draft.prefix) + 1 < self._engine.longest_sentence:
                draft.prefix = [*draft.prefix, others[0]]
                again.append(draft)
            elif skipped:
                draft.hyps[0] = replace(best, ids=list(draft.prefix))
        search(again)

    def _num_skipped(self, draft: Draft, hyp: Hyp) -> int:
        """How many ids after the prefix are letters, or words of the end of what was replaced."""
        rest = draft.rest(hyp)
        old = draft.replaced
        num = self._end_of_word(rest, 0)
        words = [t for t, token_id in enumerate(old) if self._begins_word[token_id]]
        for word in words:
            tail = list(old[word:])
            while not (self._begins_word[tail[-1]] or self._continues_word[tail[-1]]):
                tail.pop()  # a mark
            if list(rest[num : num + len(tail)]) == tail:
                return self._end_of_word(rest, num + len(tail))
        return num

    def _end_of_word(self, ids: Ids, place: int) -> int:
        """The first place from `place` where no word goes on."""
        while place < len(ids) and self._continues_word[ids[place]]:
            place += 1
        return place


def _reach(place: int, words: Iterable[int], attended: Sequence[int], others: set[int]) -> int:
    """The last of `words`, away from `place`, of which each attends to one of `others`.

    A word between two of them may attend to something else. What is attended leaves `others`.
    """
    for word in words:
        if attended[word] in others and abs(word - place) <= 2:
            place = word
            others.remove(attended[word])
    return place
