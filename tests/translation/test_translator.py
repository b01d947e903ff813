"""`Translator`: lines in, lines out."""

import os
import random
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from workspace import READY_MODEL, Workspace

from mt_cli.data.encoded import TrainingLengths
from mt_cli.errors import UsageError
from mt_cli.runs.opening import open_run
from mt_cli.translation.result import unlike_training, warnings_of
from mt_cli.translation.translator import Translator

SENTENCES = [
    "Ein Mann schläft auf einer Bank.",
    "Zwei Hunde spielen im Schnee!",
    "Eine Frau lacht.",
] * 4


def load(workspace: Workspace, **options: Any) -> Translator:  # noqa: ANN401
    return Translator.load(workspace.run, device="cpu", threads=1, **options)


@pytest.fixture(scope="module")
def translator(workspace: Workspace) -> Translator:
    return load(workspace)


@pytest.fixture(scope="module")
def beams(workspace: Workspace) -> Translator:
    return load(workspace, beam_size=4, length_penalty=0.6)


@pytest.fixture(scope="module")
def known(workspace: Workspace) -> list[str]:
    """Lines that the model knows by heart, so that rounding changes no translation."""
    return workspace.corpus("train.de").read_text(encoding="utf-8").splitlines()[1:]


SLOW = {"torch", "spacy", "sacrebleu", "matplotlib", "py3langid", "uvicorn"}
"""What takes long to import, and a line does not need."""


def loaded_by(code: str) -> set[str]:
    """What a fresh process has loaded of `SLOW` after `code`, which prints nothing."""
    code = f"import sys, mt_cli\n{code}\nprint(*{SLOW!r}.intersection(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    return set(done.stdout.decode().split())


def test_a_line_needs_nothing_that_is_slow_to_import(workspace: Workspace, exported: Path) -> None:
    for folder in (workspace.run, exported):
        load = f"t = mt_cli.Translator.load({str(folder)!r}, device='cpu')"
        assert loaded_by(f"{load}; t.translate(['Ein Hund 🐶 schläft.'])") == set()


def test_runs_are_listed_without_it(workspace: Workspace) -> None:
    imports = "from pathlib import Path; from mt_cli.look.inspect import summarize_runs"
    assert loaded_by(f"{imports}; summarize_runs(Path({str(workspace.run.parent)!r}))") == set()


@pytest.mark.parametrize("flags", [[], ["--json"], ["--with-score"]], ids=str)
def test_the_command_needs_nothing_else(
    workspace: Workspace, exported: Path, flags: list[str]
) -> None:
    for folder in (workspace.run, exported):
        args = ["translate", str(folder), "--device=cpu", "--text", "Ein Hund.", "-o", os.devnull]
        run = f"from mt_cli.cli.app import app; app({[*args, *flags]!r})"
        assert loaded_by(f"try:\n {run}\nexcept SystemExit as e: assert not e.code") == set()


def test_torch_is_loaded_when_enough_lines_come_together() -> None:
    load = f"t = mt_cli.Translator.load({str(READY_MODEL)!r}, device='cpu')"
    assert "torch" not in loaded_by(f"{load}; t.translate(['Ein Hund rennt.'] * 10)")
    assert "torch" in loaded_by(f"{load}; t.translate(['Ein Hund rennt.'] * 1000)")


def test_the_model_that_comes_along_is_known_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    translator = Translator.load(READY_MODEL.name, device="cpu", threads=1)
    assert "dog" in translator.translate(["Ein Hund rennt."])[0]


# Lines


def test_text_is_normalised_first_and_what_is_nothing_then_stays_empty(
    translator: Translator,
) -> None:
    (dogs,) = translator.translate(["Zwei Hunde schlafen."])
    untidy = " Zwei\u00a0\u00a0Hunde\tschla\u200bfen.\r"
    assert translator.translate(["", untidy, " \t", "\u200b\ufeff"]) == ["", dogs, "", ""]


