"""Labelled grids as pictures that other programs can read."""

import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from mt_cli.look.figures import Curves, Panel, compose, write_picture
from mt_cli.runs.run import Recipe

SVG = "{http://www.w3.org/2000/svg}"


def random_panel(rows: Sequence[str], columns: Sequence[str], *, title: str = "mean") -> Panel:
    """Rows that sum to one, as attention's do."""
    values = np.random.default_rng(0).dirichlet(np.ones(len(columns)), len(rows))
    return Panel(title, rows, columns, values.astype(np.float32))


def texts_in(path: Path) -> list[str]:
    """Every piece of text in an SVG."""
    return ["".join(element.itertext()) for element in ET.parse(path).getroot().iter(f"{SVG}text")]


AWKWARD = ["$x$", "$", "$\\frac{", "\\alpha", "<b>", "&amp;", "a&b", "-->", "]]>", "'\"", "^_%#"]


def test_svg_keeps_dollars_angles_and_ampersands_as_they_are(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    panel = random_panel(AWKWARD, AWKWARD, title="$head$ <1> & 2")
    write_picture(tmp_path / "a.svg", [panel], title="$T$ <&>")
    texts = [*AWKWARD, *AWKWARD, "$head$ <1> & 2", "$T$ <&>"]
    assert Counter(texts) <= Counter(texts_in(tmp_path / "a.svg"))
    assert caplog.records == []


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_the_same_panel_gives_the_same_bytes(tmp_path: Path, ending: str) -> None:
    first, second = tmp_path / f"first.{ending}", tmp_path / f"second.{ending}"
    write_picture(first, [random_panel("a", "bcd")], title="same")
    write_picture(second, [random_panel("a", "bcd")], title="same")
    assert first.read_bytes() == second.read_bytes()


def curves(config: str, seed: int, bleu: dict[int, float]) -> Curves:
    """A run that was validated at these steps; its other curves are those of any other."""
    other = [(10.0, 5.0), (20.0, 4.0)]
    return Curves(
        f"{config}{seed}", Recipe(config, seed), (), other, other, other, other, [*bleu.items()]
    )


def test_seeds_are_drawn_as_their_mean_in_a_band() -> None:
    one = curves("a", 1, {10: 20.0, 20: 30.0, 30: 40.0})
    two = curves("a", 2, {10: 22.0, 20: 34.0})  # it is behind
    figure = compose([one, two, curves("b", 1, {20: 10.0})], labels=["one", "two", "other"])
    bleu = figure.axes[1]
    mean, other = bleu.get_lines()
    assert np.asarray(mean.get_xydata()).tolist() == [[10, 21], [20, 32]]
    (band,) = (np.asarray(each.get_paths()[0].vertices) for each in bleu.collections)
    assert {round(y, 3) for _, y in band} == {
        round(m + d * 2**0.5, 3) for m, d in ((21, 1), (21, -1), (32, 2), (32, -2))
    }
    assert (np.asarray(other.get_xydata()).tolist(), other.get_marker()) != ([[20, 10]], "")
    assert [text.get_text() for text in figure.legends[0].get_texts()][:2] == [
        "one, two, train",
        "one, two, val",
    ]


def test_equal_curves_are_all_seen_and_a_single_point_is(tmp_path: Path) -> None:
    runs = [curves(name, 1, {10: 20.0, 20: 30.0}) for name in "abc"]
    figure = compose([*runs, curves("d", 1, {})], labels=list("abcd"))
    widths = [line.get_linewidth() for line in figure.axes[1].get_lines()]
    assert widths[0] > widths[1] > widths[2]
    lone = Curves("x", Recipe("x", 1), (), [(1.0, 2.0)], [(1.0, 2.0)], [(1.0, 0.1)], [], [])
    figure = compose([lone], labels=["x"])
    assert all(line.get_marker() not in ("", "None") for line in figure.axes[2].get_lines())
