"""The sample corpus: what its script makes, and that its test cannot be passed by copying."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import sacrebleu
from make_sample_corpus import MIN_COUNT, MIN_HELD_OUT, bare_words, count_held_out, make_corpus, write_corpus
from numpy.typing import NDArray
from sample_corpus.grammar import (
    Clause,
    NounPhrase,
    Subject,
    de_prepositional,
    english_article,
    progressive,
    sentence,
)
from sample_corpus.lexicon import NOUNS, PLACES, Adjective, Case, Verb, regular_plural
from sample_corpus.sentences import VERBS, Pair

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts"
SAMPLE = ROOT / "data" / "sample"

SPLITS = ("train", "val", "test")
RED, OLD = Adjective("rot", "red"), Adjective("alt", "old")
MASCULINE_ONLY = {noun.de for noun in NOUNS.values() if noun.gender == "m"}
FEMININE_ONLY = {noun.de for noun in NOUNS.values() if noun.gender == "f"}


def read_lines(name: str) -> list[str]:
    return (SAMPLE / name).read_text(encoding="utf-8").split("\n")[:-1]


@pytest.fixture(scope="module")
def corpus() -> dict[str, list[Pair]]:
    return make_corpus()


# The files


def test_committed_files_are_what_the_script_makes(corpus: dict[str, list[Pair]], tmp_path: Path) -> None:
    write_corpus(corpus, tmp_path)
    made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    committed = {path.name: path.read_bytes() for path in SAMPLE.glob("*.??")}
    assert made == committed


@pytest.mark.parametrize(("split", "least"), [("train", 4000), ("val", 200), ("test", 200)])
def test_split_has_enough_aligned_pairs(split: str, least: int) -> None:
    assert len(read_lines(f"{split}.de")) == len(read_lines(f"{split}.en")) >= least


def test_corpus_is_small() -> None:
    assert sum(path.stat().st_size for path in SAMPLE.iterdir()) < 1_000_000


def test_no_source_sentence_comes_twice() -> None:
    sources = [line for split in SPLITS for line in read_lines(f"{split}.de")]
    assert len(set(sources)) == len(sources)


@pytest.mark.parametrize("side", ["de", "en"])
def test_training_has_over_300_word_types(side: str) -> None:
    assert len({word for line in read_lines(f"train.{side}") for word in bare_words(line)}) >= 300


@pytest.mark.parametrize("side", ["de", "en"])
@pytest.mark.parametrize("split", ["val", "test"])
def test_training_shows_every_held_out_word_several_times(split: str, side: str) -> None:
    counts = Counter(word for line in read_lines(f"train.{side}") for word in bare_words(line))
    rare = {
        word
        for line in read_lines(f"{split}.{side}")
        for word in bare_words(line)
        if counts[word] < MIN_COUNT
    }
    assert rare == set()


def test_training_shows_no_combination_that_is_held_out(corpus: dict[str, list[Pair]]) -> None:
    assert sum(count_held_out(pair) for pair in corpus["train"]) == 0


@pytest.mark.parametrize("split", ["val", "test"])
def test_every_scored_sentence_has_unseen_combinations(corpus: dict[str, list[Pair]], split: str) -> None:
    seen = {combination for pair in corpus["train"] for combination in pair.combinations}
    assert all(len(pair.combinations - seen) >= MIN_HELD_OUT for pair in corpus[split])


# How far copying gets


def test_copying_the_nearest_training_target_scores_under_50_bleu() -> None:
    train_src, train_tgt = read_lines("train.de"), read_lines("train.en")
    refs = [read_lines("test.en")]
    scores = [
        sacrebleu.corpus_bleu([train_tgt[index] for index in nearest], refs).score
        for nearest in (
            find_nearest(read_lines("test.de"), train_src, features)
            for features in (word_features, letter_features)
        )
    ]
    assert max(scores) < 50


def word_features(line: str) -> set[str]:
    """Words and pairs of neighbours."""
    tokens = ["<s>", *line.replace(",", " ,").replace(".", " .").split()]
    return {*tokens, *(" ".join(pair) for pair in pairwise(tokens))}


def letter_features(line: str) -> set[str]:
    """All strings of four letters, across words."""
    return {line[start : start + 4] for start in range(len(line) - 3)}


def find_nearest(queries: list[str], lines: list[str], features: Callable[[str], set[str]]) -> list[int]:
    """For each query the line that shares most features, rare ones weighing more (weighted Dice)."""
    line_features = [features(line) for line in lines]
    document_counts = Counter(feature for found in line_features for feature in found)
    columns = {feature: column for column, feature in enumerate(document_counts)}
    weights = np.log(len(lines) / np.array(list(document_counts.values()), dtype=np.float32)) + 0.1

    def to_rows(found: list[set[str]]) -> NDArray[np.float32]:
        rows = np.zeros((len(found), len(columns)), dtype=np.float32)
        for row, names in zip(rows, found, strict=True):
            row[[columns[name] for name in names if name in columns]] = 1
        return rows * np.sqrt(weights)

    line_rows, query_rows = to_rows(line_features), to_rows([features(query) for query in queries])
    sizes = (line_rows**2).sum(1)[None, :] + (query_rows**2).sum(1)[:, None]
    return [int(best) for best in (2 * query_rows @ line_rows.T / sizes).argmax(1)]


# The grammar, against forms written by hand


@pytest.mark.parametrize(
    ("noun", "determiner", "is_plural", "case", "expected"),
    [
        ("Hut", "ein", False, "nom", "ein roter Hut"),
        ("Hut", "ein", False, "acc", "einen roten Hut"),
        ("Hut", "ein", False, "dat", "einem roten Hut"),
        ("Hut", "der", False, "nom", "der rote Hut"),
        ("Hut", "der", False, "acc", "den roten Hut"),
        ("Hut", "", True, "dat", "roten Hüten"),
        ("Jacke", "ein", False, "acc", "eine rote Jacke"),
        ("Jacke", "der", False, "dat", "der roten Jacke"),
        ("Jacke", "der", True, "nom", "die roten Jacken"),
        ("Kleid", "ein", False, "nom", "ein rotes Kleid"),
        ("Kleid", "der", False, "acc", "das rote Kleid"),
        ("Kleid", "zwei", True, "acc", "zwei rote Kleider"),
        ("Kleid", "mehrere", True, "dat", "mehreren roten Kleidern"),
        ("Junge", "ein", False, "acc", "einen roten Jungen"),
        ("Auto", "", True, "dat", "roten Autos"),
        ("Tee", "", False, "acc", "roten Tee"),
        ("Milch", "", False, "acc", "rote Milch"),
        ("Wasser", "", False, "acc", "rotes Wasser"),
    ],
)
def test_noun_phrase_agrees(noun: str, determiner: str, is_plural: bool, case: Case, expected: str) -> None:
    assert NounPhrase(NOUNS[noun], determiner, RED, is_plural).de(case) == expected


@pytest.mark.parametrize(
    ("prep", "noun", "case", "expected"),
    [
        ("in", "Park", "dat", "im Park"),
        ("in", "Wasser", "acc", "ins Wasser"),
        ("an", "Strand", "dat", "am Strand"),
        ("in", "Küche", "dat", "in der Küche"),
        ("in", "See", "acc", "in den See"),
        ("auf", "Sofa", "dat", "auf dem Sofa"),
    ],
)
def test_preposition_governs_case_and_contracts(prep: str, noun: str, case: Case, expected: str) -> None:
    assert de_prepositional(prep, NounPhrase(NOUNS[noun], "der"), case) == expected


@pytest.mark.parametrize(
    ("noun", "determiner", "is_plural", "expected"),
    [
        ("Hut", "ein", False, "an old hat"),
        ("Kind", "zwei", True, "two old children"),
        ("Hose", "ein", False, "old pants"),
        ("Hose", "der", False, "the old pants"),
    ],
)
def test_english_noun_phrase(noun: str, determiner: str, is_plural: bool, expected: str) -> None:
    assert NounPhrase(NOUNS[noun], determiner, OLD, is_plural).en() == expected


@pytest.mark.parametrize(
    ("word", "article"),
    [("apple", "an"), ("umbrella", "an"), ("uniform", "a"), ("hat", "a"), ("old hat", "an")],
)
def test_english_article_follows_the_sound(word: str, article: str) -> None:
    assert english_article(word) == article


@pytest.mark.parametrize(
    ("base", "participle"),
    [
        ("sit", "sitting"),
        ("ride", "riding"),
        ("lie", "lying"),
        ("pick up", "picking up"),
        ("look at", "looking at"),
    ],
)
def test_progressive_form(base: str, participle: str) -> None:
    assert progressive(base) == participle


@pytest.mark.parametrize(
    ("singular", "plural"), [("dog", "dogs"), ("bench", "benches"), ("lady", "ladies"), ("boy", "boys")]
)
def test_regular_english_plural(singular: str, plural: str) -> None:
    assert regular_plural(singular) == plural


def verb_named(singular: str, en: str, *, particle: str | None = None) -> Verb:
    return next(
        verb
        for verb in VERBS
        if (verb.singular, verb.en) == (singular, en) and particle in {None, verb.particle}
    )


def one(noun: str) -> NounPhrase:
    return NounPhrase(NOUNS[noun], "ein")


GIRL = Subject((one("Mädchen"),), is_human=True)
PARK = next(place for place in PLACES if place.noun.de == "Park")
LISTENING = Clause(
    GIRL,
    verb_named("hört", "listen to"),
    obj=one("Musiker"),
    place=NounPhrase(NOUNS["Park"], "der"),
    place_kind=PARK,
)
RESTING = Clause(GIRL, verb_named("ruht", "rest"))


def test_finite_verb_is_second_and_its_particle_last() -> None:
    assert LISTENING.de_main() == "ein Mädchen hört im Park einem Musiker zu"
    assert LISTENING.de_main(front="place") == "im Park hört ein Mädchen einem Musiker zu"
    assert LISTENING.de_main(front="heute") == "heute hört ein Mädchen im Park einem Musiker zu"


def test_finite_verb_is_last_in_subordinate_clauses() -> None:
    assert LISTENING.de_final() == "ein Mädchen im Park einem Musiker zuhört"
    assert LISTENING.de_relative() == "das im Park einem Musiker zuhört"
    assert LISTENING.de_infinitive() == "im Park einem Musiker zuzuhören"


def test_reflexive_pronoun_follows_the_finite_verb_or_opens_the_clause() -> None:
    assert RESTING.de_main() == "ein Mädchen ruht sich aus"
    assert RESTING.de_main(front="heute") == "heute ruht sich ein Mädchen aus"
    assert RESTING.de_final() == "sich ein Mädchen ausruht"


def test_english_puts_the_object_before_the_place_or_the_place_in_front() -> None:
    assert LISTENING.en_main() == "a girl is listening to a musician in the park"
    assert LISTENING.en_main(front="place") == "in the park, a girl is listening to a musician"
    assert LISTENING.en_relative() == "who is listening to a musician in the park"


@pytest.mark.parametrize(
    ("verb", "de_expected", "en_expected"),
    [
        (
            verb_named("liest", "read", particle="vor"),
            "ein Mädchen liest einem Kind einen Brief vor",
            "a girl is reading a letter to a child",
        ),
        (
            verb_named("zeigt", "show"),
            "ein Mädchen zeigt einem Kind einen Brief",
            "a girl is showing a child a letter",
        ),
    ],
    ids=["to a child", "a child"],
)
def test_recipient_is_dative_and_comes_first_in_german(
    verb: Verb, de_expected: str, en_expected: str
) -> None:
    clause = Clause(GIRL, verb, obj=one("Brief"), recipient=one("Kind"))
    assert clause.de_main() == de_expected
    assert clause.en_main() == en_expected


def test_verb_agrees_with_its_subject() -> None:
    pair = Subject((one("Mann"), one("Frau")), is_human=True)
    group = Subject((NounPhrase(NOUNS["Kind"], "", None, is_plural=True),), is_human=True, is_group=True)
    assert replace(RESTING, subject=pair).de_main() == "ein Mann und eine Frau ruhen sich aus"
    assert replace(RESTING, subject=group).de_main() == "eine Gruppe von Kindern ruht sich aus"
    assert replace(RESTING, subject=group).en_main() == "a group of children is resting"


def test_relative_clause_is_set_off_by_commas() -> None:
    described = replace(GIRL, relative=RESTING)
    assert (
        sentence(replace(RESTING, subject=described).de_main())
        == "Ein Mädchen, das sich ausruht, ruht sich aus."
    )


# Agreement in the corpus as written


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize(
    ("articles", "endings", "wrong_nouns"),
    [({"einen", "einem", "dem"}, "en", FEMININE_ONLY), ({"eine", "einer"}, "", MASCULINE_ONLY)],
    ids=["no feminine noun after einen", "no masculine noun after eine"],
)
def test_articles_agree_with_their_nouns(
    split: str, articles: set[str], endings: str, wrong_nouns: set[str]
) -> None:
    found = [
        phrase
        for line in read_lines(f"{split}.de")
        for phrase in phrases_after(bare_words(line), articles)
        if phrase[-1] in wrong_nouns or (not phrase[0].endswith(endings) and phrase[0].islower())
    ]
    assert found == []


def phrases_after(tokens: list[str], articles: set[str]) -> list[list[str]]:
    """What follows each of the articles: an adjective, if there is one, and the noun."""
    return [
        tokens[index + 1 : index + 2] if tokens[index + 1][0].isupper() else tokens[index + 1 : index + 3]
        for index, token in enumerate(tokens)
        if token.lower() in articles
    ]


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("wrong", [" in dem ", " an dem ", " in das ", " an das ", "  ", " ,", ",,", " ."])
def test_german_never_has(split: str, wrong: str) -> None:
    assert [line for line in read_lines(f"{split}.de") if wrong in line] == []


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("side", ["de", "en"])
def test_every_line_is_a_sentence(split: str, side: str) -> None:
    assert [
        line for line in read_lines(f"{split}.{side}") if not (line[0].isupper() and line.endswith("."))
    ] == []
