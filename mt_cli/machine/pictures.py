"""Labelled grids, such as attention maps: as pictures by matplotlib, imported only to draw, or as text."""

import io
import logging
import math
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mt_cli.errors import UsageError
from mt_cli.machine.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

log = logging.getLogger(__name__)
PICTURES = (".png", ".svg")
"""Endings of the files that can be drawn."""
DOTS_PER_INCH = 150


def check_ending(path: Path, endings: Sequence[str]) -> None:
    """Complain about a file whose ending says nothing, before any work is done.

    Raises:
        UsageError: the ending of `path` is none of `endings`.
    """
    if path.suffix.lower() not in endings:
        raise UsageError(f"{path}: the file's ending says how to draw; use {', '.join(endings)}")


def write_figure(path: Path, compose: Callable[[], "Figure"]) -> None:
    """Write what `compose` draws to `path`, in the format that its ending, one of `PICTURES`, names."""
    write_atomically(path, render(compose, image_format=path.suffix.lower().removeprefix(".")))


def render(compose: Callable[[], "Figure"], *, image_format: str) -> bytes:
    """What `compose` draws as the content of a file of `image_format`, `png` or `svg`."""
    # No window system is needed, nor has to be installed, whatever the environment says.
    backend = None if "matplotlib" in sys.modules else os.environ.pop("MPLBACKEND", None)
    import matplotlib as mpl  # late: it takes a second, and few commands draw

    if backend is not None:
        os.environ["MPLBACKEND"] = backend
    content = io.BytesIO()
    with mpl.rc_context(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        mpl.rcdefaults()  # a picture depends on its content, not on the user's settings
        mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "mt_cli"})
        compose().savefig(
            content,
            format=image_format,
            dpi=DOTS_PER_INCH,
            bbox_inches="tight",
            metadata={"Date": None} if image_format == "svg" else None,  # the same figure, the same file
        )
    if image_format != "svg" and any("missing from font" in str(each.message) for each in caught):
        log.warning("the picture's font lacks some of the letters; an .svg leaves them to its viewer")
    return content.getvalue()


# Labelled grids


SHADES = " ░▒▓█"
LONGEST_LABEL = 16
"""Characters of a token that are shown."""
CELL_CM = 0.62
"""Side of a cell, in which a label of legible size has room."""
CROWDED_CELL_CM = 0.36
"""The same where many panels share a picture."""
LARGEST_PANEL_CM = 40.0
"""Side of a panel at which cells begin to shrink."""
CM, POINT = 1 / 2.54, 1 / 72
"""In inches, which matplotlib counts in."""
LARGEST_FONT = 9.0
"""In points."""
FEWEST_COLUMNS = 4
"""Of a heat map's block, however narrow the terminal."""


@dataclass(frozen=True)
class Panel:
    """One grid."""

    title: str
    rows: Sequence[str]
    """R labels."""
    columns: Sequence[str]
    """C labels."""
    values: NDArray[np.float32]
    """(R, C), from 0 to 1."""


def write_picture(path: Path, panels: Sequence[Panel], *, title: str) -> None:
    """Write a picture of `panels`, beside and below each other, all on one scale of colours.

    The ending of `path` is one of `pictures.PICTURES`.
    """
    write_figure(path, lambda: _compose(panels, title=title))


def render_panels(panels: Sequence[Panel], *, title: str, image_format: str) -> bytes:
    """The picture of `panels` as the content of a file of `image_format`, `png` or `svg`."""
    return render(lambda: _compose(panels, title=title), image_format=image_format)


def heat_map(panel: Panel, *, width: int | None = None) -> str:
    """`panel` in letters: a shade for each cell, and each row's highest column at its end.

    Where `width` columns of a terminal are too few, the map is cut into blocks, one below the other.
    """
    rows, columns = (list(map(short_label, labels)) for labels in (panel.rows, panel.columns))
    margin = max(map(len, rows))
    tops = [f"  {columns[int(values.argmax())]} {values.max():.2f}" for values in panel.values]
    room = len(columns) if width is None else (width - margin - 1 - max(map(len, tops))) // 2
    num_blocks = math.ceil(len(columns) / max(FEWEST_COLUMNS, room))
    size = math.ceil(len(columns) / num_blocks)  # as even as can be
    highest = float(panel.values.max()) or 1.0
    lines = [panel.title]
    for begin in range(0, len(columns), size):
        block = slice(begin, begin + size)
        if num_blocks > 1:
            lines.append(f"columns {begin + 1} to {min(begin + size, len(columns))} of {len(columns)}")
        lines += _letters_downwards(columns[block], margin=margin)
        for label, values, top in zip(rows, panel.values[:, block], tops, strict=True):
            cells = "".join(2 * SHADES[round(float(value) / highest * (len(SHADES) - 1))] for value in values)
            lines.append(f"{label:>{margin}} {cells}{top}")
    return "\n".join(lines)


