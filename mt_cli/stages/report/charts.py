"""Charts as inline SVG, drawn with the page's own colours: lines, bars with intervals, and counts.

Knows numbers and marks; nothing of runs or test sets.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from mt_cli.stages.report.markup import Html, element

WIDTH, HEIGHT = 360, 230
LEFT, RIGHT, TOP, BOTTOM = 50, 10, 8, 34
"""Margins around the plot."""
MOST_POINTS = 400
"""Of a line; more cannot be told apart."""
MOST_MARKS = 40
TICKS = 5
SMALLEST_SPAN = 1e-100
"""Below it, values are equal."""
BAR_WIDTH, BAR_HEIGHT = 280, 14
BINS = 20
"""Of a histogram from 0 to 100."""

Style = Literal["plain", "dotted"]
T = TypeVar("T")


@dataclass(frozen=True)
class Line:
    """One curve."""

    label: str
    points: Sequence[tuple[float, float]]
    number: int
    """Of the run, from 1, which has a colour of its own."""
    style: Style = "plain"
    has_marks: bool = False


@dataclass(frozen=True)
class Axis:
    """Values from `low` to `high`, and where they lie in the picture."""

    low: float
    high: float
    begin: float
    end: float

    def place(self, value: float) -> float:
        """Where `value` is drawn."""
        return self.begin + (value - self.low) / (self.high - self.low or 1) * (self.end - self.begin)


def key(name: str, *, number: int) -> Html:
    """A run's `name` beside its colour."""
    return element("span", name, class_=f"key run{number}")


def line_chart(lines: Sequence[Line], *, x_label: str, y_label: str, title: str, from_zero: bool) -> Html:
    """All `lines` over one pair of axes."""
    xs = [x for line in lines for x, _ in line.points]
    ys = [y for line in lines for _, y in line.points]
    x_ticks = nice_ticks(0, max(xs))
    y_ticks = nice_ticks(0 if from_zero else min(ys), max(ys))
    x_axis = Axis(0, x_ticks[-1], LEFT, WIDTH - RIGHT)
    y_axis = Axis(y_ticks[0], y_ticks[-1], HEIGHT - BOTTOM, TOP)
    return _chart(
        *_axes(x_axis, y_axis, x_ticks, y_ticks, x_label=x_label, y_label=y_label),
        *(part for line in lines for part in _line(line, x_axis, y_axis)),
        title=title,
    )


def _line(line: Line, x_axis: Axis, y_axis: Axis) -> list[Html]:
    shown = thinned(line.points, MOST_POINTS)
    places = " ".join(f"{x_axis.place(x):.1f},{y_axis.place(y):.1f}" for x, y in shown)
    parts = [element("polyline", points=places, class_=f"line run{line.number} {line.style}")]
    if line.has_marks or len(shown) == 1:
        parts += [
            element(
                "circle",
                element("title", f"{line.label}, step {x:,.0f}: {y:.4g}"),
                cx=f"{x_axis.place(x):.1f}",
                cy=f"{y_axis.place(y):.1f}",
                r=3,
                class_=f"mark run{line.number}",
            )
            for x, y in thinned(line.points, MOST_MARKS)
        ]
    return parts


def _axes(
    x_axis: Axis,
    y_axis: Axis,
    x_ticks: Sequence[float],
    y_ticks: Sequence[float],
    *,
    x_label: str,
    y_label: str,
) -> list[Html]:
    middle = (TOP + HEIGHT - BOTTOM) / 2
    parts = [
        element("text", x_label, x=WIDTH - RIGHT, y=HEIGHT - 4, class_="label end"),
        element("text", y_label, transform=f"translate(10 {middle}) rotate(-90)", class_="label middle"),
    ]
    for tick in y_ticks:
        y = f"{y_axis.place(tick):.1f}"
        parts.append(element("line", x1=x_axis.begin, x2=x_axis.end, y1=y, y2=y, class_="grid"))
        parts.append(element("text", short(tick), x=LEFT - 5, y=y, dy="0.35em", class_="tick end"))
    for tick in x_ticks:
        x = f"{x_axis.place(tick):.1f}"
        parts.append(element("line", x1=x, x2=x, y1=y_axis.begin, y2=y_axis.begin + 4, class_="axis"))
        parts.append(element("text", short(tick), x=x, y=y_axis.begin + 15, class_="tick middle"))
    parts.append(
        element("line", x1=x_axis.begin, x2=x_axis.end, y1=y_axis.begin, y2=y_axis.begin, class_="axis")
    )
    return parts