@pytest.mark.parametrize("options", [{}, {"batch_size": 3}, {"backend": "torch"}], ids=str)
def test_each_line_is_translated_as_if_alone_in_any_order_and_batch(
    workspace: Workspace, translator: Translator, known: list[str], options: dict[str, Any]
) -> None:
    shuffled = random.Random(1).sample(known, len(known))
    alone = [translator.translate([source])[0] for source in shuffled]
    assert load(workspace, **options).translate(shuffled) == alone
    assert len(set(alone)) > len(known) / 2


@settings(max_examples=10)
@given(st.lists(st.text(max_size=12), max_size=4))
def test_any_lines_give_as_many_lines_without_line_ends(
    translator: Translator, lines: list[str]
) -> None:
    translations = translator.translate(lines)
    assert len(translations) == len(lines)
    assert [text for text in translations if "\n" in text] == []


@pytest.mark.parametrize("lines", ["Ein Hund.", None, ["Ein Hund.", float("nan")]], ids=str)
def test_what_is_no_list_of_lines_is_refused(translator: Translator, lines: Any) -> None:  # noqa: ANN401
    with pytest.raises(UsageError):
        translator.translate(lines)


def test_progress_counts_every_line_once_however_it_is_split(translator: Translator) -> None:
    lines = ["", " ".join(SENTENCES * 4), "Ein Hund.", "\u200b", "Ein Mann."]
    counts: list[int] = []
    translator.translate(lines, on_progress=counts.append)
    assert sum(counts) == len(lines)


# Lines that are longer than the model takes


def test_too_long_a_line_is_translated_sentence_by_sentence(
    translator: Translator,
) -> None:
    [[long], [short]] = translator.translate_n_best([" ".join(SENTENCES), "Ein Hund."])
    assert long.text == " ".join(translator.translate(SENTENCES))
    assert short.text == translator.translate(["Ein Hund."])[0]
    assert not long.is_split
    assert warnings_of([long, short]) == []


def test_a_sentence_that_is_split_is_told(translator: Translator) -> None:
    [[short], [long]] = translator.translate_n_best(["Ein Hund.", "Ein Hund. " + "Ein Mann " * 30])
    assert (short.is_split, long.is_split) == (False, True)
    (warning,) = warnings_of([short, replace(long, is_cut=False)])
    assert "line 2" in warning


def test_as_many_sentences_as_in_training_are_translated_together(workspace: Workspace) -> None:
    translator = load(workspace)
    dog, man, woman = ("Ein Hund.", "Ein Mann.", "Eine Frau.")
    line = f"{dog} {man} {woman}"
    one_by_one = " ".join(translator.translate([dog, man, woman]))
    assert translator.engine.lengths.sentences == 1
    assert translator.translate([line]) == [one_by_one]
    translator.engine.lengths = TrainingLengths(sentences=2)
    two_and_one = " ".join(translator.translate([f"{dog} {man}", woman]))
    assert two_and_one != one_by_one
    assert translator.translate([line]) == [two_and_one]
    translator.engine.lengths = TrainingLengths(sentences=2, src_tokens=1)
    assert translator.translate([line]) == [one_by_one]


def test_parts_of_a_long_line_are_joined_with_all_that_is_known_of_them(beams: Translator) -> None:
    (long,) = beams.translate_n_best([" ".join(SENTENCES)], n_best=2, with_alignment=True)
    parts = beams.translate_n_best(SENTENCES, n_best=2, with_alignment=True)
    best, parts_of_best = long[0], [each[0] for each in parts]
    assert best.text == " ".join(part.text for part in parts_of_best)
    assert best.score == pytest.approx(sum(part.score for part in parts_of_best), abs=1e-3)
    assert long[1].text == " ".join(each[1].text for each in parts)
    ends = len(best.tokens) + len(SENTENCES)  # every part has its own `</s>`
    assert best.mean_log_prob == pytest.approx(best.log_prob / ends)


# How sure it is


