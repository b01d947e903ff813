"""`TermPlacer`: puts missing glossary terms into translations and searches again.

A translation that misses a term is cut where it attends to the term in the source. The term's
translation goes there, and the search continues from that prefix. This gives better translations
than constrained beam search (Post and Vilar 2018); see "A glossary" in docs/lab/decoding.md.

Letters: T tokens of a translation, S tokens of its source, W words of the translation.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from mt_cli.decoding import Hyp, Ids
from mt_cli.text import UNK_ID
from mt_cli.text.language import DETERMINERS, UNSPACED, base_language
from mt_cli.text.tokenizers import Tokenizer, Tokenizers
from mt_cli.text.words import JOINER
from mt_cli.translation.engine import CrossAttention, Engine
from mt_cli.translation.glossary import Glossary, Term
from mt_cli.translation.reading import Part

MAX_PLACED = 20
"""Maximum number of terms placed in a part; each one takes another search."""


@dataclass
class Draft:
    """A translation while its missing terms are being placed."""

    part: Part
    hyps: list[Hyp]
    """The best first."""
    prefix: Ids
    """The ids that all `hyps` begin with."""
    every_term: Sequence[Term]
    """All terms in the source."""
    terms: list[Term]
    """The terms that have not been placed."""
    missing: list[Term] = field(default_factory=list)
    """The terms of `terms` that the best hypothesis may miss."""
    replaced: Ids = ()
    """The ids that the last placed term replaced."""

    @property
    def ids(self) -> Ids:
        """The ids of the best hypothesis."""
        return self.hyps[0].ids

    def rest(self, hyp: Hyp) -> Ids:
        """The ids of `hyp` after the prefix."""
        return hyp.ids[len(self.prefix) :]


class TermPlacer:
    """Places missing terms in translations and searches again.

    docs/lab/decoding.md has an example for each rule and shows what goes wrong without it.
    """

    def __init__(self, glossary: Glossary, engine: Engine, tokenizers: Tokenizers) -> None:
        self._glossary = glossary
        self._engine = engine
        self._tokenizers = tokenizers
        self._begins_word, self._continues_word = _word_marks(tokenizers.tgt)
        language = base_language(tokenizers.options.tgt_lang)
        self._determiners = DETERMINERS.get(language, "").split()

    def place(
        self,
        parts: Sequence[Part],
        hyps: Sequence[list[Hyp]],
        *,
        n_best: int,
        is_scored: bool,
    ) -> list[list[Hyp]]:
        """The `hyps` of `parts`, replaced where the best hypothesis misses a term.

        A term is placed as often as it occurs in the source. It stays missing if the vocabulary
        lacks it, if the translation would get too long, or once `MAX_PLACED` terms are placed.
        """
        drafts = []
        for part, of_part in zip(parts, hyps, strict=True):
            terms = self._glossary.terms_in(part.text)
            drafts.append(Draft(part, of_part, part.prefix, terms, [*terms]))
        todo = self._lacking(drafts)
        for _ in range(MAX_PLACED):
            if not todo:
                break
            sources = [draft.part.ids for draft in todo]
            attentions = self._engine.attentions(sources, [draft.ids for draft in todo])
            for draft, weights in zip(todo, attentions, strict=True):
                self._cut(draft, weights)
            self._search(todo, n_best=n_best, is_scored=is_scored)
            todo = self._lacking(todo)
        placed = []
        for draft in drafts:
            num_given = len(draft.prefix)
            placed.append([replace(hyp, num_given=num_given) for hyp in draft.hyps])
        return placed

    def _lacking(self, drafts: Sequence[Draft]) -> list[Draft]:
        """The drafts that miss a term; sets `missing` in each."""
        with_terms = [draft for draft in drafts if draft.terms]
        texts = self._tokenizers.tgt.decode([draft.ids for draft in with_terms])
        for draft, text in zip(with_terms, texts, strict=True):
            names = self._glossary.missing(draft.every_term, text)
            draft.missing = [term for term in draft.terms if term.name in names]
        return [draft for draft in with_terms if draft.missing]

    def _cut(self, draft: Draft, weights: CrossAttention) -> None:
        """Set the prefix of `draft`: its ids up to the first missing term, and that term."""
        candidates = []
        for term in draft.missing:
            begin, replaced = self._find_place(term, draft, weights)
            (text,) = self._tokenizers.tgt.decode([replaced])
            # If the line has the term twice, one of them may already be there.
            candidates.append((term.count_in(text) > 0, begin, replaced, term))
        _, begin, draft.replaced, term = min(candidates, key=lambda candidate: candidate[:2])
        draft.terms.remove(term)
        draft.prefix = self._with_term(term, draft, draft.ids[:begin]) or draft.prefix

    def _find_place(self, term: Term, draft: Draft, weights: CrossAttention) -> tuple[int, Ids]:
        """Where `term` goes after the prefix of `draft`, and which ids it replaces.

        It replaces the word that attends most to the term, and words nearby that attend most to
        the term's other words. It replaces nothing if that word attends more to a word outside the
        term. `weights` are (T, S).
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
        is_translation = attended[best] in src_words[span]
        end = [*words, len(ids)][last + 1]
        return words[first], ids[words[first] : end] if is_translation else ()

    def _with_term(self, term: Term, draft: Draft, before: Ids) -> Ids:
        """`before` followed by the likeliest translation of `term`; empty if none is possible.

        At the beginning of a part, the term is capitalized if the vocabulary allows it, except
        for names such as "iPhone". If the translation has a determiner, one before it is dropped.
        """
        possible: list[list[int]] = []
        nums_before: list[int] = []
        for translation in term.translations:
            start = self._without_determiner(before, draft, translation)
            (text,) = self._tokenizers.tgt.decode([start])
            is_name = not translation.islower()
            capital = translation if is_name else translation[0].upper() + translation[1:]
            spellings = [translation] if start else [capital, translation]
            is_joined = all(re.match(UNSPACED, spelling) for spelling in (text[-1:], translation))
            for ids in self._tokenizers.encode(
                [text + spelling for spelling in spellings] if is_joined else spellings, "tgt"
            ):
                ids_so_far = ids if is_joined else [*start, *ids]
                if UNK_ID not in ids and len(ids_so_far) < self._engine.longest_sentence:
                    possible.append(ids_so_far)
                    nums_before.append(len(start))
                    break
        if len(possible) <= 1:
            return possible[0] if possible else ()
        token_log_probs = self._engine.token_log_probs([draft.part.ids] * len(possible), possible)
        log_probs = []
        for ids, num_before, of_ids in zip(possible, nums_before, token_log_probs, strict=True):
            log_probs.append(sum(of_ids[num_before : len(ids)]))
        return possible[log_probs.index(max(log_probs))]

    def _without_determiner(self, before: Ids, draft: Draft, translation: str) -> Ids:
        """`before` without a determiner at its end, if `translation` begins with one itself.

        This avoids "a one puppy" for the term "one puppy".
        """
        words = [t for t in range(len(draft.prefix), len(before)) if self._begins_word[before[t]]]
        if not words or translation.split(maxsplit=1)[0].casefold() not in self._determiners:
            return before
        (last,) = self._tokenizers.tgt.decode([before[words[-1] :]])
        return before[: words[-1]] if last.casefold() in self._determiners else before

    def _search(self, drafts: Sequence[Draft], *, n_best: int, is_scored: bool) -> None:
        """Search again from the prefixes of `drafts`.

        The best hypothesis must not continue with letters of the same word, or with the replaced
        words. If it does, as in "hound|s dog runs", the search is repeated from "hound runs". Other
        hypotheses that do so come last.
        """
        num_hyps = n_best if n_best == 1 else max(n_best, self._engine.config.beam_size)

        def search(drafts: Sequence[Draft]) -> None:
            hyps_of = self._engine.search(
                [draft.part.ids for draft in drafts],
                prefixes=[draft.prefix for draft in drafts],
                n_best=num_hyps,
                is_scored=is_scored,
            )
            for draft, hyps in zip(drafts, hyps_of, strict=True):
                hyps.sort(key=lambda hyp: self._num_skipped(draft, hyp) > 0 or not hyp.ids)
                draft.hyps = hyps[:n_best]

        search(drafts)
        again = []
        for draft in drafts:
            best = draft.hyps[0]
            skipped = self._num_skipped(draft, best)
            rest = draft.rest(best)[skipped:]
            if skipped and rest and len(draft.prefix) + 1 < self._engine.longest_sentence:
                draft.prefix = [*draft.prefix, rest[0]]
                again.append(draft)
            elif skipped:
                draft.hyps[0] = replace(best, ids=list(draft.prefix))
        search(again)

    def _num_skipped(self, draft: Draft, hyp: Hyp) -> int:
        """How many ids after the prefix continue the term's word or repeat the replaced words."""
        rest = draft.rest(hyp)
        old = draft.replaced
        num = self._end_of_word(rest, 0)
        words = [t for t, token_id in enumerate(old) if self._begins_word[token_id]]
        for word in words:
            tail = list(old[word:])
            while not (self._begins_word[tail[-1]] or self._continues_word[tail[-1]]):
                tail.pop()  # a punctuation mark
            if list(rest[num : num + len(tail)]) == tail:
                return self._end_of_word(rest, num + len(tail))
        return num

    def _end_of_word(self, ids: Ids, place: int) -> int:
        """The first index from `place` on that does not continue a word."""
        while place < len(ids) and self._continues_word[ids[place]]:
            place += 1
        return place


@lru_cache(maxsize=4)
def _word_marks(tokenizer: Tokenizer) -> tuple[list[bool], list[bool]]:
    """Whether each id begins a word, and whether it continues one; punctuation does neither."""
    begins: list[bool] = []
    continues: list[bool] = []
    for i, entry in enumerate(tokenizer.entries):
        text = entry.lstrip(JOINER)
        begins.append(tokenizer.begins_word(i) or re.match(UNSPACED, text) is not None)
        continues.append(text[:1].isalnum() and not begins[-1])
    return begins, continues


def _reach(place: int, words: Iterable[int], attended: Sequence[int], others: set[int]) -> int:
    """The farthest of `words` from `place` that can be reached through words attending to `others`.

    One word in between may attend to something else. Attended words are removed from `others`.
    """
    for word in words:
        if attended[word] in others and abs(word - place) <= 2:
            place = word
            others.remove(attended[word])
    return place
