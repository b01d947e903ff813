"""One model on every backend: same names, same weights, same numbers."""

from collections.abc import Mapping

import pytest
import torch
from tiny import BACKENDS, MODEL_OPTIONS, covering, random_ids, randomised, tiny_model
from torch import Tensor, nn

from mt_cli.model.cpu_kernels import Dropout
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
    reference, scratch = twins(backend, options)
    expected, actual = reference(SRC_IDS, TGT_IN), scratch(SRC_IDS, TGT_IN)
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        gradients(scratch, actual), gradients(reference, expected), rtol=1e-4, atol=2e-5
    )


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_agreement_is_one_of_formulas_not_of_rounding(backend: str, norm: str) -> None:
    reference, scratch = (
        model.double() for model in twins(backend, {"norm": norm, "activation": "gelu"})
    )
    expected, actual = reference(SRC_IDS, TGT_IN), scratch(SRC_IDS, TGT_IN)
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(
        gradients(scratch, actual), gradients(reference, expected), rtol=1e-10, atol=1e-10
    )


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_torch_backend_gives_the_same_on_its_fast_path(backend: str, norm: str) -> None:
    # In eval mode without gradients, nn.TransformerEncoderLayer runs other kernels.
    reference, scratch = twins(backend, {"norm": norm})
    with torch.no_grad():
        memory, src_mask = reference.encode(SRC_IDS)
        torch.testing.assert_close(
            memory[src_mask], scratch.encode(SRC_IDS)[0][src_mask], rtol=1e-4, atol=1e-5
        )
        torch.testing.assert_close(
            reference(SRC_IDS, TGT_IN), scratch(SRC_IDS, TGT_IN), rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize("tie", ["none", "decoder", "all"])
@pytest.mark.parametrize("init", ["xavier", "normal"])
def test_same_seed_gives_the_same_weights(backend: str, init: str, tie: str) -> None:
    reference, scratch = (
        tiny_model(name, seed=5, init=init, tie=tie, positions="learned")
        for name in (REFERENCE, backend)
    )
    torch.testing.assert_close(
        dict(scratch.named_parameters()), dict(reference.named_parameters()), rtol=0, atol=0
    )


RATES = {"dropout": 0.1, "attention_dropout": 0.2, "activation_dropout": 0.3}


@pytest.mark.parametrize(
    ("of", "name", "expected"),
    [
        ("scratch", "dropout", 0.1),
        ("scratch", "self_attn.dropout", 0.2),
        ("scratch", "activation_dropout", 0.3),
        ("torch", "dropout1", 0.1),
        ("torch", "dropout2", 0.1),
        ("torch", "dropout", 0.3),
    ],
)
def test_rates_are_where_the_options_say(of: str, name: str, expected: float) -> None:
    model = tiny_model(of, options=RATES)
    for layer in ("encoder.layers.1", "decoder.layers.0"):
        module = model.get_submodule(f"backend.{layer}.{name}")
        assert isinstance(module, Dropout | nn.Dropout)
        assert module.p == expected
    assert model.dropout.p == 0.1


@torch.no_grad()
def spread(model: TranslationModel) -> Tensor:
    """How far training-mode logits are spread, (T, V), over many copies of one pair."""
    copies = 3000
    src, tgt = random_ids(1, 3, vocab_size=9), random_ids(1, 3, seed=1)
    torch.manual_seed(1)
    logits: Tensor = model.train()(src.expand(copies, -1), tgt.expand(copies, -1))
    return logits.std(0)


@pytest.mark.parametrize("name", list(RATES))
def test_dropout_spreads_the_logits_alike_in_both_backends(backend: str, name: str) -> None:
    reference, scratch = twins(backend, {name: 0.25})
    torch.testing.assert_close(spread(scratch), spread(reference), rtol=0.1, atol=0)
