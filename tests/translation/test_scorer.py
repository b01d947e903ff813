"""Scores of pairs against probabilities computed one token at a time, and the choice among
candidates against every candidate scored by `mt-cli score`.
"""

import json
import logging
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from learned import learn_tokenizers
from tiny import CPU, randomised, tiny_model
from workspace import Workspace

from mt_cli.config.schema import DecodingConfig, TokenizerConfig
from mt_cli.model.model import Ensemble, TranslationModel
from mt_cli.text import BOS_ID, EOS_ID
from mt_cli.translation.scorer import PairScore, score_pairs
from mt_cli.translation.torch_engine import TorchEngine
from mt_cli.translation.translator import Translator

PAIRS = [
    ("Ein Hund bellt.", "A dog barks."),
    ("Eine Katze schläft auf dem roten Sofa.", "A cat sleeps."),
    ("Rot", "A cat sleeps on the red sofa today, and a dog barks."),
    ("Ein Hund.", ""),
]
SOURCES, TARGETS = [src for src, _ in PAIRS], [tgt for _, tgt in PAIRS]


WORDS = TokenizerConfig(kind="spacy", vocab_size=100, min_freq=1, joint=False)
TOKENIZERS = learn_tokenizers(PAIRS, WORDS, src_lang="de", tgt_lang="en", lowercase=False)
SRC_SIZE, TGT_SIZE = TOKENIZERS.src.vocab_size, TOKENIZERS.tgt.vocab_size
MODELS = [
    randomised(tiny_model(src_vocab_size=SRC_SIZE, tgt_vocab_size=TGT_SIZE), seed=seed)
    for seed in (1, 2)
]


def engine_of(*models: TranslationModel, batch_size: int = 0) -> TorchEngine:
    config = DecodingConfig(batch_size=batch_size)
    model = models[0] if len(models) == 1 else Ensemble(models)
    return TorchEngine(model, config, runtime=CPU, forbidden_ids=())


def scores_of(
    sources: Sequence[str], targets: Sequence[str], first_line: int | None = None
) -> list[PairScore]:
    engine = engine_of(*MODELS)
    return score_pairs(engine, TOKENIZERS, sources, targets, first_line=first_line)


@torch.no_grad()
def log_probs_by_hand(models: Sequence[TranslationModel], source: str, target: str) -> list[float]:
    """Logs of the models' mean probability of each token and of `</s>`, each from its own pass."""
    (src,), (tgt,) = TOKENIZERS.src.encode([source]), TOKENIZERS.tgt.encode([target])
    src_ids = torch.tensor([[*src, EOS_ID]])
    found = []
    for length, wanted in enumerate([*tgt, EOS_ID]):
        prefix = torch.tensor([[BOS_ID, *tgt[:length]]])
        logits = torch.stack([model(src_ids, prefix)[0, -1] for model in models])
        found.append(math.log(float(logits.double().softmax(-1).mean(0)[wanted])))
    return found


@pytest.mark.parametrize("models", [MODELS[:1], MODELS], ids=["one model", "ensemble"])
@pytest.mark.parametrize("batch_size", [0, 1, 2])
def test_score_is_the_log_of_the_translations_probability_in_any_batch(
    models: list[TranslationModel], batch_size: int
) -> None:
    expected = [sum(log_probs_by_hand(models, *pair)) for pair in PAIRS]
    engine = engine_of(*models, batch_size=batch_size)
    found = [score.log_prob for score in score_pairs(engine, TOKENIZERS, SOURCES, TARGETS)]
    assert found == pytest.approx(expected, abs=1e-4)


def test_each_token_has_its_probability_after_those_before_it() -> None:
    src_ids, tgt_ids = TOKENIZERS.src.encode(SOURCES), TOKENIZERS.tgt.encode(TARGETS)
    log_probs = engine_of(*MODELS).token_log_probs(src_ids, tgt_ids)
    for pair, found in zip(PAIRS, log_probs, strict=True):
        assert found == pytest.approx(log_probs_by_hand(MODELS, *pair), abs=1e-4)


def test_empty_line_is_certainly_translated_by_an_empty_one() -> None:
    scores = scores_of(["", "  "], ["", "A dog barks."])
    assert scores == [(0.0, 1), (-math.inf, 5)]


def test_pair_that_is_too_long_is_impossible_and_named(caplog: pytest.LogCaptureFixture) -> None:
    sources, targets = ["Ein " * 16, "Ein", "Ein"], ["A", "A " * 16, "A"]
    with caplog.at_level(logging.WARNING, logger="mt_cli"):
        scores = scores_of(sources, targets, first_line=7)
    assert [log_prob > -math.inf for log_prob, _ in scores] == [False, False, True]
    assert [message.partition(":")[0] for message in caplog.messages] == ["line 7", "line 8"]


