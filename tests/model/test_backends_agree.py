"""One model on every backend: same names, same weights, same numbers."""

from collections.abc import Mapping

import pytest
import torch
from tiny import BACKENDS, MODEL_OPTIONS, covering, random_ids, randomised, tiny_model
from torch import Tensor

from mt_cli.model.model import TranslationModel

CASES = covering(MODEL_OPTIONS)
SRC_IDS = random_ids(3, 6, lengths=[6, 2, 4], vocab_size=9)
TGT_IN = random_ids(3, 5, seed=1, lengths=[3, 5, 4])


def describe(options: dict[str, object]) -> str:
    return " ".join(f"{name}={value}" for name, value in options.items())


REFERENCE = "torch"


@pytest.fixture(params=[name for name in BACKENDS if name != REFERENCE])
def backend(request: pytest.FixtureRequest) -> str:
    """Each backend but PyTorch's, which all others are compared with."""
    return str(request.param)


def twins(backend: str, options: Mapping[str, object]) -> tuple[TranslationModel, TranslationModel]:
    """The reference's model of `options` and that of `backend`, with the same random weights."""
    src_size, tgt_size = (11, 11) if options.get("tie") == "all" else (9, 11)
    sizes = {"src_vocab_size": src_size, "tgt_vocab_size": tgt_size}
    reference = randomised(tiny_model(REFERENCE, **sizes, options=options), std=0.25)
    other = tiny_model(backend, **sizes, options=options)
    other.load_state_dict(reference.state_dict())
    return reference, other


def gradients(model: TranslationModel, logits: Tensor) -> dict[str, Tensor]:
    """Gradient of every parameter, of a loss that weighs each logit differently."""
    weights = torch.linspace(-1, 1, logits.numel()).view_as(logits)
    names, parameters = zip(*model.named_parameters(), strict=True)
    return dict(zip(names, torch.autograd.grad((logits * weights).sum(), parameters), strict=True))


@pytest.mark.parametrize("options", CASES, ids=describe)
def test_equal_weights_give_equal_logits_and_gradients(
    backend: str, options: dict[str, object]
) -> None:
    # With so many digits, it is formulas that agree.
    reference, scratch = (model.double() for model in twins(backend, options))
    expected, actual = reference(SRC_IDS, TGT_IN), scratch(SRC_IDS, TGT_IN)
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(
        gradients(scratch, actual), gradients(reference, expected), rtol=1e-10, atol=1e-10
    )


@torch.no_grad()
def spread(model: TranslationModel) -> Tensor:
    """How far training-mode logits are spread, (T, V), over many copies of one pair."""
    copies = 3000
    src, tgt = random_ids(1, 3, vocab_size=9), random_ids(1, 3, seed=1)
    torch.manual_seed(1)
    logits: Tensor = model.train()(src.expand(copies, -1), tgt.expand(copies, -1))
    return logits.std(0)


@pytest.mark.parametrize("name", ["dropout", "attention_dropout", "activation_dropout"])
def test_dropout_spreads_the_logits_alike_in_both_backends(backend: str, name: str) -> None:
    reference, scratch = twins(backend, {name: 0.25})
    expected = spread(reference)
    assert expected.min() > 0
    torch.testing.assert_close(spread(scratch), expected, rtol=0.1, atol=0)