def _letters_downwards(labels: Sequence[str], *, margin: int) -> list[str]:
    height = max(map(len, labels))
    return [
        " " * (margin + 1) + "".join(f"{label.rjust(height)[place]} " for label in labels).rstrip()
        for place in range(height)
    ]


def _compose(panels: Sequence[Panel], *, title: str) -> "Figure":
    from matplotlib.figure import Figure

    cell = _cell(panels)
    font_size = min(LARGEST_FONT, 0.75 * cell / POINT)
    width, height = _panel_size(panels, cell, font_size)
    across = _panels_across(len(panels), width, height)
    down = math.ceil(len(panels) / across)
    figure = Figure(figsize=(across * width + 1, down * height + 0.6), layout="constrained")
    figure.suptitle(title, parse_math=False)
    places = figure.subplots(down, across, squeeze=False).flatten().tolist()
    highest = max(float(panel.values.max()) for panel in panels)
    images = [_draw_panel(ax, panel, highest, font_size) for ax, panel in zip(places, panels, strict=False)]
    for ax in places[len(panels) :]:
        ax.remove()
    if any(np.any((panel.values > 0) & (panel.values < 1)) for panel in panels):  # more than yes and no
        figure.colorbar(images[0], ax=places[: len(panels)], shrink=0.6, pad=0.02)
    return figure


def _draw_panel(ax: "Axes", panel: Panel, highest: float, font_size: float) -> "AxesImage":
    image = ax.imshow(panel.values, cmap="Blues", vmin=0, vmax=highest, interpolation="nearest")
    ax.set_anchor("N")
    # A token may hold dollar signs, which are no formula here.
    ax.set_xlabel(panel.title, fontsize=10, parse_math=False)
    for axis, labels in ((ax.xaxis, panel.columns), (ax.yaxis, panel.rows)):
        axis.set_ticks(range(len(labels)), [short_label(label) for label in labels], parse_math=False)
        axis.set_ticks(np.arange(0.5, len(labels) - 1), minor=True)
    ax.tick_params(length=0, labelsize=font_size, top=False, labeltop=True, labelbottom=False)
    ax.tick_params(axis="x", labelrotation=90)
    ax.tick_params(which="minor", length=0)
    ax.grid(which="minor", color="white", linewidth=0.6)
    for side in ax.spines.values():
        side.set_edgecolor("lightgrey")
    return image


def _cell(panels: Sequence[Panel]) -> float:
    """Side of a cell in inches."""
    most = max(max(len(panel.rows), len(panel.columns)) for panel in panels)
    return CM * min(CELL_CM if len(panels) == 1 else CROWDED_CELL_CM, LARGEST_PANEL_CM / most)


def _panels_across(num_panels: int, width: float, height: float) -> int:
    """Panels beside each other such that the picture's longer side is as short as can be."""
    most = range(num_panels, 0, -1)
    return min(most, key=lambda across: max(across * width, math.ceil(num_panels / across) * height))


def _panel_size(panels: Sequence[Panel], cell: float, font_size: float) -> tuple[float, float]:
    """Width and height in inches that the largest of `panels` needs, labels included."""
    letter = 0.7 * font_size * POINT
    widths = [len(p.columns) * cell + letter * _longest(p.rows) for p in panels]
    heights = [len(p.rows) * cell + letter * _longest(p.columns) for p in panels]
    return max(widths) + 0.3, max(heights) + 0.5


def _longest(labels: Sequence[str]) -> int:
    """Letters of the longest of `labels`, as they are shown."""
    return max(len(short_label(label)) for label in labels)


def short_label(label: str) -> str:
    """`label`, cut to `LONGEST_LABEL` letters."""
    return label if len(label) <= LONGEST_LABEL else f"{label[: LONGEST_LABEL - 1]}…"