@pytest.mark.parametrize("n_best", [1, 3])
def test_words_are_those_of_the_text_with_the_probabilities_of_their_tokens(
    beams: Translator, n_best: int
) -> None:
    found = beams.translate_n_best(["", *SENTENCES[:3]], n_best=n_best, with_words=True)
    assert [each.words for each in found[0]] == [()] * n_best
    for of_line in found[1:]:
        for each in of_line:
            assert " ".join(word for word, _ in each.words) == each.text
            whole = each.log_prob  # with `</s>`, if it ended with one
            assert each.mean_log_prob == pytest.approx(whole / (len(each.tokens) + 1))
            assert whole - 1e-4 < sum(log_prob for _, log_prob in each.words) < 0
    best = found[1][0]
    (scored,) = beams.score(SENTENCES[:1], [best.text])
    assert best.log_prob == pytest.approx(scored, abs=1e-4)


# Several translations of a line


def test_several_are_ranked_by_score_and_differ(beams: Translator, known: list[str]) -> None:
    several = beams.translate_n_best(known, n_best=4)
    assert [each[0].text for each in several] == beams.translate(known)
    scores = [[translation.score for translation in each] for each in several]
    assert scores == [sorted(each, reverse=True) for each in scores]
    assert {len({translation.tokens for translation in each}) for each in several} == {4}


# What looks wrong


@pytest.mark.parametrize(
    ("line", "language"),
    [
        ("Un chien court dans la neige avec une balle.", "fr"),
        ("A dog runs through the snow with a ball.", "en"),
        ("The weather is nice today and I am happy.", "en"),
        ("Ein Hund rennt durch den Schnee.", None),
        ("Café, Señor und Łódź in einem Satz.", None),
        ("A dog.", None),
        ("12 + 30 = 42, 12 + 30 = 42", None),
    ],
)
def test_a_line_in_another_language_is_told_where_it_is_long_enough(
    translator: Translator, line: str, language: str | None
) -> None:
    [[german], [found]] = translator.translate_n_best(["Eine Frau lacht.", line], is_scored=False)
    assert (german.language, found.language) == (None, language)
    told = [each for each in warnings_of([german, found]) if "look like" in each]
    assert [f"1 of 2 lines look like {language}" in each for each in told] == [True] * bool(
        language
    )


def test_changed_numbers_are_counted_once_with_the_first_line(translator: Translator) -> None:
    found = translator.translate_n_best(["Ein Hund.", "98765 Hunde.", "13579 Katzen."])
    assert [best.changed_number for (best,) in found] == [False, True, True]
    (warning,) = warnings_of(best for (best,) in found)
    assert warning.startswith("2 of 3 ")
    assert "line 2" in warning


def test_translations_that_run_into_their_limit_are_counted_once(
    workspace: Workspace, known: list[str]
) -> None:
    usual = load(workspace).translate_n_best(known)
    assert warnings_of(best for (best,) in usual) == []
    short = load(workspace, max_len_factor=0.0, max_len_extra=1).translate_n_best(known)
    (warning,) = warnings_of(best for (best,) in short)
    assert warning.startswith(f"{len(known)} of {len(known)} ")
    assert "max_len_factor" in warning


@pytest.mark.parametrize(
    ("num_words", "is_told"), [(20, True), (19, False)], ids=["enough words", "too few"]
)
def test_text_that_is_unlike_training_is_told(
    workspace: Workspace, num_words: int, *, is_told: bool
) -> None:
    run = open_run(workspace.run)
    found = unlike_training(["Bundesverfassungsgericht"] * num_words, run)
    assert ("tokens per word" in (found or "")) == is_told
    assert unlike_training(SENTENCES * 10, run) is None


# Capitals


@pytest.mark.parametrize("reading", ["lower", "title"])
def test_a_line_in_capitals_is_read_in_the_case_that_the_config_names(
    workspace: Workspace, reading: str
) -> None:
    other, as_is = (load(workspace, capitals=each) for each in (reading, "as_is"))
    shouted = "EIN HUND RENNT DURCH DEN SCHNEE."
    tidy = shouted.lower() if reading == "lower" else shouted.title()
    assert other.translate([shouted, "NATO"]) == other.translate([tidy, "NATO"])
    assert other.translate([shouted]) != as_is.translate([shouted])


