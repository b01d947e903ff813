"""Validation while training, against a computation pair by pair."""

from dataclasses import replace

import pytest
import torch
from tiny import CPU
from torch.nn import functional as F
from workspace import Workspace

from mt_cli.data.prepared import open_prepared
from mt_cli.machine.device import Runtime
from mt_cli.model.model import TranslationModel
from mt_cli.runs.opening import open_run
from mt_cli.text import BOS_ID, EOS_ID
from mt_cli.training.validator import Validator
from mt_cli.translation.translator import Translator


@pytest.fixture
def model(workspace: Workspace) -> TranslationModel:
    return open_run(workspace.run).load_model()


@pytest.fixture
def validator(workspace: Workspace, model: TranslationModel) -> Validator:
    run, prepared = open_run(workspace.run), open_prepared(workspace.prepared)
    return Validator(model, run, prepared, runtime=CPU)


def test_loss_is_the_mean_over_target_tokens_of_every_pair_as_far_as_the_model_reads(
    workspace: Workspace, model: TranslationModel, validator: Validator
) -> None:
    split = open_prepared(workspace.prepared).split("val")
    longest = model.max_len - 1
    total, tokens = 0.0, 0
    assert max(split.src.lengths.max(), split.tgt.lengths.max()) > longest, (
        "no pair needs to be cut"
    )
    for i in range(len(split)):
        src, tgt = split.src[i][:longest].tolist(), split.tgt[i][:longest].tolist()
        with torch.no_grad():
            logits = model(torch.tensor([[*src, EOS_ID]]), torch.tensor([[BOS_ID, *tgt]]))
        total += float(F.cross_entropy(logits[0], torch.tensor([*tgt, EOS_ID]), reduction="sum"))
        tokens += len(tgt) + 1
    assert validator.validate(step=1).nll == pytest.approx(total / tokens, rel=1e-5)


def test_scores_are_those_of_fp32_whatever_training_computes_in(
    workspace: Workspace, model: TranslationModel, validator: Validator
) -> None:
    run, prepared = open_run(workspace.run), open_prepared(workspace.prepared)
    runtime = Runtime(torch.device("cpu"), "bf16")
    of_training = Validator(model, run, prepared, runtime=runtime)
    assert of_training.validate(step=1) == validator.validate(step=1)


def test_lower_case_references_are_what_a_lower_case_corpus_is_scored_against(
    workspace: Workspace, model: TranslationModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, prepared = open_run(workspace.run), open_prepared(workspace.prepared)
    data = run.config.data.model_copy(update={"lowercase": True})
    run = replace(run, config=run.config.model_copy(update={"data": data}))
    refs = [line.lower() for line in prepared.lines("val", "tgt")]
    monkeypatch.setattr(Translator, "translate", lambda *_, **__: refs)
    bleu = Validator(model, run, prepared, runtime=CPU).validate(step=1).bleu
    assert bleu.score == pytest.approx(100)
    assert "case:lc" in bleu.signature
