"""Validation while training, against a computation pair by pair."""

import pytest
import torch
from tiny import CPU, random_pairs, randomised, split_of, tiny_model
from torch.nn import functional as F
from workspace import Workspace

from mt_cli.data.encoded import EncodedSplit
from mt_cli.data.prepared import open_prepared
from mt_cli.model.model import TranslationModel
from mt_cli.runs.opening import open_run
from mt_cli.text import BOS_ID, EOS_ID
from mt_cli.training.validator import Validator, mean_nll


@torch.no_grad()
def expected_nll(model: TranslationModel, split: EncodedSplit, *, longest: int) -> float:
    """Pair by pair, each as far as the model reads."""
    total, tokens = 0.0, 0
    for i in range(len(split)):
        src, tgt = split.src[i][:longest].tolist(), split.tgt[i][:longest].tolist()
        logits = model(torch.tensor([[*src, EOS_ID]]), torch.tensor([[BOS_ID, *tgt]]))
        total += float(F.cross_entropy(logits[0], torch.tensor([*tgt, EOS_ID]), reduction="sum"))
        tokens += len(tgt) + 1
    return total / tokens


def test_loss_is_the_mean_over_target_tokens_of_every_pair_as_far_as_the_model_reads(
    workspace: Workspace,
) -> None:
    prepared, run = open_prepared(workspace.prepared), open_run(workspace.run)
    split, model = prepared.split("val"), run.load_model()
    longest = model.max_len - 1
    assert max(split.src.lengths.max(), split.tgt.lengths.max()) > longest, "no pair is cut"
    found = Validator(model, run, prepared, runtime=CPU).validate(step=1).nll
    assert found == pytest.approx(expected_nll(model, split, longest=longest), rel=1e-5)


@pytest.mark.parametrize("tokens_per_batch", [1, 40, 10_000])
def test_mean_nll_depends_on_no_batches_and_draws_no_random_numbers(tokens_per_batch: int) -> None:
    model, split = randomised(tiny_model(dropout=0.5)), split_of(random_pairs(40))
    expected = expected_nll(model, split, longest=99)
    before = torch.get_rng_state()
    found = mean_nll(model.train(), split, tokens_per_batch=tokens_per_batch, runtime=CPU)
    assert found == pytest.approx(expected, rel=1e-5)
    assert torch.equal(torch.get_rng_state(), before)
