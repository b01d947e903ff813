"""Position encodings against the paper's formula."""

import math

import pytest
import torch

from mt_cli.model.positions import Positions, sinusoids


def test_sinusoids_of_a_hand_worked_case() -> None:
    # d_model 4: frequencies 1 and 1/10000^(2/4) = 1/100.
    expected = [
        [0.0, 1.0, 0.0, 1.0],
        [0.8414709848, 0.5403023059, 0.0099998333, 0.9999500004],
        [0.9092974268, -0.4161468365, 0.0199986667, 0.9998000067],
    ]
    torch.testing.assert_close(sinusoids(3, 4), torch.tensor(expected))


@pytest.mark.parametrize("position", [0, 1, 57, 255])
@pytest.mark.parametrize("column", [0, 1, 2, 63, 126, 127])
def test_sinusoids_equal_the_formula_of_the_paper(position: int, column: int) -> None:
    pair = column // 2
    angle = position / 10000 ** (2 * pair / 128)
    expected = math.sin(angle) if column % 2 == 0 else math.cos(angle)
    assert sinusoids(256, 128)[position, column].item() == pytest.approx(expected, abs=1e-6)


def test_every_position_has_waves_of_its_own() -> None:
    waves = sinusoids(200, 16)
    distances = torch.cdist(waves, waves) + torch.eye(200)
    assert distances.min() > 1e-3


def test_positions_are_added() -> None:
    x = torch.randn(2, 3, 4)
    out = Positions(5, 4, learned=False)(x)
    torch.testing.assert_close(out - x, sinusoids(5, 4)[:3].expand(2, 3, 4))


def test_learned_positions_are_parameters() -> None:
    assert [p.shape for p in Positions(5, 4, learned=True).parameters()] == [(5, 4)]


def test_waves_are_neither_parameters_nor_saved() -> None:
    positions = Positions(5, 4, learned=False)
    assert list(positions.parameters()) == []
    assert positions.state_dict() == {}
