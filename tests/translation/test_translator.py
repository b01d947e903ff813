"""`Translator`: lines in, lines out."""

import logging
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from workspace import Workspace

import mt_cli
from mt_cli.data.prepared import TrainingLengths
from mt_cli.errors import UsageError
from mt_cli.model.transformer import DecoderState
from mt_cli.model.translation_model import TranslationModel
from mt_cli.text import UNK_ID
from mt_cli.translation.lines import Translation, joined
from mt_cli.translation.translator import Translator

MODEL = Path(__file__).resolve().parents[2] / "data" / "models" / "multi30k-tiny"


@pytest.fixture(scope="module")
def translator(workspace: Workspace) -> Translator:
    return Translator.load(workspace.run, device="cpu", precision="fp32", threads=1)


@pytest.fixture(scope="module")
def sources(workspace: Workspace) -> list[str]:
    return workspace.corpus("test.de").read_text().splitlines()


@pytest.mark.parametrize("name", [name for name in mt_cli.__all__ if name != "__version__"])
def test_package_offers_what_it_lists(name: str) -> None:
    assert getattr(mt_cli, name).__name__ == name
    assert name in dir(mt_cli)


def test_importing_the_package_does_not_import_torch() -> None:
    code = "import mt_cli, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


def test_translating_loads_nothing_that_takes_a_second_and_is_not_needed() -> None:
    code = f"""import sys, mt_cli
mt_cli.Translator.load({str(MODEL)!r}).translate(["Ein Hund."])
print(*{{"torch._dynamo", "sympy", "matplotlib", "sacrebleu", "spacy"}} & {{*sys.modules}})"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=True)
    assert done.stdout.decode().split() == []


def test_lines_that_normalise_to_nothing_stay_empty(translator: Translator) -> None:
    dog = translator.translate(["Ein Hund."])
    assert dog != [""]
    assert translator.translate(["", "Ein Hund.", " \t", "\u200b\ufeff"]) == ["", *dog, "", ""]


def test_each_line_is_translated_as_if_alone(translator: Translator, sources: list[str]) -> None:
    together = translator.translate(sources)
    assert together == [translator.translate([source])[0] for source in sources]
    assert len(set(together)) > len(sources) / 2


@pytest.mark.parametrize("batch_size", [1, 3, 1000])
def test_order_and_batch_size_change_nothing(
    workspace: Workspace, translator: Translator, sources: list[str], batch_size: int
) -> None:
    order = random.Random(1).sample(range(len(sources)), len(sources))
    other = Translator.load(
        workspace.run, batch_size=batch_size, device="cpu", precision="fp32", threads=1
    ).translate([sources[i] for i in order])
    usual = translator.translate(sources)
    assert other == [usual[i] for i in order]


def test_text_is_normalised_first(translator: Translator) -> None:
    composed = translator.translate(["Zwei Hunde schlafen."])
    assert translator.translate([" Zwei\u00a0\u00a0Hunde\tschla\u200bfen.\r"]) == composed


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ("Ein Hund.", "lines: expected a list of lines, found a str; put the one line into a list"),
        (b"Ein Hund.", "lines: expected a list of lines, found bytes"),
        (None, "lines: expected a list of lines, found NoneType"),
        (["Ein Hund.", float("nan")], "lines[1]: expected a str, found nan"),
        ([["Ein Hund."]], "lines[0]: expected a str, found ['Ein Hund.']"),
    ],
    ids=["one line", "bytes", "nothing", "a number", "a list of lists"],
)
def test_what_is_no_list_of_lines_is_refused(
    translator: Translator, lines: Any, complaint: str
) -> None:  # noqa: ANN401
    for translate in (translator.translate, translator.translate_n_best):
        with pytest.raises(UsageError, match=f"^{re.escape(complaint)}$"):
            translate(lines)


SENTENCES = [
    "Ein Mann schläft auf einer Bank.",
    "Zwei Hunde spielen im Schnee!",
    "Eine Frau lacht.",
] * 4


def test_too_long_a_line_is_translated_sentence_by_sentence(
    translator: Translator, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="mt_cli"):
        long, short = translator.translate([" ".join(SENTENCES), "Ein Hund."])
    assert long == " ".join(translator.translate(SENTENCES))
    assert short == translator.translate(["Ein Hund."])[0]
    assert [record.getMessage() for record in caplog.records] == []


def test_a_sentence_that_is_cut_is_told_with_its_tokens_and_the_models(
    translator: Translator, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="mt_cli"):
        translator.translate(["Ein Hund. " + "Ein Mann " * 30])
    (warning,) = [record.getMessage() for record in caplog.records]
    (num_tokens,) = map(int, re.findall(r"a line of (\d+) tokens .* the model's 47,", warning))
    assert num_tokens > 60


def test_as_many_sentences_as_in_training_are_translated_together(workspace: Workspace) -> None:
    translator = Translator.load(workspace.run, device="cpu", threads=1)
    assert translator.engine.lengths.sentences == 1
    dog, man, woman = ("Ein Hund.", "Ein Mann.", "Eine Frau.")
    together = {}
    for number, parts in {1: [dog, man, woman], 2: [f"{dog} {man}", woman]}.items():
        translator.engine.lengths = TrainingLengths(sentences=number)
        (together[number],) = translator.translate([f"{dog} {man} {woman}"])
        assert together[number] == " ".join(translator.translate(parts))
    assert together[1] != together[2]
    translator.engine.lengths = TrainingLengths(sentences=2, src_tokens=1)
    assert translator.translate([f"{dog} {man} {woman}"]) == [together[1]]


def test_translations_that_run_into_their_limit_are_counted_once(workspace: Workspace) -> None:
    known = workspace.corpus("train.de").read_text().splitlines()[1:]
    usual = Translator.load(workspace.run, device="cpu", threads=1)
    usual.translate(known)
    assert usual.limit_warning() is None
    short = Translator.load(
        workspace.run,
        device="cpu",
        threads=1,
        max_len_factor=0.0,
        max_len_extra=1,
    )
    short.translate(known)
    told = short.limit_warning() or ""
    assert told.startswith(f"{len(known)} of {len(known)} ")
    assert "max_len_factor" in told
    assert short.limit_warning() is None


def test_parts_of_a_long_line_are_joined_with_all_that_is_known_of_them(beams: Translator) -> None:
    (long,) = beams.translate_n_best([" ".join(SENTENCES)], n_best=2, with_alignment=True)
    parts = beams.translate_n_best(SENTENCES, n_best=2, with_alignment=True)
    for rank, whole in enumerate(long):
        of_rank = [each[rank] for each in parts]
        assert whole.text == " ".join(part.text for part in of_rank)
        assert whole.tokens == sum((part.tokens for part in of_rank), ())
        assert whole.src_tokens == sum((part.src_tokens for part in of_rank), ())
        assert whole.score == pytest.approx(sum(part.score for part in of_rank), abs=1e-3)
        words = [
            (part.src_tokens[src], part.tokens[tgt])
            for part in of_rank
            for src, tgt in part.alignment
        ]
        assert [(whole.src_tokens[src], whole.tokens[tgt]) for src, tgt in whole.alignment] == words


def test_alignment_has_a_place_in_the_source_for_every_token(
    beams: Translator, sources: list[str]
) -> None:
    for each in beams.translate_n_best(sources, n_best=3, with_alignment=True):
        for translation in each:
            assert [tgt for _, tgt in translation.alignment] == list(range(len(translation.tokens)))
            places = {src for src, _ in translation.alignment}
            assert places <= set(range(len(translation.src_tokens)))


def test_both_backends_translate_alike(
    workspace: Workspace, translator: Translator, sources: list[str]
) -> None:
    oracle = Translator.load(
        workspace.run, backend="torch", device="cpu", precision="fp32", threads=1
    )
    assert oracle.translate(sources) == translator.translate(sources)


@settings(max_examples=20)
@given(st.lists(st.text(max_size=12), max_size=4))
def test_any_lines_give_as_many_lines_without_line_ends(
    translator: Translator, lines: list[str]
) -> None:
    translations = translator.translate(lines)
    assert len(translations) == len(lines)
    assert [text for text in translations if "\n" in text] == []


def test_unknown_words_are_never_said(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = TranslationModel.step

    def prefer_unknown(model: TranslationModel, ids: Tensor, state: DecoderState) -> Tensor:
        logits = step(model, ids, state)
        logits[..., UNK_ID] = 1e6
        return logits

    expected = translator.translate(["Ein Mann schläft."])
    monkeypatch.setattr(TranslationModel, "step", prefer_unknown)
    assert translator.translate(["Ein Mann schläft."]) == expected


@pytest.fixture(scope="module")
def beams(workspace: Workspace) -> Translator:
    return Translator.load(
        workspace.run, beam_size=4, length_penalty=0.6, device="cpu", precision="fp32", threads=1
    )


def test_best_of_several_is_the_translation(beams: Translator, sources: list[str]) -> None:
    several = beams.translate_n_best(sources, n_best=3)
    assert [each[0].text for each in several] == beams.translate(sources)


def test_several_are_ranked_by_score_and_differ(beams: Translator, sources: list[str]) -> None:
    for each in beams.translate_n_best(sources, n_best=4):
        scores = [translation.score for translation in each]
        assert scores == sorted(scores, reverse=True)
        assert len({translation.tokens for translation in each}) == 4


def test_more_translations_than_beams_are_refused(beams: Translator) -> None:
    with pytest.raises(
        UsageError, match=r"^5 translations a line need as many beams; give beam_size=5$"
    ):
        beams.translate_n_best(["Ein Hund."], n_best=5)


@pytest.mark.parametrize("is_detailed", [False, True])
def test_progress_counts_every_line_once_however_it_is_split(
    translator: Translator, is_detailed: bool
) -> None:
    lines = ["", " ".join(SENTENCES * 4), "Ein Hund.", "\u200b", "Ein Mann."]
    counts: list[int] = []
    translate = translator.translate_n_best if is_detailed else translator.translate
    translate(lines, on_progress=counts.append)
    assert sum(counts) == len(lines)


DOG = Translation("A dog.", -1.5, ("A", "dog", "."), ("Ein", "Hund", "."), ((0, 0), (1, 1), (2, 2)))
CAT = Translation("Cats!", -0.5, ("Cats", "!"), ("Die", "Katzen", "hier", "!"), ((1, 0), (3, 1)))
NOTHING = Translation("", -0.25, (), ("Ach",), ())


def test_one_part_is_the_whole() -> None:
    assert joined([DOG], space=" ") is DOG


def test_places_in_later_parts_follow_those_of_earlier_ones() -> None:
    whole = joined([DOG, CAT, DOG], space=" ")
    assert whole.text == "A dog. Cats! A dog."
    assert joined([DOG, NOTHING, CAT], space="").text == "A dog.Cats!"
    assert whole.score == -3.5
    assert whole.tokens == ("A", "dog", ".", "Cats", "!", "A", "dog", ".")
    assert whole.src_tokens == (
        "Ein",
        "Hund",
        ".",
        "Die",
        "Katzen",
        "hier",
        "!",
        "Ein",
        "Hund",
        ".",
    )
    assert whole.alignment == ((0, 0), (1, 1), (2, 2), (4, 3), (6, 4), (7, 5), (8, 6), (9, 7))


def test_part_without_tokens_still_counts_in_the_source() -> None:
    assert joined([NOTHING, DOG], space=" ").alignment == ((1, 0), (2, 1), (3, 2))


def test_a_translator_leaves_the_process_as_it_is(workspace: Workspace) -> None:
    before = torch.get_num_threads()
    torch.set_float32_matmul_precision("high")
    try:
        translator = Translator.load(workspace.run, device="cpu", threads=2)
        translator.translate(["Ein Mann schläft ."] * 40)
        assert torch.get_float32_matmul_precision() == "high"
        assert torch.get_num_threads() == before
    finally:
        torch.set_float32_matmul_precision("highest")