# What is copied


@pytest.mark.parametrize(
    "line",
    ["?!", "12 + 30 = 42", "https://www.example.org/a?b=1", "info@example.org", "😀"],
)
def test_lines_without_words_are_copied(translator: Translator, line: str) -> None:
    dog, *copied = translator.translate(["Ein Hund, 3 km.", line, ""])
    assert (dog != "Ein Hund, 3 km.", copied) == (True, [line, ""])
    (candidates,) = translator.translate_n_best([line], with_alignment=True)
    assert [each.text for each in candidates] == [line]
    assert candidates[0].alignment == ()


@pytest.mark.parametrize(
    ("line", "translated", "copied"),
    [
        ("Ein Hund schläft. 😀", "Ein Hund schläft.", "{} 😀"),
        ("→ Ein Hund schläft.", "Ein Hund schläft.", "→ {}"),
        ("EIN HUND, HTTPS://A.DE/ABC", "EIN HUND,", "{} HTTPS://A.DE/ABC"),
        ("EIN HUND %S", "EIN HUND", "{} %S"),
    ],
)
def test_addresses_and_symbols_that_a_model_cannot_know_are_copied(
    translator: Translator, line: str, translated: str, copied: str
) -> None:
    (expected,) = translator.translate([translated])
    assert translator.translate([line]) == [copied.format(expected)]
    [[best]] = translator.translate_n_best([line], with_alignment=True)
    assert best.text == copied.format(expected)
    assert len(best.alignment) == len(best.tokens)


@pytest.mark.parametrize(
    "copied", ["🐶", "info@example.org", "{name}", "{{x}}", "%s", "%1$s", "${x}", "</x>"]
)
def test_what_is_copied_within_a_line_stands_where_its_neighbours_went(
    translator: Translator, known: list[str], copied: str
) -> None:
    for source in known[:6]:
        words = source.split()
        for place in range(1, len(words)):
            line = " ".join([*words[:place], copied, *words[place:]])
            (translation,) = translator.translate([line])
            (expected,) = translator.translate([source])
            assert translation.split().count(copied) == 1
            assert translation.replace(f" {copied}", "").replace(f"{copied} ", "") == expected
    ready = Translator.load(READY_MODEL, device="cpu", threads=1)
    (found,) = ready.translate([f"Ein Mann in einem roten Hemd {copied} und eine Frau lachen."])
    assert found.split().index(copied) in (5, 6)  # after "A man in a red shirt"


def test_a_text_of_several_lines_is_refused(translator: Translator) -> None:
    with pytest.raises(UsageError, match=r"lines\[1\]"):
        translator.translate(["Ein Hund.", "Ein Hund.\nEine Katze."])


def test_threads_end_with_the_block(workspace: Workspace, known: list[str]) -> None:
    with Translator.load(workspace.run, device="cpu", threads=2, beam_size=2) as translator:
        assert len(translator.translate(known * 40)) == 40 * len(known)
        begun = {thread.name for thread in threading.enumerate()}
        assert any(name.startswith("ThreadPoolExecutor") for name in begun)
    before = len(begun)
    assert threading.active_count() < before


PIECES = ["Ein", "Hund", "läuft", "«", "»", "(", ")", "„", "“", '"', "[", "]", "<b>", "</b>"]
PIECES += ["{x}", "😀", "5 €", "http://a.de", " ", ", ", ". ", "!", "- "]


@settings(max_examples=60, deadline=None)
@given(pieces=st.lists(st.sampled_from(PIECES), max_size=12), with_alignment=st.booleans())
def test_whatever_stays_comes_back(
    translator: Translator, pieces: list[str], with_alignment: bool
) -> None:
    line = "".join(pieces)
    ((found,),) = translator.translate_n_best([line], with_alignment=with_alignment)
    assert found.text == translator.translate([line])[0]
    for sign in ("«", "»", "[", "]", "<b>", "</b>", "{x}", "😀", "€", "http://a.de"):
        assert found.text.count(sign) == line.count(sign)
