"""What a glossary does: terms of the references that a model misses, one to three a line.

    .venv/bin/python scripts/terms.py MODEL SOURCES REFERENCES [--wrong] [--most N]

A term is a word of the reference that the translation lacks, or neighbours of one source word, as
the model aligns them; `--wrong` takes each term's translation from another line.
"""

import argparse
import random
import re
import time
from collections.abc import Sequence
from pathlib import Path

import sacrebleu

from mt_cli.translation.glossary import Glossary, Term
from mt_cli.translation.translator import Translator

MOST_TERMS = 3
WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
FUNCTION_WORDS = """
a an the of in on at to with and or for from by is are was were be being been his her their its he
she it they them him while as that this these those there who which what into onto up down out over
under off near next some one two three four several other another has have having not no very
through around along behind front side top"""


class OfLines(Glossary):
    """Terms of each line alone."""

    def __init__(self, terms: dict[str, list[Term]]) -> None:
        super().__init__({})
        self._of_lines = terms

    def terms_in(self, text: str) -> list[Term]:
        """Those of the line `text`."""
        return list(self._of_lines.get(text, ()))


def missed_terms(
    source: str, reference: str, translation: str, aligned: Sequence[int]
) -> list[Term]:
    """Terms that `translation` lacks; `aligned` are source words of the words of `reference`."""
    words = list(re.finditer(r"\S+", source))
    known = {word.lower() for word in WORD.findall(translation)} | set(FUNCTION_WORDS.split())
    found: dict[int, list[tuple[int, str]]] = {}
    for place, text in enumerate(reference.split()):
        content = WORD.findall(text)
        if len(content) == 1 and len(content[0]) > 2 and content[0].lower() not in known:
            of_word = found.setdefault(aligned[place], [])
            if not of_word or of_word[-1][0] == place - 1:
                of_word.append((place, content[0]))
    terms = []
    for place, parts in found.items():
        name = re.search(r"\w(?:.*\w)?", words[place][0]) if place < len(words) else None
        if name:
            start = words[place].start()
            translation_of_it = " ".join(text for _, text in parts)
            terms.append(
                Term(name[0], start + name.start(), start + name.end(), [translation_of_it])
            )
    chosen = random.Random(source).sample(terms, min(MOST_TERMS, len(terms)))
    return sorted(chosen, key=lambda term: term.start)


def aligned_words(translator: Translator, source: str, reference: str) -> list[int]:
    """The source word that each word of `reference` attends to most, by its first token."""
    both = translator.tokenizers
    (src,) = both.encode([source], "src")
    (tgt,) = both.encode([reference], "tgt")
    (weights,) = translator.engine.attentions([src], [tgt])
    places = weights.argmax(-1).tolist()
    number = -1
    of_tokens = []
    for i, token_id in enumerate(src):
        number += i == 0 or both.src.begins_word(token_id)
        of_tokens.append(number)
    begins = [i for i, token_id in enumerate(tgt) if i == 0 or both.tgt.begins_word(token_id)]
    return [of_tokens[places[i]] for i in begins]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("sources", type=Path)
    parser.add_argument("references", type=Path)
    parser.add_argument("--wrong", action="store_true")
    parser.add_argument("--most", type=int, default=MOST_TERMS)
    given = parser.parse_args()
    sources = given.sources.read_text(encoding="utf-8").splitlines()
    references = given.references.read_text(encoding="utf-8").splitlines()
    usual = Translator.load(given.model, device="cpu", beam_size=5, length_penalty=1.4)
    before = usual.translate(sources)
    terms = {}
    for source, reference, translation in zip(sources, references, before, strict=True):
        aligned = aligned_words(usual, source, reference)
        terms[source] = missed_terms(source, reference, translation, aligned)[: given.most]
    if given.wrong:
        every = [term.translations for of_line in terms.values() for term in of_line]
        random.Random(1).shuffle(every)
        for source, of_line in terms.items():
            terms[source] = [Term(term.name, term.start, term.end, every.pop()) for term in of_line]
    glossary = OfLines(terms)
    beam_s = 0.0
    for beam_size, length_penalty in ((5, 1.4), (1, 0.0)):
        translator = Translator.load(
            given.model, device="cpu", beam_size=beam_size, length_penalty=length_penalty
        )
        translator.translate(sources[:64])
        scores = []
        for is_with_terms in (False, True):
            if is_with_terms:
                translator.glossary = glossary
            began_at = time.perf_counter()
            translations = translator.translate(sources)
            elapsed_s = time.perf_counter() - began_at
            beam_s = beam_s or elapsed_s
            scores.append(sacrebleu.corpus_bleu(translations, [references]).score)
        placed = 0
        for source, translation in zip(sources, translations, strict=True):
            placed += sum(term.count_in(translation) > 0 for term in terms[source])
        print(
            f"beam {beam_size}: BLEU {scores[0]:.2f}, with terms {scores[1]:.2f}; "
            f"{placed} of {sum(map(len, terms.values()))} placed; "
            f"{elapsed_s / beam_s:.2f} times as long as a beam of 5 without",
            flush=True,
        )


if __name__ == "__main__":
    main()
