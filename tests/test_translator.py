"""`Translator`: lines in, lines out."""

import logging
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from workspace import Workspace

import mt_cli
from mt_cli.data.symbols import UNK_ID
from mt_cli.errors import UsageError
from mt_cli.model.backend import DecoderState
from mt_cli.model.translation_model import TranslationModel
from mt_cli.translator import Translator


@pytest.fixture(scope="module")
def translator(workspace: Workspace) -> Translator:
    return Translator.load(workspace.run, device="cpu", precision="fp32", threads=1)


@pytest.fixture(scope="module")
def sources(workspace: Workspace) -> list[str]:
    return workspace.corpus("test.de").read_text().splitlines()


def test_package_offers_the_translator() -> None:
    assert mt_cli.Translator is Translator


def test_package_offers_nothing_that_it_lacks() -> None:
    with pytest.raises(AttributeError, match="module 'mt_cli' has no attribute 'Translater'"):
        mt_cli.Translater  # noqa: B018


def test_importing_the_package_does_not_import_torch() -> None:
    code = "import mt_cli, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


def test_run_may_be_named_by_a_string(workspace: Workspace, translator: Translator) -> None:
    by_name = Translator.load(str(workspace.run), device="cpu", precision="fp32", threads=1)
    assert by_name.translate(["Ein Hund."]) == translator.translate(["Ein Hund."])


def test_no_lines_give_no_lines(translator: Translator) -> None:
    assert translator.translate([]) == []


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


def test_line_feed_within_a_line_is_white_space(translator: Translator) -> None:
    assert translator.translate(["Ein\nHund."]) == translator.translate(["Ein Hund."])


def test_too_long_a_line_is_cut_to_what_the_model_takes(
    translator: Translator, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="mt_cli"):
        (long, short) = translator.translate(["Ein Hund. " * 100, "Ein Hund."])
    (warning,) = caplog.records
    assert "tokens was cut to the model's 47: Ein Hund. Ein Hund." in warning.getMessage()
    assert short == translator.translate(["Ein Hund."])[0]
    assert long != ""


def test_both_backends_translate_alike(
    workspace: Workspace, translator: Translator, sources: list[str]
) -> None:
    oracle = Translator.load(workspace.run, backend="torch", device="cpu", precision="fp32", threads=1)
    assert oracle.translate(sources) == translator.translate(sources)


def test_unknown_checkpoint_is_refused(workspace: Workspace) -> None:
    with pytest.raises(UsageError, match=r"no checkpoint 'none'; it has best, last, step-"):
        Translator.load(workspace.run, checkpoint="none")


def test_run_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no run folder"):
        Translator.load(tmp_path)


@settings(max_examples=20)
@given(st.lists(st.text(max_size=12), max_size=4))
def test_any_lines_give_as_many_lines_without_line_ends(translator: Translator, lines: list[str]) -> None:
    translations = translator.translate(lines)
    assert len(translations) == len(lines)
    assert [text for text in translations if "\n" in text] == []


def test_unknown_words_are_never_said(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
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
        assert len(scores) == 4


def test_beam_finds_no_less_likely_translations_than_greedy_search(
    workspace: Workspace, sources: list[str]
) -> None:
    by_size = [
        Translator.load(workspace.run, beam_size=size, device="cpu", precision="fp32", threads=1)
        for size in (1, 8)
    ]
    greedy, wide = (
        sum(each[0].score for each in translator.translate_n_best(sources)) for translator in by_size
    )
    assert wide >= greedy


def test_scored_greedy_search_finds_the_same(translator: Translator, sources: list[str]) -> None:
    scored = translator.translate_n_best(sources)
    assert [each[0].text for each in scored] == translator.translate(sources)


def test_empty_lines_have_as_many_empty_translations(beams: Translator) -> None:
    empty, _ = beams.translate_n_best(["", "Ein Hund."], n_best=2)
    assert [translation.text for translation in empty] == ["", ""]


def test_more_translations_than_beams_are_refused(beams: Translator) -> None:
    with pytest.raises(UsageError, match=r"^5 translations a line need as many beams; give --beam-size 5$"):
        beams.translate_n_best(["Ein Hund."], n_best=5)


def test_search_has_a_name_for_folders(translator: Translator, beams: Translator) -> None:
    assert (translator.search_name, beams.search_name) == ("greedy", "beam4-alpha0.6")
