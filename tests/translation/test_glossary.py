"""Glossaries: which terms a text has, and that its translation has theirs."""

import pickle
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from learned import learn_tokenizers
from tiny import CPU, randomised, tiny_model
from workspace import READY_MODEL

from mt_cli import Translator
from mt_cli.config.schema import DecodingConfig, TokenizerConfig
from mt_cli.data.encoded import TrainingLengths
from mt_cli.decoding import Hyp, Ids
from mt_cli.errors import DataError, UsageError
from mt_cli.look.attention import Attention
from mt_cli.text import BOS_ID, PAD_ID
from mt_cli.text.tokenizers import Tokenizers
from mt_cli.translation.engine import CrossAttention, Engine
from mt_cli.translation.glossary import Glossary
from mt_cli.translation.result import Translation, warnings_of
from mt_cli.translation.torch_engine import TorchEngine

LINES = [
    "Ein Hund rennt durch den Schnee.",
    "Zwei Hunde spielen im Schnee.",
    "Eine Frau mit einem roten Hut liest eine Zeitung.",
    "Ein Mann schläft auf einer Bank.",
]


def glossary_of(folder: Path, *lines: str) -> Path:
    path = folder / "terms.tsv"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def load(glossary: Path | None = None, **options: Any) -> Translator:  # noqa: ANN401
    return Translator.load(READY_MODEL, device="cpu", threads=1, glossary=glossary, **options)


def word_translator(glossary: Glossary | None = None) -> Translator:
    """With a vocabulary of few words, and a model that knows nothing."""
    pairs = [("Ein Hund bellt.", "A dog barks."), ("Eine Katze schläft.", "A cat sleeps.")]
    config = TokenizerConfig(kind="spacy", vocab_size=100, min_freq=1, joint=False)
    tokenizers = learn_tokenizers(pairs, config, src_lang="de", tgt_lang="en", lowercase=False)
    model = tiny_model(
        src_vocab_size=tokenizers.src.vocab_size,
        tgt_vocab_size=tokenizers.tgt.vocab_size,
        options={"decoder_layers": 2, "max_len": 24},
    )
    engine = TorchEngine(
        randomised(model, std=1.0), DecodingConfig(), runtime=CPU, forbidden_ids=(PAD_ID, BOS_ID)
    )
    return Translator(engine, tokenizers, glossary=glossary)


def read(path: Path) -> Glossary:
    return Glossary.read(path, src_lang="de", tgt_lang="en")


def names(glossary: Glossary, text: str) -> list[str]:
    return [term.name for term in glossary.terms_in(text)]