def test_case_does_not_matter_where_the_model_knows_lower_case_only() -> None:
    options = replace(TOKENIZERS.options, lowercase=True)
    tokenizers, engine = replace(TOKENIZERS, options=options), engine_of(*MODELS)
    shouted = score_pairs(engine, tokenizers, ["EIN HUND BELLT."], ["A Dog Barks."])
    assert shouted == score_pairs(engine, tokenizers, ["ein hund bellt."], ["a dog barks."])


# Reranking

BEAM = 4
ALPHA = 0.6
SEARCH = ("--beam-size", BEAM, "--length-penalty", ALPHA)
WEIGHTS = (0.3, 2.5)


@pytest.fixture(scope="module")
def reverse(workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run from English to German, which is trained for a moment."""
    folder = tmp_path_factory.mktemp("reverse")
    text = (workspace.folder / "tiny.toml").read_text(encoding="utf-8")
    text = text.replace(".de", ".?").replace(".en", ".de").replace(".?", ".en")
    text = text.replace("[data]\n", '[data]\nsrc_lang = "en"\ntgt_lang = "de"\n')
    (folder / "reverse.toml").write_text(text, encoding="utf-8")
    (folder / "corpus").symlink_to(workspace.folder / "corpus")
    for command in (["prepare"], ["train", "--max-steps", 40]):
        outcome = workspace.call(command[0], "reverse.toml", *command[1:], "--quiet", cwd=folder)
        assert outcome.code == 0, outcome.err
    return folder / "runs" / "reverse"


def best_by_brute_force(workspace: Workspace, reverse: Path, folder: Path) -> list[str]:
    """Of each line's n-best list, the candidate with the best sum of both directions."""
    sources = workspace.corpus("test.de").read_text(encoding="utf-8").splitlines()
    translator = Translator.load(workspace.run, beam_size=BEAM, length_penalty=ALPHA)
    n_best = translator.translate_n_best(sources, n_best=BEAM)
    src, tgt = folder / "src", folder / "tgt"
    src.write_text("".join(f"{line}\n" * BEAM for line in sources), encoding="utf-8")
    tgt.write_text("".join(f"{one.text}\n" for each in n_best for one in each), encoding="utf-8")
    scored = workspace.call("score", reverse, "--src", tgt, "--tgt", src, "--json").lines
    backward = iter([json.loads(line)["log_prob"] for line in scored])
    best = []
    for candidates in n_best:
        totals = []
        for candidate in candidates:
            other, length = next(backward), len(candidate.tokens) + 1
            total = -math.inf  # impossible
            if other is not None:
                total = candidate.log_prob + WEIGHTS[0] * other + WEIGHTS[1] * length
            totals.append(total)
        best.append(candidates[totals.index(max(totals))].text)
    return best


def test_choice_is_that_of_brute_force(workspace: Workspace, reverse: Path, tmp_path: Path) -> None:
    flags = ("--rerank-with", reverse, "--rerank-weights", "0.3,2.5")
    outcome = workspace.call("translate", "runs/tiny", "-i", "corpus/test.de", *SEARCH, *flags)
    assert outcome.code == 0, outcome.err
    assert outcome.lines == best_by_brute_force(workspace, reverse, tmp_path)


def test_one_line_for_each_line_whatever_it_holds(workspace: Workspace, reverse: Path) -> None:
    lines = ["Ein Hund.", "", "Ein Mann. " * 40, " \t", "Ein Hund."]
    stdin = "\n".join(lines).encode()
    command = ("translate", "runs/tiny", *SEARCH)
    outcome = workspace.call(*command, "--rerank-with", reverse, stdin=stdin)
    assert outcome.code == 0, outcome.err
    first, nothing, long, blank, last = outcome.lines
    assert first == last
    assert (nothing, blank) == ("", "")
    # A line in parts cannot be scored as a pair: the search's own choice stays, with one warning.
    plain = workspace.call(*command, stdin=stdin)
    assert long == plain.lines[2]
    assert outcome.err.count("warning") == plain.err.count("warning")


def test_evaluation_of_what_is_reranked_is_kept_apart_from_the_models_own(
    workspace: Workspace, reverse: Path, tmp_path: Path
) -> None:
    run = workspace.copy_run(tmp_path / "tiny")
    flags = ("--rerank-with", reverse, "--rerank-weights", "0.3,2.5")
    outcome = workspace.call("evaluate", run, *SEARCH, *flags, "--json")
    assert outcome.code == 0, outcome.err
    (folder,) = (run / "eval").glob("[!.]*")
    assert folder.name.startswith("test-beam4-")
    record = json.loads((folder / "scores.json").read_bytes())
    assert record["reranked_by"]["run"] == "reverse"
    assert record["search"]["rerank_weights"] == [0.3, 2.5]
    assert "with" not in record
    translated = workspace.call("translate", run, "-i", "corpus/test.de", *SEARCH, *flags)
    assert (folder / "hyp.txt").read_text(encoding="utf-8") == translated.text
    assert "rerank" not in (run / "README.md").read_text(encoding="utf-8")