def _chart(*parts: Html, title: str) -> Html:
    return element(
        "svg", *parts, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=title, class_="chart"
    )


def histogram(values: Sequence[Sequence[float]], *, x_label: str, title: str) -> Html:
    """How many of each run's `values`, from 0 to 100, lie in each twentieth."""
    counts = [bin_counts(each) for each in values]
    y_ticks = nice_ticks(0, max(max(each) for each in counts))
    x_axis = Axis(0, 100, LEFT, WIDTH - RIGHT)
    y_axis = Axis(0, y_ticks[-1], HEIGHT - BOTTOM, TOP)
    bars = []
    width = (x_axis.end - x_axis.begin) / BINS / len(counts)
    for number, of_run in enumerate(counts, start=1):
        for place, count in enumerate(of_run):
            top = y_axis.place(count)
            begin, end = place * 100 // BINS, (place + 1) * 100 // BINS
            bars.append(
                element(
                    "rect",
                    element("title", f"{begin} to {end}: {count}"),
                    x=f"{x_axis.place(begin) + (number - 1) * width + 0.5:.1f}",
                    y=f"{top:.1f}",
                    width=f"{width - 1:.1f}",
                    height=f"{y_axis.begin - top:.1f}",
                    class_=f"bar run{number}",
                )
            )
    axes = _axes(x_axis, y_axis, [0, 20, 40, 60, 80, 100], y_ticks, x_label=x_label, y_label="sentences")
    return _chart(*axes, *bars, title=title)


def bin_counts(values: Sequence[float]) -> list[int]:
    """How many of `values` lie in each of the equal bins from 0 to 100; 100 lies in the last."""
    counts = [0] * BINS
    for value in values:
        counts[min(BINS - 1, int(value * BINS / 100))] += 1
    return counts


def score_bar(score: float, *, number: int, title: str, interval: tuple[float, float] | None = None) -> Html:
    """A bar from 0 to 100 with its `interval` as a whisker; what is beyond 100 is cut off."""
    axis = Axis(0, 100, 0, BAR_WIDTH)

    def place(value: float) -> str:
        return f"{axis.place(min(100, max(0, value))):.1f}"

    middle = BAR_HEIGHT / 2
    parts = [
        element("rect", x=0, y=3, width=BAR_WIDTH, height=BAR_HEIGHT - 6, rx=1.5, class_="groove"),
        element(
            "rect", x=0, y=3, width=place(score), height=BAR_HEIGHT - 6, rx=1.5, class_=f"bar run{number}"
        ),
    ]
    if interval is not None:
        low, high = map(place, interval)
        parts.append(element("path", d=f"M{low} {middle}H{high}M{low} 2v10M{high} 2v10", class_="whisker"))
    return element(
        "svg",
        *parts,
        viewBox=f"0 0 {BAR_WIDTH} {BAR_HEIGHT}",
        role="img",
        aria_label=title,
        class_="scorebar",
    )


def nice_ticks(low: float, high: float) -> list[float]:
    """Round numbers, equally far apart, of which the first is at most `low` and the last at least `high`."""
    span = high - low
    if span <= max(1e-9 * abs(high), SMALLEST_SPAN):
        span = abs(high) if abs(high) > SMALLEST_SPAN else 1.0
        high = low + span
    power = 10.0 ** math.floor(math.log10(span / TICKS))
    distance = next(power * factor for factor in (1, 2, 5, 10) if power * factor * TICKS >= span * 0.999)
    first, last = math.floor(low / distance + 1e-9), math.ceil(high / distance - 1e-9)
    return [number * distance for number in range(first, last + 1)]


def thinned(points: Sequence[T], most: int) -> Sequence[T]:
    """At most `most` of `points`, evenly chosen, the first and the last among them."""
    if len(points) <= most:
        return points
    return [points[round(i * (len(points) - 1) / (most - 1))] for i in range(most)]


def short(value: float) -> str:
    """Such as `12k` for 12000."""
    for unit, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= unit:
            return f"{value / unit:g}{letter}"
    return f"{value:g}"
