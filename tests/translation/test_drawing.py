"""Labelled grids, as text that is compared letter by letter and as pictures that other programs can read."""

import itertools
import logging
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mt_cli.artefacts.pictures import PICTURES, check_ending
from mt_cli.errors import ResourceError, UsageError
from mt_cli.translation.drawing import ASCII_SHADES, Panel, heat_map, write_picture

SVG = "{http://www.w3.org/2000/svg}"
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def panel_of(
    rows: Sequence[str], columns: Sequence[str], values: Sequence[Sequence[float]], *, title: str = "mean"
) -> Panel:
    return Panel(title, rows, columns, np.array(values, dtype=np.float32))


def random_panel(num_rows: int, num_columns: int, *, title: str = "mean") -> Panel:
    """Rows that sum to one, as attention's do."""
    values = np.random.default_rng(0).dirichlet(np.ones(num_columns), num_rows)
    rows, columns = [f"r{i}" for i in range(num_rows)], [f"c{i}" for i in range(num_columns)]
    return panel_of(rows, columns, values.tolist(), title=title)


# Text


def test_heat_map_has_vertical_labels_shades_and_each_rows_strongest_column() -> None:
    panel = panel_of(["der", "</s>"], ["a", "the"], [[0.25, 0.5], [1.0, 0.0]])
    assert heat_map(panel).split("\n") == [
        "mean",
        "       t",
        "       h",
        "     a e",
        " der ░░▒▒  the 0.50",
        "</s> ██    a 1.00",
    ]


def test_heat_map_is_darkest_at_its_own_highest_weight() -> None:
    panel = panel_of(["x"], list("abcde"), [[0.0, 0.05, 0.1, 0.15, 0.2]])
    assert heat_map(panel).split("\n")[-1] == "x   ░░▒▒▓▓██  e 0.20"


def test_heat_map_takes_other_shades() -> None:
    panel = panel_of(["x"], list("abcde"), [[0.0, 0.05, 0.1, 0.15, 0.2]])
    assert heat_map(panel, shades=ASCII_SHADES).split("\n")[-1] == "x   ..::**##  e 0.20"


def test_ascii_shades_are_ascii_and_as_many() -> None:
    assert (ASCII_SHADES.isascii(), len(ASCII_SHADES)) == (True, 5)


def test_heat_map_of_nothing_but_zeros_is_blank() -> None:
    panel = panel_of(["x", "y"], ["a", "b"], [[0.0, 0.0], [0.0, 0.0]])
    assert heat_map(panel).split("\n") == ["mean", "  a b", "x       a 0.00", "y       a 0.00"]


def test_heat_map_shortens_labels_longer_than_sixteen() -> None:
    sixteen, seventeen = "Donaudampfschiff", "Donaudampfschiffe"
    *header, first, second = heat_map(panel_of([sixteen, seventeen], [seventeen], [[1.0], [0.5]])).split("\n")
    assert first == "Donaudampfschiff ██  Donaudampfschif… 1.00"
    assert second == "Donaudampfschif… ▒▒  Donaudampfschif… 0.50"
    assert "".join(line.strip() for line in header[1:]) == "Donaudampfschif…"


def test_heat_map_of_one_cell_is_drawn() -> None:
    assert heat_map(panel_of(["</s>"], ["."], [[1.0]])).split("\n") == ["mean", "     .", "</s> ██  . 1.00"]


# Endings


@pytest.mark.parametrize("name", ["a.png", "a.svg", "a.PNG", "b.c.SvG", "dir.pdf/a.svg"])
def test_ending_of_a_picture_is_accepted(name: str) -> None:
    check_ending(Path(name), PICTURES)


