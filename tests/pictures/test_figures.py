"""Labelled grids as pictures that other programs can read."""

import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from mt_cli.errors import ResourceError
from mt_cli.pictures.figures import Panel, write_picture

SVG = "{http://www.w3.org/2000/svg}"


def panel_of(
    rows: Sequence[str],
    columns: Sequence[str],
    values: Sequence[Sequence[float]],
    *,
    title: str = "mean",
) -> Panel:
    return Panel(title, rows, columns, np.array(values, dtype=np.float32))


def random_panel(num_rows: int, num_columns: int, *, title: str = "mean") -> Panel:
    """Rows that sum to one, as attention's do."""
    values = np.random.default_rng(0).dirichlet(np.ones(num_columns), num_rows)
    rows, columns = [f"r{i}" for i in range(num_rows)], [f"c{i}" for i in range(num_columns)]
    return panel_of(rows, columns, values.tolist(), title=title)


def texts_in(path: Path) -> list[str]:
    """Every piece of text in an SVG."""
    return ["".join(element.itertext()) for element in ET.parse(path).getroot().iter(f"{SVG}text")]


def axes_in(path: Path) -> int:
    """Grids and colour bars in an SVG."""
    groups = ET.parse(path).getroot().iter(f"{SVG}g")
    return sum(group.get("id", "").startswith("axes_") for group in groups)


AWKWARD = ["$x$", "$", "$\\frac{", "\\alpha", "<b>", "&amp;", "a&b", "-->", "]]>", "'\"", "^_%#"]


def test_svg_keeps_dollars_angles_and_ampersands_as_they_are(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    panel = panel_of(AWKWARD, AWKWARD, np.eye(len(AWKWARD)).tolist(), title="$head$ <1> & 2")
    write_picture(tmp_path / "a.svg", [panel], title="$T$ <&>")
    texts = [*AWKWARD, *AWKWARD, "$head$ <1> & 2", "$T$ <&>"]
    assert Counter(texts) <= Counter(texts_in(tmp_path / "a.svg"))
    assert caplog.records == []


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_the_same_panel_gives_the_same_bytes(tmp_path: Path, ending: str) -> None:
    first, second = tmp_path / f"first.{ending}", tmp_path / f"second.{ending}"
    write_picture(first, [random_panel(1, 3)], title="same")
    write_picture(second, [random_panel(1, 3)], title="same")
    assert first.read_bytes() == second.read_bytes()


def test_each_head_has_a_panel_and_unused_places_stay_empty(tmp_path: Path) -> None:
    titles = [f"head {i + 1}" for i in range(5)]
    panels = [random_panel(1, 2, title=title) for title in titles]
    write_picture(tmp_path / "a.svg", panels, title="all")
    assert [text for text in texts_in(tmp_path / "a.svg") if text.startswith("head")] == titles
    assert axes_in(tmp_path / "a.svg") == 5 + 1  # and the scale of colours


def test_place_below_a_file_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("precious")
    with pytest.raises(ResourceError, match=r"file/x\.png: "):
        write_picture(file / "x.png", [random_panel(1, 1)], title="T")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("file", "precious")]
