"""What CTranslate2 finds with an exported model is what the run's own search finds."""

import shutil
from collections.abc import Sequence
from functools import cache
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
from mt_cli.decoding.search import Sampling
from mt_cli.errors import DataError, ResourceError, UsageError
from mt_cli.export.export import export_run
from mt_cli.model.model import TranslationModel
from mt_cli.runs.opening import open_run
from mt_cli.runs.run import Run
from mt_cli.text import BOS_ID, EOS_ID
from mt_cli.text.tokenizers import Tokenizers
from mt_cli.translation import ctranslate2_engine

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
def lines(workspace: Workspace) -> list[str]:
    """Those that the model knows by heart, new ones, and odd ones."""
    return [*workspace.corpus("test.de").read_text(encoding="utf-8").splitlines(), *ODD_LINES]


@pytest.fixture(scope="module")
def known(workspace: Workspace) -> list[str]:
    """Lines that the model knows by heart, of which no search can doubt."""
    return workspace.corpus("train.de").read_text(encoding="utf-8").splitlines()[1:]


def load(folder: Path, **options: Any) -> Translator:  # noqa: ANN401
    return Translator.load(folder, device="cpu", threads=1, **options)


@pytest.mark.parametrize(
    "options",
    [{}, {"batch_size": 3}, {"no_repeat_ngram": 1}, {"min_len": 12}, {"min_len": 500}],
    ids=str,
)
def test_greedy_search_finds_what_the_run_finds(
    workspace: Workspace, exported: Path, lines: list[str], options: dict[str, Any]
) -> None:
    expected = load(workspace.run, **options).translate(lines)
    assert load(exported, **options).translate(lines) == expected


@pytest.mark.parametrize("length_penalty", [0.0, 1.0])
def test_beams_find_what_the_model_knows_by_heart(
    workspace: Workspace, exported: Path, known: list[str], length_penalty: float
) -> None:
    search = {"beam_size": 4, "length_penalty": length_penalty}
    expected = load(workspace.run, **search).translate(known)
    assert load(exported, **search).translate(known) == expected


@pytest.mark.parametrize("beam_size", [1, 3])
@pytest.mark.parametrize("length_penalty", [0.0, 1.5])
def test_score_is_the_log_probability_over_our_length_penalty(
    workspace: Workspace, exported: Path, known: list[str], beam_size: int, length_penalty: float
) -> None:
    run = open_run(workspace.run)
    model = run.load_model()
    translator = load(exported, beam_size=beam_size, length_penalty=length_penalty)
    found = translator.translate_n_best(known)
    for (src,), (best,) in zip(sources_of(run, known), found, strict=True):
        tokens = [*ids_of(run, best.tokens), EOS_ID][: translator.engine.limit(len(src))]
        log_prob = log_prob_of(model, src, tokens)
        assert best.log_prob == pytest.approx(log_prob, abs=1e-4)
        divisor = ((5 + len(tokens)) / 6) ** length_penalty
        assert best.score == pytest.approx(log_prob / divisor, abs=1e-4)


def sources_of(run: Run, lines: list[str]) -> list[tuple[list[int]]]:
    return [(ids,) for ids in run.tokenizers.encode(lines, "src")]


def ids_of(run: Run, tokens: Sequence[str]) -> list[int]:
    return [run.tokenizers.tgt.entries.index(token) for token in tokens]


@torch.no_grad()
def log_prob_of(model: TranslationModel, src: list[int], tokens: list[int]) -> float:
    """By PyTorch: of these very tokens, whatever others spell the same text."""
    logits = model(torch.tensor([[*src, EOS_ID]]), torch.tensor([[BOS_ID, *tokens[:-1]]]))
    log_probs = logits[0].double().log_softmax(-1)
    return float(log_probs[range(len(tokens)), tokens].sum())


@pytest.mark.parametrize("engine", ["run", "exported"])
@pytest.mark.parametrize("search", [{}, {"beam_size": 3}, {"min_len": 12}], ids=str)
def test_score_gives_what_the_search_gave_where_the_text_has_the_same_tokens(
    workspace: Workspace, exported: Path, lines: list[str], engine: str, search: dict[str, Any]
) -> None:
    run = open_run(workspace.run)
    translator = load(workspace.run if engine == "run" else exported, **search)
    whole = [
        (line, src)
        for line, src in zip(lines, run.tokenizers.encode(lines, "src"), strict=True)
        if line not in ODD_LINES and len(src) <= run.config.model.longest_sentence
    ]
    scores = []
    expected = []
    for line, src in whole:
        [[best]] = translator.translate_n_best([line])
        (tokens,) = run.tokenizers.encode([best.text], "tgt")
        is_at_limit = len(best.tokens) == translator.engine.limit(len(src))
        if tokens == ids_of(run, best.tokens) and not is_at_limit:
            scores.append(best.log_prob)
            expected += load(workspace.run).score([line], [best.text])
    assert len(scores) > 5
    assert scores == pytest.approx(expected, abs=1e-4)


