"""Labelled grids as pictures that other programs can read."""

import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from mt_cli.look.figures import Panel, write_picture

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