# Reading


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["Hund\tdog", "Katze"], r"terms\.tsv: line 2: expected a term, a tab and its translation"),
        (["Hund\tdog", "Katze", "", "\tmouse"], r"(?s)line 2: .*'Katze'.*line 4: .*'mouse'"),
        (["x"] * 50, r"(?s)line 20: .*and 30 more"),
        (["", "\tdog"], "line 2: expected a term"),
        (["Hund\t "], "line 1: expected a term"),
        (["*\tdog"], r"line 1: '\*': \* may only stand at"),
        (["*hund\tdog"], r"line 1: '\*hund': \* may only stand at"),
        (["bringt * hinaus\tcarries"], r"\* may only stand at"),
        (["Hund|dog"], r"line 1: .*found 'Hund\|dog'"),
        (["", " "], r"terms\.tsv: the glossary has no terms"),
        ([], "has no terms"),
    ],
)
def test_what_is_no_glossary_is_refused(tmp_path: Path, lines: list[str], message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(glossary_of(tmp_path, *lines))


def test_a_file_that_is_missing_or_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no\.tsv"):
        load(tmp_path / "no.tsv")
    path = tmp_path / "latin1.tsv"
    path.write_bytes("Mädchen\tgirl\n".encode("latin-1"))
    with pytest.raises(DataError, match="UTF-8"):
        load(path)


def test_cells_are_read_as_excel_writes_them(tmp_path: Path) -> None:
    path = glossary_of(
        tmp_path, '"Hund"\tdog\t\t', 'Katze\t"the ""big"" cat"', "\t", " Rad \t bike "
    )
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert read(path).terms == {
        "Hund": ["dog"],
        "Katze": ['the "big" cat'],
        "Rad": ["bike"],
    }


@pytest.mark.parametrize(
    "lines",
    [
        ["Hund;dog", 'Katze;"a; b"'],
        ["Hund,dog,de,en", 'Katze,"a; b",de,en', "Maus,souris,de,fr"],
        ["sep=;", "Hund;dog", 'Katze;"a; b"'],
        ["Deutsch\tEnglisch", "Hund\tdog", "Katze\ta; b"],
        ["# Tiere", "Hund\tdog\tn.\tnote", "", "Katze\ta; b"],
        ["id,English (US),Note,German", "1,dog,,Hund", "2,a; b,x,Katze"],
        ["Source\tTarget", "Hund\tdog", "Katze\ta; b"],
    ],
    ids=["semicolons", "DeepL", "Excel", "header", "comments", "columns", "named"],
)
def test_glossaries_of_other_programs_are_read(tmp_path: Path, lines: list[str]) -> None:
    assert read(glossary_of(tmp_path, *lines)).terms == {"Hund": ["dog"], "Katze": ["a; b"]}


def test_a_cell_is_unquoted_only_as_a_whole(tmp_path: Path) -> None:
    path = glossary_of(tmp_path, '"Hund" groß\tthe "big" dog', '"rot"\t"red" or "reddish"')
    assert read(path).terms == {
        '"Hund" groß': ['the "big" dog'],
        "rot": ['"red" or "reddish"'],
    }


# Terms in a text


def test_signs_that_are_typed_for_one_another_match() -> None:
    glossary = Glossary({"Geht's": ["how's it"], "E–Mail": ["e-mail"]})
    assert names(glossary, "Wie geht’s der E-Mail?") == ["Geht's", "E–Mail"]
    (first, _) = glossary.terms_in("Geht's der E-Mail")
    assert first.count_in("How’s it going?") == 1


def test_terms_are_whole_words_in_any_case_and_the_longest_wins(tmp_path: Path) -> None:
    path = glossary_of(
        tmp_path,
        "hund\tdog",
        "Hund an der Leine\tdog on a leash",
        "Rad*\tbike",
        "C++\tC++",
        "rot\tred",
    )
    glossary = read(path)
    assert names(glossary, "Der HUND und ein Hund.") == ["hund", "hund"]
    assert names(glossary, "Hunde, Schäferhund, Hund-Katze") == ["hund"]
    assert names(glossary, "Ein Hund an der Leine.") == ["Hund an der Leine"]
    assert names(glossary, "Räder, Rades und Radweg in C++") == ["Rad*", "Rad*", "C++"]
    assert names(glossary, "Rotes Gras") == []


def test_an_exact_term_comes_before_one_of_any_letters_and_case_makes_no_other(
    tmp_path: Path,
) -> None:
    path = glossary_of(tmp_path, "Hund*\tcanine", "Hund\tdog", "HUND\tpuppy")
    (dog, dogs) = read(path).terms_in("Ein Hund und Hunde")
    assert (dog.name, dog.translations) == ("Hund", ["dog", "puppy"])
    assert (dogs.name, dogs.translations) == ("Hund*", ["canine"])


def test_sz_is_two_letters_in_capitals() -> None:
    glossary = Glossary({"Straße": ["avenue"]})
    for text in ("IN DER STRASSE.", "in der Strasse.", "in der Straße."):
        (term,) = glossary.terms_in(text)
        assert text[term.start : term.end].casefold() == "strasse"


def test_where_there_are_no_spaces_terms_stand_within_text() -> None:
    glossary = Glossary({"犬": ["cat"], "Hund": ["猫"], "赤い犬*": ["x"], "หมา": ["dog"]})
    assert names(glossary, "黒い犬が走る。") == ["犬"]
    assert names(glossary, "赤い犬が走る。") == ["赤い犬*"]
    assert names(glossary, "หมาวิ่ง") == ["หมา"]
    (term,) = glossary.terms_in("Der Hund")
    assert term.count_in("黒い猫が") == 1
    assert term.count_in("黒い犬が") == 0


WORDS = st.sampled_from(["a", "b", "ab", "A"])


@settings(max_examples=50)
@given(st.lists(st.lists(WORDS, min_size=1, max_size=3), min_size=1, max_size=4), st.lists(WORDS))
def test_terms_are_those_that_a_walk_over_the_words_finds(
    terms: list[list[str]], text: list[str]
) -> None:
    by_words = {tuple(word.lower() for word in term): " ".join(term).lower() for term in terms}
    glossary = Glossary({name: ["x"] for name in by_words.values()})
    lower, expected, place = [word.lower() for word in text], list[str](), 0
    while place < len(lower):
        longest = max(
            (term for term in by_words if tuple(lower[place : place + len(term)]) == term),
            key=lambda term: len(" ".join(term)),
            default=(),
        )
        if longest:
            expected.append(by_words[longest])
        place += len(longest) or 1
    assert names(glossary, " ".join(text)) == expected


# Translations


@pytest.mark.parametrize(
    "options", [{}, {"beam_size": 4, "length_penalty": 1.0}, {"temperature": 0.5}], ids=str
)
def test_terms_stand_where_the_source_has_them(tmp_path: Path, options: dict[str, Any]) -> None:
    path = glossary_of(
        tmp_path,
        *["Hund*\tpuppy", "Hund*\tpuppies", "rennt\tsprints", "Schnee\tdeep snow"],
        *["Frau\tlady", "liest\tpeers into", "schläft\tsleeps"],
    )
    dog, dogs, woman, _ = load(path, **options).translate(LINES)
    assert re.search(r"^A puppy sprints .*deep snow", dog)
    assert re.search(r"puppies .*deep snow", dogs)
    assert re.search(r"^A lady .*peers into ", woman)


def test_a_line_without_terms_is_translated_as_ever(tmp_path: Path) -> None:
    path = glossary_of(tmp_path, "Hund*\tpuppy", "Katze\tpurrer")
    before, after = load().translate(LINES), load(path).translate(LINES)
    assert after[2:] == before[2:]
    assert after[0] != before[0]


def test_a_term_takes_the_place_of_all_its_words_and_of_nothing_else(tmp_path: Path) -> None:
    path = glossary_of(
        tmp_path,
        *["schwarze* Hund\tdark hound", "Straße\tavenue", "Mann mit einem Hut\tgentleman in a hat"],
    )
    texts = load(path).translate(
        [
            "Ein schwarzer Hund rennt am Strand.",
            "Leute gehen auf einer Straße.",
            "Ein Mann mit einem Hut schläft.",
        ]
    )
    assert "dark hound" in texts[0]
    assert not {"black", "dog"} & set(texts[0].split())
    assert "street" not in texts[1]
    assert texts[2].startswith("A gentleman in a hat ")
    assert texts[2].count("hat") == 1


def test_a_term_begins_a_sentence_with_a_capital(tmp_path: Path) -> None:
    path = glossary_of(tmp_path, "Hunde\tcanines", "Frauen\tiWomen")
    dogs, women = load(path).translate(["Hunde rennen durch den Schnee.", "Frauen lachen."])
    assert dogs.startswith("Canines ")
    assert women.startswith("iWomen ")


def test_every_part_of_a_long_line_has_its_terms(tmp_path: Path) -> None:
    translator = load(glossary_of(tmp_path, "Hund*\tpuppy", "schläft\tsnores"))
    (text,) = translator.translate([" ".join(LINES * 3)])
    assert (text.count("puppy"), text.count("snores")) == (6, 3)


def test_only_the_lines_that_lack_a_term_are_told(tmp_path: Path) -> None:
    """A term's translation that is longer than the model takes cannot be placed."""
    translator = load(glossary_of(tmp_path, "Hund*\tpuppy", f"Frau\t{'very ' * 300}"))
    found = [best for (best,) in translator.translate_n_best(LINES)]
    assert [best.missing_terms for best in found] == [(), (), ("Frau",), ()]
    (warning,) = warnings_of(found, translator.glossary)
    assert "1 of 4 translations miss a glossary term" in warning
    assert "line 3" in warning


def test_words_that_a_vocabulary_of_words_lacks_are_told() -> None:
    glossary = Glossary({"Hund": ["hound"], "Katze": ["sleeps"], "bellt": ["woofs", "barks"]})
    translator = word_translator(glossary=glossary)
    [dog], [cat] = translator.translate_n_best(["Ein Hund bellt.", "Eine Katze schläft."])
    assert "hound" not in dog.text
    assert "barks" in dog.text
    assert "sleeps" in cat.text
    assert (dog.missing_terms, cat.missing_terms) == (("Hund",), ())


def test_the_best_of_several_translations_has_the_terms(tmp_path: Path) -> None:
    translator = load(glossary_of(tmp_path, "Hund*\tpuppy"), beam_size=4)
    found = translator.translate_n_best(LINES[:2], n_best=3, with_alignment=True, with_words=True)
    for of_line in found:
        assert "puppy" in of_line[0].text
        assert len({each.text for each in of_line}) == 3
        assert sum(log_prob for _, log_prob in of_line[0].words) < of_line[0].log_prob


# Prefixes


def test_translations_begin_with_a_prefix_and_go_on_from_it() -> None:
    begin = "There are some"
    found = load().translate(["", *LINES[:2], "7"], prefix=begin)
    assert found == ["", found[1], found[2], "7"]
    assert re.match(rf"{begin} .*snow\.", found[1])
    assert re.match(rf"{begin} .*snow\.", found[2])
    whole = load().translate(LINES)
    beginnings = [" ".join(text.split()[:3]) for text in whole]
    for line, text, beginning in zip(LINES, whole, beginnings, strict=True):
        assert load().translate([line], prefix=f" {beginning}  ") == [text]


def test_a_prefix_and_a_glossary_go_together(tmp_path: Path) -> None:
    path = glossary_of(tmp_path, "Schnee\tdeep snow")
    (text,) = load(path).translate(LINES[:1], prefix="Two dogs")
    assert re.fullmatch(r"Two dogs .*deep snow.*", text)


@pytest.mark.parametrize("prefix", ["very " * 300, None, 3], ids=["long", "none", "number"])
def test_what_no_translation_can_begin_with_is_refused(prefix: Any) -> None:  # noqa: ANN401
    with pytest.raises(UsageError, match="prefix"):
        load().translate(LINES, prefix=prefix)


def test_a_prefix_of_words_that_the_vocabulary_lacks_is_refused() -> None:
    translator = word_translator()
    with pytest.raises(UsageError, match="A hound"):
        translator.translate(["Ein Hund bellt."], prefix="A hound")
    (text,) = translator.translate(["Ein Hund bellt."], prefix="A cat")
    assert text.startswith("A cat")


def test_lines_together_are_translated_as_alone(tmp_path: Path) -> None:
    translator = load(glossary_of(tmp_path, "Hund*\tpuppy", "Schnee\tice", "Bank\tsofa"))
    lines: Sequence[str] = LINES * 6
    assert translator.translate(lines) == [translator.translate([line])[0] for line in lines]


# Placing, with an engine that says what it is told to


class Told(Engine):
    """Goes on from each prefix as `said` says, where `+` is no space.

    Each word attends to the source word that `looks` gives.
    """

    def __init__(
        self, tokenizers: Tokenizers, said: dict[str, str], looks: Callable[[str], int]
    ) -> None:
        super().__init__(
            DecodingConfig(), device="cpu", longest_sentence=40, lengths=TrainingLengths()
        )
        self._tokenizers = tokenizers
        self._said = said
        self._looks = looks
        self.prefixes: list[str] = []

    def search(self, sources: Sequence[Ids], **options: Any) -> list[list[Hyp]]:  # noqa: ANN401
        found = []
        for prefix in options["prefixes"]:
            (text,) = self._tokenizers.tgt.decode([prefix])
            self.prefixes.append(text)
            whole = [*prefix]
            for word in self._said[text].split():
                piece = word.removeprefix("+")
                (ids,) = self._tokenizers.encode([piece], "tgt")
                whole += [self._tokenizers.tgt.entries.index(piece)] if piece != word else ids
            found.append([Hyp(whole, 0.0, 0.0)])
        return found

    def cross_attention(self, sources: Sequence[Ids], hyps: Sequence[Ids]) -> list[CrossAttention]:
        found = []
        for src, hyp in zip(sources, hyps, strict=True):
            words = np.cumsum([self._tokenizers.src.begins_word(i) for i in src]) - 1
            weights = np.zeros((len(hyp), len(src)), np.float32)
            for t, token in enumerate(self._tokenizers.tgt.tokens(hyp)):
                weights[t, words == self._looks(token.strip("▁."))] = 1
            found.append(weights)
        return found

    def token_log_probs(self, sources: Sequence[Ids], hyps: Sequence[Ids]) -> list[list[float]]:
        return [[0.0] * (len(hyp) + 1) for hyp in hyps]


SOURCE = "Ein Hund jagt eine Katze."
WORDS_OF_SOURCE = {"A": 0, "dog": 1, "chases": 2, "a": 3, "cat": 4}


def told(
    said: dict[str, str],
    terms: dict[str, list[str]],
    looks: Callable[[str], int] = lambda word: WORDS_OF_SOURCE.get(word, 2),
    *,
    prefix: str = "",
) -> tuple[str, list[str]]:
    """The translation of `SOURCE`, and the prefixes that were searched from."""
    tokenizers = load().tokenizers
    engine = Told(tokenizers, said, looks)
    (text,) = Translator(engine, tokenizers, glossary=Glossary(terms)).translate(
        [SOURCE], prefix=prefix
    )
    return text, engine.prefixes


def test_a_term_is_placed_at_its_word_and_what_follows_is_searched_anew() -> None:
    said = {"": "A dog chases a cat.", "A horse": "chases one cat."}
    assert told(said, {"Hund": ["horse"]}) == ("A horse chases one cat.", ["", "A horse"])


def test_terms_are_placed_in_the_order_of_the_translation() -> None:
    said = {
        "": "A cat by a dog",
        "A bird": "by a dog",
        "A bird by a horse": "on grass",
    }
    terms = {"Hund": ["horse"], "Katze": ["bird"]}
    assert told(said, terms)[0] == "A bird by a horse on grass"


def test_a_term_does_not_cut_what_was_given() -> None:
    said = {"A dog": "is here", "A dog horse": "is here", "A dog is horse": "now"}
    text, prefixes = told(said, {"Hund": ["horse"]}, prefix="A dog")
    assert text.startswith("A dog ")
    assert all(each.startswith("A dog") for each in prefixes)


@pytest.mark.parametrize("rest", ["+s dog chases cats", "dog +s chases cats", "+s chases cats"])
def test_neither_letters_nor_the_old_word_follow_a_term(rest: str) -> None:
    said = {"": "A dog chases cats", "A horse": rest, "A horse chases": "a cat"}
    found = told(said, {"Hund": ["horse"]})
    assert found == ("A horse chases a cat", ["", "A horse", "A horse chases"])


@pytest.mark.parametrize("rest", ["+s", "dog", "+s dog"])
def test_a_term_ends_a_translation_that_would_only_spoil_it(rest: str) -> None:
    said = {"": "A dog", "A horse": rest}
    assert told(said, {"Hund": ["horse"]})[0] == "A horse"


def test_a_term_that_has_no_room_is_left_out_and_others_are_placed() -> None:
    said = {"": "A dog chases a cat.", "A dog chases a bird": "now"}
    terms = {"Hund": ["very " * 39 + "big"], "Katze": ["bird"]}
    assert told(said, terms)[0] == "A dog chases a bird now"


class Last:
    """A reranker that takes the last candidate of those that lack no more terms than the first."""

    def ordered(self, found: Sequence[Sequence[Translation]]) -> list[list[Translation]]:
        return [list(reversed(of_line)) for of_line in found]


def test_each_candidate_of_reranking_has_its_own_facts(tmp_path: Path) -> None:
    path = glossary_of(tmp_path, "rennt\truns", "spielen\tplay", "liest\treads", "schläft\tnaps")
    found = load(path, beam_size=8)
    reranked = Translator(
        found.engine, found.tokenizers, glossary=found.glossary, reranker=cast("Any", Last())
    )
    for of_line in reranked.translate_n_best(LINES, n_best=8):
        for each in of_line:
            terms = found.glossary.terms_in(each.source) if found.glossary else []
            lacks = [term.name for term in terms if not term.count_in(each.text)]
            assert list(each.missing_terms) == lacks


def test_the_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = glossary_of(tmp_path, "Hund*\tpuppy")
    translator = load(Path("terms.tsv"))
    again = pickle.loads(pickle.dumps(translator))
    path.unlink()
    assert "terms.tsv" in repr(translator)
    for each in (translator, again):
        assert "puppy" in each.translate(LINES[:1])[0]


def test_long_prefixes_and_terms_are_no_reason_to_warn(tmp_path: Path) -> None:
    translator = load(glossary_of(tmp_path, f"Hund\tdog {'and cat ' * 8}"))
    dogs = translator.translate_n_best(["Hund.", "Ein Hund.", "Der Hund."])
    men = translator.translate_n_best(["Mann."] * 4, prefix="There is a man " * 6)
    assert [best.is_cut for (best,) in dogs + men] == [False] * 7


def test_attention_is_that_of_the_translation_with_its_terms(tmp_path: Path) -> None:
    translator = load(glossary_of(tmp_path, "Schnee\tdeep ice"))
    assert Attention.of(translator, LINES[0]).pair.translation == translator.translate(LINES)[0]


def test_what_is_copied_has_no_terms(tmp_path: Path) -> None:
    translator = load(glossary_of(tmp_path, "hund\tdog", "12\ta dozen"))
    found = translator.translate(["Ein Mann liest http://hund.de/a im Park.", "12", "{hund}"])
    assert "http://hund.de/a" in found[0]
    assert found[1:] == ["12", "{hund}"]
    (http, number, name) = translator.translate_n_best(["http://hund.de/a", "12", "{hund}"])
    assert [best.missing_terms for (best,) in (http, number, name)] == [()] * 3


@pytest.mark.parametrize(
    ("said", "terms", "expected"),
    [
        ({"A horse": "runs"}, {"Hund": ["horse"]}, "A horse runs"),
        ({"One horse": "runs"}, {"Ein Hund": ["one horse"]}, "One horse runs"),
        ({"The horse": "runs"}, {"Hund": ["the horse"]}, "The horse runs"),
    ],
    ids=["none", "of the term", "of its translation"],
)
def test_a_noun_gets_one_article(
    said: dict[str, str], terms: dict[str, list[str]], expected: str
) -> None:
    assert told({"": "A dog chases a cat.", **said}, terms)[0] == expected


def test_a_term_that_a_line_has_twice_is_placed_twice(tmp_path: Path) -> None:
    translator = load(glossary_of(tmp_path, "Hund*\tpuppy"))
    line = "Ein Hund rennt und ein Hund schläft im Schnee."
    ((best,),) = translator.translate_n_best([line])
    assert best.text.count("puppy") == 2
    assert (best.missing_terms, best.doubled_terms) == ((), ())


def test_terms_that_no_line_has_or_only_inflected_are_told_once(tmp_path: Path) -> None:
    translator = load(glossary_of(tmp_path, "Hund\tdog", "Schnee\tsnow", "Einhorn\tunicorn"))
    found = [best for (best,) in translator.translate_n_best(["Hunde im Schnee.", "Schnee."])]
    told_of = warnings_of(found, translator.glossary)
    assert [("Hund" in each, "Einhorn" in each) for each in told_of] == [
        (True, False),
        (False, True),
    ]