def test_n_best_are_so_many_and_ranked(exported: Path, lines: list[str]) -> None:
    translator = load(exported, beam_size=5, length_penalty=2.0)
    found = translator.translate_n_best(lines, n_best=4)
    assert {len(each) for each in found} == {4}
    scores = [[one.score for one in each] for each in found]
    assert scores == [sorted(each, reverse=True) for each in scores]
    assert [each[0].text for each in found] == translator.translate(lines)


def test_alignment_is_that_of_the_run(
    workspace: Workspace, exported: Path, lines: list[str]
) -> None:
    ours = load(workspace.run).translate_n_best(lines, with_alignment=True)
    theirs = load(exported).translate_n_best(lines, with_alignment=True)
    assert [each.alignment for (each,) in theirs] == [each.alignment for (each,) in ours]


def test_samples_depend_on_their_seed(exported: Path, known: list[str]) -> None:
    hot = Sampling(temperature=3.0)
    first = load(exported, sampling=hot, seed=1).translate(known)
    assert load(exported, sampling=hot, seed=1).translate(known) == first
    assert load(exported, sampling=hot, seed=2).translate(known) != first


def test_nobody_can_look_into_it(exported: Path) -> None:
    translator = load(exported)
    with pytest.raises(UsageError):
        translator.attention("Ein Hund.")
    with pytest.raises(UsageError):
        translator.teacher_force("Ein Hund.")


# Damage


@pytest.mark.parametrize(
    "name",
    ["model.bin", "config.json", "config.toml", "shared_vocabulary.json", "tokenizer/joint.model"],
)
def test_altered_file_is_named(exported: Path, tmp_path: Path, name: str) -> None:
    own = shutil.copytree(exported, tmp_path / "own")
    with own.joinpath(name).open("ab") as file:
        file.write(b" ")
    with pytest.raises(DataError, match=name):
        load(own)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": 2}'])
def test_damaged_manifest_is_named(exported: Path, tmp_path: Path, content: str) -> None:
    own = shutil.copytree(exported, tmp_path / "own")
    own.joinpath("manifest.json").write_text(content)
    with pytest.raises(DataError, match=r"manifest\.json"):
        load(own)


# Every kind of tokenizer, with random models

PAIRS = [
    ("Ein Hund bellt.", "A dog barks."),
    ("Ein Hund schläft im Garten.", "A dog sleeps in the garden."),
    ("Zwei Männer (und ein Hund) gehen.", "Two men (and a dog) walk."),
] * 4
KINDS = {
    "joint words": TokenizerConfig(kind="spacy", min_freq=1, joint=True),
    "words": TokenizerConfig(kind="spacy", min_freq=1, joint=False),
    "joint bpe": TokenizerConfig(kind="bpe", vocab_size=300, joint=True),
    "bpe": TokenizerConfig(kind="bpe", vocab_size=300, tgt_vocab_size=310, joint=False),
    "joint unigram": TokenizerConfig(kind="unigram", vocab_size=310, joint=True),
    "unigram": TokenizerConfig(kind="unigram", vocab_size=300, tgt_vocab_size=295, joint=False),
}


@cache
def tokenizers_of(kind: str) -> Tokenizers:
    return learn_tokenizers(PAIRS, KINDS[kind], src_lang="de", tgt_lang="en", lowercase=False)


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
    with making(tmp_path / "run", config, tokenizers=tokenizers_of(kind)) as run:
        add_checkpoint(run, 1, pointers=("best",))
    export_run(run.folder, tmp_path / "exported")
    theirs = load(tmp_path / "exported")
    lines = ["Ein Hund bellt.", *ODD_LINES]
    assert theirs.translate(lines) == load(run.folder).translate(lines)
    assert theirs.translate([]) == []


def test_without_a_library_for_the_gpu_the_cpu_translates(
    exported: Path,
    known: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    expected = load(exported).translate(known)
    monkeypatch.setattr("ctranslate2.get_cuda_device_count", lambda: 1)
    monkeypatch.setattr(ctranslate2_engine, "CUBLAS", "libnone.so.12")
    assert Translator.load(exported, device="auto", threads=1).translate(known) == expected
    assert "pip install nvidia-cublas-cu12" in caplog.text
    with pytest.raises(ResourceError, match="nvidia-cublas-cu12"):
        Translator.load(exported, device="cuda")
