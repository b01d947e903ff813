"""Position encodings against the paper's formula."""

import math

import pytest

from mt_cli.model.positions import Positions, sinusoids


@pytest.mark.parametrize("position", [0, 1, 57, 255])
@pytest.mark.parametrize("column", [0, 1, 2, 63, 126, 127])
def test_sinusoids_equal_the_formula_of_the_paper(position: int, column: int) -> None:
    pair = column // 2
    angle = position / 10000 ** (2 * pair / 128)
    expected = math.sin(angle) if column % 2 == 0 else math.cos(angle)
    assert sinusoids(256, 128)[position, column].item() == pytest.approx(expected, abs=1e-6)


def test_learned_positions_are_parameters() -> None:
    assert [p.shape for p in Positions(5, 4, learned=True).parameters()] == [(5, 4)]


def test_waves_are_neither_parameters_nor_saved() -> None:
    positions = Positions(5, 4, learned=False)
    assert list(positions.parameters()) == []
    assert positions.state_dict() == {}
