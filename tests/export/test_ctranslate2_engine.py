"""What CTranslate2 finds with an exported model is what the run's own search finds."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from learned import learn_tokenizers
from runs_made import add_checkpoint, making
from tiny import TINY
from workspace import Workspace

from mt_cli import Translator
from mt_cli.config.schema import Config, DataConfig, DecodingConfig, TokenizerConfig
from mt_cli.errors import DataError
from mt_cli.export.export import export_run
from mt_cli.runs.opening import open_run
from mt_cli.text import BOS_ID, EOS_ID

ODD_LINES = [
    "",
    "zwei\u200b  Hunde\tschlafen",
    "Der Ostfriese (aus Leer) bellt, ¿ja?",
    "<s> <unk> </s> <pad> ￭ ▁",
    "Ein\u2028Hund\x0bund\x85noch\rein\x0cHund",
    "犬が走る 🐶 \0 \x1b[31m",
    "Ein Mann schläft. " * 20 + "ein Hund, " * 30,
]


@pytest.fixture(scope="module")
def known(workspace: Workspace) -> list[str]:
    """Lines that the model knows by heart, of which no search can doubt."""
    return workspace.corpus("train.de").read_text(encoding="utf-8").splitlines()[1:]


@pytest.fixture(scope="module")
def lines(known: list[str]) -> list[str]:
    """Those that the model knows by heart, and odd ones."""
    return [*known, *ODD_LINES]


def load(folder: Path, **options: Any) -> Translator:  # noqa: ANN401
    return Translator.load(folder, device="cpu", threads=1, **options)


@pytest.mark.parametrize("options", [{}, {"no_repeat_ngram": 1}], ids=str)
def test_greedy_search_finds_what_the_run_finds(
    workspace: Workspace, exported: Path, lines: list[str], options: dict[str, Any]
) -> None:
    expected = load(workspace.run, **options).translate(lines)
    assert load(exported, **options).translate(lines) == expected


@pytest.mark.parametrize("options", [{}, {"beam_size": 3}, {"max_len_factor": 0.0}], ids=str)
def test_what_goes_on_from_a_prefix_is_what_the_run_finds(
    workspace: Workspace, exported: Path, known: list[str], options: dict[str, Any]
) -> None:
    ours, theirs = (load(folder, **options).engine for folder in (workspace.run, exported))
    sources = open_run(workspace.run).tokenizers.encode(known, "src")
    whole = [best.ids for (best,) in ours.search(sources)]
    prefixes = [ids[: i % 4] if i % 3 else ids[2:5] for i, ids in enumerate(whole)]
    for is_scored in (False, True):
        expected, found = (
            engine.search(sources, prefixes=prefixes, is_scored=is_scored)
            for engine in (ours, theirs)
        )
        assert [best.ids for (best,) in found] == [best.ids for (best,) in expected]
        log_probs = [best.log_prob for (best,) in expected]
        assert [best.log_prob for (best,) in found] == pytest.approx(log_probs, abs=1e-3)


@pytest.mark.parametrize("length_penalty", [0.0, 1.0])
def test_beams_find_what_the_model_knows_by_heart(
    workspace: Workspace, exported: Path, known: list[str], length_penalty: float
) -> None:
    ours, theirs = (
        load(folder, beam_size=4, length_penalty=length_penalty).translate(known)
        for folder in (workspace.run, exported)
    )
    assert theirs == ours


@pytest.mark.parametrize("beam_size", [1, 3])
@pytest.mark.parametrize("length_penalty", [0.0, 1.5])
def test_score_is_the_log_probability_over_our_length_penalty(
    workspace: Workspace, exported: Path, known: list[str], beam_size: int, length_penalty: float
) -> None:
    run = open_run(workspace.run)
    model = run.load_model()
    translator = load(exported, beam_size=beam_size, length_penalty=length_penalty)
    found = translator.translate_n_best(known)
    sources = run.tokenizers.encode(known, "src")
    for src, (best,) in zip(sources, found, strict=True):
        ids = [run.tokenizers.tgt.entries.index(token) for token in best.tokens]
        tokens = [*ids, EOS_ID][: translator.engine.limit(len(src))]
        with torch.no_grad():
            logits = model(torch.tensor([[*src, EOS_ID]]), torch.tensor([[BOS_ID, *tokens[:-1]]]))
        log_probs = logits[0].double().log_softmax(-1)
        log_prob = float(log_probs[range(len(tokens)), tokens].sum())
        assert best.log_prob == pytest.approx(log_prob, abs=1e-4)
        divisor = ((5 + len(tokens)) / 6) ** length_penalty
        assert best.score == pytest.approx(log_prob / divisor, abs=1e-4)


def test_n_best_are_so_many_and_ranked(exported: Path, lines: list[str]) -> None:
    translator = load(exported, beam_size=5, length_penalty=2.0)
    found = translator.translate_n_best(lines, n_best=4)
    assert {len(each) for each in found} == {4}
    scores = [[one.score for one in each] for each in found]
    assert scores == [sorted(each, reverse=True) for each in scores]
    assert [each[0].text for each in found] == translator.translate(lines)


def test_alignment_is_that_of_the_run(
    workspace: Workspace, exported: Path, known: list[str]
) -> None:
    ours = load(workspace.run).translate_n_best(known, with_alignment=True)
    theirs = load(exported).translate_n_best(known, with_alignment=True)
    assert [each.alignment for (each,) in theirs] == [each.alignment for (each,) in ours]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("model.bin", "altered"),
        ("config.toml", ""),
        ("tokenizer/joint.model", "altered"),
        ("manifest.json", ""),
        ("manifest.json", '{"format": 2}'),
    ],
)
def test_damaged_file_is_named(exported: Path, tmp_path: Path, name: str, content: str) -> None:
    own = shutil.copytree(exported, tmp_path / "own")
    own.joinpath(name).write_text(content)
    with pytest.raises(DataError, match=name):
        load(own)


# Every kind of tokenizer, with random models

PAIRS = [
    ("Ein Hund bellt.", "A dog barks."),
    ("Ein Hund schläft im Garten.", "A dog sleeps in the garden."),
    ("Zwei Männer (und ein Hund) gehen.", "Two men (and a dog) walk."),
] * 4
KINDS = {
    "words": TokenizerConfig(kind="spacy", min_freq=1, joint=False),
    "joint bpe": TokenizerConfig(kind="bpe", vocab_size=300, joint=True),
    "bpe": TokenizerConfig(kind="bpe", vocab_size=300, tgt_vocab_size=310, joint=False),
    "unigram": TokenizerConfig(kind="unigram", vocab_size=300, tgt_vocab_size=295, joint=False),
}


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("max_len_extra", [1, 100], ids=["limits of their own", "one limit"])
def test_model_with_every_kind_of_tokenizer_translates_as_the_run(
    kind: str, max_len_extra: int, tmp_path: Path
) -> None:
    config = Config(
        model=TINY.model_copy(update={"max_len": 48}),
        data=DataConfig(max_len=40),
        tokenizer=KINDS[kind],
        decoding=DecodingConfig(max_len_extra=max_len_extra, batch_size=2, replace_unk=False),
    )
    tokenizers = learn_tokenizers(PAIRS, KINDS[kind], src_lang="de", tgt_lang="en", lowercase=False)
    with making(tmp_path / "run", config, tokenizers=tokenizers) as run:
        add_checkpoint(run, 1, pointers=("best",))
    export_run(run.folder, tmp_path / "exported")
    theirs = load(tmp_path / "exported")
    lines = ["Ein Hund bellt.", *ODD_LINES]
    assert theirs.translate(lines) == load(run.folder).translate(lines)
    assert theirs.translate([]) == []
