"""Charts: whether ticks are round, and whether points lie where their values are."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mt_cli.stages.report.charts import (
    BINS,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Line,
    bin_counts,
    histogram,
    line_chart,
    nice_ticks,
    score_bar,
    short,
    thinned,
)


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0, 300, [0, 100, 200, 300]),
        (0, 73.9, [0, 20, 40, 60, 80]),
        (0, 0.003, [0, 0.001, 0.002, 0.003]),
        (0.37, 6.8, [0, 2, 4, 6, 8]),
        (0, 0, [0, 0.2, 0.4, 0.6, 0.8, 1]),
    ],
)
def test_ticks_are_round(low: float, high: float, ticks: list[float]) -> None:
    assert nice_ticks(low, high) == pytest.approx(ticks)


@given(st.floats(-1e6, 1e6), st.floats(0, 1e6))
def test_ticks_embrace_the_values_and_are_few(low: float, span: float) -> None:
    ticks = nice_ticks(low, low + span)
    slack = 1e-6 * (abs(low) + span + 1e-6)
    assert ticks[0] <= low + slack
    assert ticks[-1] >= low + span - slack
    assert 2 <= len(ticks) <= 8


def points_of(svg: str) -> list[list[float]]:
    (points,) = re.findall(r'points="([^"]*)"', svg)
    return [[float(number) for number in pair.split(",")] for pair in points.split()]


def test_line_goes_from_corner_to_corner() -> None:
    svg = line_chart(
        [Line("a", [(0, 0), (50, 10), (100, 20)], 1)], x_label="x", y_label="y", title="t", from_zero=True
    )
    (x0, y0), (x1, y1), (x2, y2) = points_of(svg)
    assert (x0, x2, y2) == (LEFT, WIDTH - RIGHT, TOP)
    assert y0 < HEIGHT
    assert (x1, y1) == pytest.approx(((x0 + x2) / 2, (y0 + y2) / 2))


def test_line_of_many_points_keeps_its_ends() -> None:
    chosen = thinned(range(100_000), 400)
    assert (len(chosen), chosen[0], chosen[-1]) == (400, 0, 99_999)


def test_one_point_is_seen() -> None:
    svg = line_chart([Line("a", [(5, 3.0)], 1)], x_label="x", y_label="y", title="t", from_zero=False)
    assert svg.count("<circle") == 1


def test_every_value_is_in_one_bin() -> None:
    counts = bin_counts([0, 4.99, 5, 99.9, 100])
    assert (counts[0], counts[1], counts[BINS - 1], sum(counts)) == (2, 1, 2, 5)


def test_score_of_rounding_above_100_is_in_the_last_bin() -> None:
    assert bin_counts([100.00000000000001])[-1] == 1


def test_tallest_bar_is_as_tall_as_its_count_says() -> None:
    svg = histogram([[50.0] * 4 + [10.0] * 2], x_label="x", title="t")
    heights = sorted({float(height) for height in re.findall(r' height="([\d.]+)"', svg)})
    assert heights[-1] == pytest.approx(2 * heights[-2], abs=0.2)


@pytest.mark.parametrize(("score", "width"), [(0, 0), (50, 140), (100, 280), (301, 280)])
def test_bar_is_as_long_as_the_score(score: float, width: float) -> None:
    assert f'width="{width:.1f}"' in score_bar(score, number=1, title="t")


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (300, "300"), (1500, "1.5k"), (2e6, "2M"), (5e-4, "0.0005")]
)
def test_numbers_of_axes_are_short(value: float, text: str) -> None:
    assert short(value) == text
