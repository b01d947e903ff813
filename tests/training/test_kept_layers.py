"""A model with fewer layers takes over the weights of a deeper one."""

import pytest
import torch
from tiny import randomised, tiny_model

from mt_cli.text import PAD_ID
from mt_cli.training.start_from import kept_layers, weights_of_layers


@pytest.mark.parametrize(
    ("num_layers", "num_kept", "kept"),
    [
        (4, 1, [0]),
        (4, 2, [0, 3]),
        (4, 4, [0, 1, 2, 3]),
        (5, 3, [0, 2, 4]),
        (12, 3, [0, 6, 11]),
        (1, 1, [0]),
    ],
)
def test_kept_layers_by_hand(num_layers: int, num_kept: int, kept: list[int]) -> None:
    assert kept_layers(num_layers, num_kept) == kept


@pytest.mark.parametrize("backend", ["scratch", "torch"])
@pytest.mark.parametrize("tie", ["none", "all"])
def test_without_layers_that_change_nothing_the_model_computes_the_same(
    backend: str, tie: str
) -> None:
    """A pre-norm layer whose sublayers put out zeros returns what it is given."""
    deep = randomised(tiny_model(backend, encoder_layers=5, decoder_layers=4, norm="pre", tie=tie))
    weights = dict(deep.named_parameters())
    dropped = {"encoder": {"1", "3"}, "decoder": {"1", "2"}}
    with torch.no_grad():
        for name, weight in weights.items():
            match name.split("."):
                case ["backend", stack, "layers", layer, *rest] if layer in dropped[stack]:
                    if "out_proj" in rest or "linear2" in rest:
                        weight.zero_()
    shallow = tiny_model(backend, encoder_layers=3, decoder_layers=2, norm="pre", tie=tie)
    names = dict(shallow.named_parameters()).keys()
    kept = {"encoder": kept_layers(5, 3), "decoder": kept_layers(4, 2)}
    shallow.load_state_dict(weights_of_layers(weights, kept, names=names), strict=False)
    src, tgt = torch.tensor([[5, 6, 7, PAD_ID], [8, 9, 4, 5]]), torch.tensor([[4, 5, 6], [7, 8, 9]])
    with torch.no_grad():
        torch.testing.assert_close(shallow(src, tgt), deep(src, tgt))