@pytest.mark.parametrize("name", ["a.pdf", "a", ".png", "a.png.gz", "-", "a.json", "a.png/b"])
def test_other_endings_are_refused_with_those_there_are(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_ending(Path(name), PICTURES)
    assert str(caught.value) == f"{name}: the file's ending says how to draw; use .png, .svg"


# Pictures


def size_of(path: Path) -> tuple[int, int]:
    """Width and height in pixels, after decoding all of the file."""
    assert path.read_bytes().startswith(PNG_SIGNATURE)
    with Image.open(path) as image:
        image.load()
        return image.size


def texts_in(path: Path) -> list[str]:
    """Every piece of text in an SVG."""
    return ["".join(element.itertext()) for element in ET.parse(path).getroot().iter(f"{SVG}text")]


def axes_in(path: Path) -> int:
    """Grids and colour bars in an SVG."""
    groups = ET.parse(path).getroot().iter(f"{SVG}g")
    return sum(group.get("id", "").startswith("axes_") for group in groups)


def test_png_has_room_for_each_token_and_no_more(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    few, many = tmp_path / "few.png", tmp_path / "many.png"
    write_picture(few, [random_panel(5, 5)], title="few")
    write_picture(many, [random_panel(40, 40)], title="many")
    (few_width, few_height), (many_width, many_height) = size_of(few), size_of(many)
    assert 5 * 20 < few_width < 600
    assert 5 * 20 < few_height < 600
    assert 40 * 20 < many_width < 40 * 60
    assert 40 * 20 < many_height < 40 * 60
    assert caplog.records == []


def test_png_of_many_tokens_stays_a_size_that_can_be_opened(tmp_path: Path) -> None:
    write_picture(tmp_path / "a.png", [random_panel(100, 1)], title="long")
    assert 1000 < max(size_of(tmp_path / "a.png")) < 3000


@pytest.mark.parametrize(
    ("rows", "columns", "title"),
    [(1, 1, "T"), (1, 1, "T" * 120), (1, 12, "T"), (12, 1, "T")],
    ids=["one cell", "long title", "one row", "one column"],
)
def test_odd_shapes_are_drawn_without_complaint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, rows: int, columns: int, title: str
) -> None:
    write_picture(tmp_path / "a.png", [random_panel(rows, columns)], title=title)
    assert min(size_of(tmp_path / "a.png")) > 50
    assert caplog.records == []


def test_panel_of_nothing_but_zeros_is_drawn(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_picture(tmp_path / "a.svg", [panel_of(["x"], ["y"], [[0.0]])], title="zero")
    assert texts_in(tmp_path / "a.svg") == ["y", "mean", "x", "zero"]
    assert caplog.records == []


def test_svg_holds_every_token_as_text(tmp_path: Path) -> None:
    rows, columns = ["▁Ein", "Mann", "</s>"], ["▁A", "män", "."]
    write_picture(
        tmp_path / "a.svg", [panel_of(rows, columns, np.eye(3).tolist())], title="cross-attention, layer 1"
    )
    assert {*rows, *columns, "mean", "cross-attention, layer 1"} == set(texts_in(tmp_path / "a.svg"))


AWKWARD = ["$x$", "$", "$\\frac{", "\\alpha", "<b>", "&amp;", "a&b", "-->", "]]>", "'\"", "^_%#"]


def test_svg_keeps_dollars_angles_and_ampersands_as_they_are(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    panel = panel_of(AWKWARD, AWKWARD, np.eye(len(AWKWARD)).tolist(), title="$head$ <1> & 2")
    write_picture(tmp_path / "a.svg", [panel], title="$T$ <&>")
    assert sorted(texts_in(tmp_path / "a.svg")) == sorted([*AWKWARD, *AWKWARD, "$head$ <1> & 2", "$T$ <&>"])
    assert caplog.records == []


def test_png_takes_dollars_for_no_formula(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    panel = panel_of(AWKWARD, ["$\\nonsense{$"], [[0.5]] * len(AWKWARD), title="$\\frac{$")
    write_picture(tmp_path / "a.png", [panel], title="$\\sqrt$")
    assert min(size_of(tmp_path / "a.png")) > 50
    assert caplog.records == []


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_the_same_panel_gives_the_same_bytes(tmp_path: Path, ending: str) -> None:
    first, second = tmp_path / f"first.{ending}", tmp_path / f"second.{ending}"
    write_picture(first, [random_panel(1, 3)], title="same")
    write_picture(second, [random_panel(1, 3)], title="same")
    assert first.read_bytes() == second.read_bytes()


def test_ending_in_capitals_is_the_same_format(tmp_path: Path) -> None:
    small, capital = tmp_path / "a.png", tmp_path / "b.PNG"
    write_picture(small, [random_panel(2, 2)], title="T")
    write_picture(capital, [random_panel(2, 2)], title="T")
    assert capital.read_bytes() == small.read_bytes()


def test_letters_that_the_font_lacks_are_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    panel = panel_of(["犬", "が", "🐶"], ["走", "る", "."], np.eye(3).tolist())
    with caplog.at_level(logging.WARNING, logger="mt_cli"):
        write_picture(tmp_path / "a.png", [panel], title="犬")
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage().startswith("the picture's font lacks some of the letters")
    assert min(size_of(tmp_path / "a.png")) > 50


def test_svg_leaves_letters_that_the_font_lacks_to_its_viewer(tmp_path: Path) -> None:
    write_picture(tmp_path / "a.svg", [panel_of(["犬"], ["🐶"], [[1.0]])], title="T")
    assert {"犬", "🐶"} < set(texts_in(tmp_path / "a.svg"))


@pytest.mark.parametrize("count", [5, 8])
def test_each_head_has_a_panel_and_unused_places_stay_empty(tmp_path: Path, count: int) -> None:
    titles = [f"head {i + 1}" for i in range(count)]
    write_picture(tmp_path / "a.svg", [random_panel(1, 2, title=title) for title in titles], title="all")
    assert [text for text in texts_in(tmp_path / "a.svg") if text.startswith("head")] == titles
    assert axes_in(tmp_path / "a.svg") == count + 1  # and the scale of colours


def test_panels_of_different_shapes_share_a_picture(tmp_path: Path) -> None:
    write_picture(tmp_path / "a.svg", [random_panel(2, 5), random_panel(7, 3)], title="T")
    texts = texts_in(tmp_path / "a.svg")
    assert [texts.count(label) for label in ("c1", "c4", "r1", "r6")] == [2, 1, 2, 1]


def test_yes_and_no_need_no_scale_of_colours(tmp_path: Path) -> None:
    write_picture(tmp_path / "a.svg", [panel_of(["a", "b"], ["a", "b"], [[1, 0], [1, 1]])], title="mask")
    assert axes_in(tmp_path / "a.svg") == 1


# Where it is written


def test_missing_folder_is_made(tmp_path: Path) -> None:
    write_picture(tmp_path / "new" / "folder" / "a.svg", [random_panel(1, 1)], title="T")
    assert [path.name for path in tmp_path.joinpath("new", "folder").iterdir()] == ["a.svg"]


def test_older_picture_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.svg"
    path.write_text("old")
    write_picture(path, [random_panel(1, 1)], title="T")
    assert "T" in texts_in(path)
    assert list(tmp_path.iterdir()) == [path]


def test_place_below_a_file_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("precious")
    with pytest.raises(ResourceError, match=r"file/x\.png: cannot be written: "):
        write_picture(file / "x.png", [random_panel(1, 1)], title="T")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("file", "precious")]


def test_place_that_is_a_folder_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    folder = tmp_path / "a.png"
    folder.mkdir()
    with pytest.raises(ResourceError, match=r"a\.png: cannot be written: Is a directory"):
        write_picture(folder, [random_panel(1, 1)], title="T")
    assert list(tmp_path.rglob("*")) == [folder]


# The surroundings

DRAW_IN_A_PROCESS = """
import sys
from pathlib import Path
import numpy as np
from mt_cli.translation.drawing import Panel, write_picture
write_picture(Path(sys.argv[1]), [Panel("t", ["a"], ["b"], np.ones((1, 1), np.float32))], title="T")
"""


def test_window_system_that_matplotlib_is_told_to_use_does_not_matter(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", DRAW_IN_A_PROCESS, tmp_path / "a.svg"],
        # What a notebook sets for every program started from it, installed in that program's place or not.
        env={**os.environ, "MPLBACKEND": "module://matplotlib_inline.backend_inline"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_window_system_of_a_notebook_stays_its_own(tmp_path: Path) -> None:
    look = "import matplotlib, os; print(matplotlib.get_backend(), os.environ['MPLBACKEND'])"
    done = subprocess.run(
        [sys.executable, "-c", DRAW_IN_A_PROCESS + look, tmp_path / "a.svg"],
        env={**os.environ, "MPLBACKEND": "pdf"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("pdf pdf\n", "")


@pytest.mark.parametrize("width", [40, 60, 80])
def test_heat_map_is_cut_into_blocks_that_fit_and_hold_every_column_once(width: int) -> None:
    panel = random_panel(5, 50)
    title, *lines = heat_map(panel, width=width).split("\n")
    whole_title, *whole = heat_map(panel).split("\n")
    assert title == whole_title
    assert max(map(len, lines)) <= width
    heads = [line for line in lines if line.startswith("columns ")]
    ranges = [tuple(map(int, re.findall(r"\d+", head))) for head in heads]
    assert ranges[0][0] == 1
    assert ranges[-1][1:] == (50, 50)
    assert all(before[1] + 1 == after[0] for before, after in itertools.pairwise(ranges))
    assert [line for line in lines if line.startswith(panel.rows[-1])][-1].split()[-2:] == whole[-1].split()[
        -2:
    ]


def test_heat_map_that_fits_is_not_cut() -> None:
    panel = random_panel(5, 10)
    assert heat_map(panel, width=80) == heat_map(panel)


@pytest.mark.parametrize(("num_panels", "most"), [(4, 2), (8, 3), (9, 3), (16, 4)])
def test_many_panels_form_a_square_rather_than_a_strip(tmp_path: Path, num_panels: int, most: int) -> None:
    write_picture(tmp_path / "one.png", [random_panel(20, 20)] * 2, title="two")
    write_picture(tmp_path / "all.png", [random_panel(20, 20)] * num_panels, title="all")
    pair, whole = size_of(tmp_path / "one.png"), size_of(tmp_path / "all.png")
    side = max(pair) / 2
    assert max(whole) < (most + 0.5) * side
