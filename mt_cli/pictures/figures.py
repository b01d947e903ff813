"""Figures: how they are rendered, and grids of cells such as attention maps.

Matplotlib is imported only to draw.
"""

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
MAX_LABEL = 16
"""Characters of a token that are shown."""
CELL = 0.2
"""Side of a cell with a legible label, in inches."""
MAX_PANEL = 16.0
"""Side of a panel, in inches; in larger ones, the cells shrink."""


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


def check_ending(path: Path, endings: Sequence[str]) -> None:
    """Refuse a file whose ending does not say how to draw, before any work is done.

    Raises:
        UsageError: the ending of `path` is none of `endings`.
    """
    if path.suffix.lower() not in endings:
        raise UsageError(f"{path}: the file's ending says how to draw; use {', '.join(endings)}")


def render(compose: Callable[[], "Figure"], ending: str) -> bytes:
    """The figure from `compose` as the content of a file with this `ending`, one of `PICTURES`."""
    image_format = ending.lower().removeprefix(".")
    # No window system is needed, nor has to be installed, whatever the environment says.
    backend = None if "matplotlib" in sys.modules else os.environ.pop("MPLBACKEND", None)
    import matplotlib as mpl  # late: it takes a second, and few commands draw

    if backend is not None:
        os.environ["MPLBACKEND"] = backend
    content = io.BytesIO()
    # The same figure gives the same file: neither the user's settings nor the date matter.
    metadata = {"Date": None} if image_format == "svg" else None
    with mpl.rc_context(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        mpl.rcdefaults()
        mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "mt_cli"})
        compose().savefig(
            content,
            format=image_format,
            dpi=DOTS_PER_INCH,
            bbox_inches="tight",
            metadata=metadata,
        )
    if image_format != "svg" and any("missing from font" in str(each.message) for each in caught):
        log.warning(
            "the picture's font lacks some of the letters; an .svg leaves them to its viewer"
        )
    return content.getvalue()


def write_picture(path: Path, panels: Sequence[Panel], *, title: str) -> None:
    """Write a picture of `panels` to `path`, whose ending is one of `PICTURES`."""
    write_atomically(path, render(lambda: compose_panels(panels, title=title), path.suffix))


def compose_panels(panels: Sequence[Panel], *, title: str) -> "Figure":
    """A picture of `panels`, beside and below each other, all on one scale of colours."""
    from matplotlib.figure import Figure

    most_rows = max(len(panel.rows) for panel in panels)
    most_columns = max(len(panel.columns) for panel in panels)
    longest_label = 0
    for panel in panels:
        for label in (*panel.rows, *panel.columns):
            longest_label = max(longest_label, len(short_label(label)))
    cell = min(CELL, MAX_PANEL / max(most_rows, most_columns))
    label_size = 0.5 * cell * longest_label
    width = most_columns * cell + label_size + 0.3
    height = most_rows * cell + label_size + 0.5

    # The number of panels in a row that makes the picture's longer side shortest.
    def longer_side(num_across: int) -> float:
        return max(num_across * width, math.ceil(len(panels) / num_across) * height)

    across = min(range(len(panels), 0, -1), key=longer_side)
    down = math.ceil(len(panels) / across)
    figure = Figure(figsize=(across * width + 1, down * height + 0.6), layout="constrained")
    figure.suptitle(title, parse_math=False)
    places = figure.subplots(down, across, squeeze=False).flatten().tolist()
    highest = max(float(panel.values.max()) for panel in panels)
    images = []
    for ax, panel in zip(places, panels, strict=False):
        images.append(_draw_panel(ax, panel, highest, cell))
    for ax in places[len(panels) :]:
        ax.remove()
    figure.colorbar(images[0], ax=places[: len(panels)], shrink=0.6, pad=0.02)
    return figure


def _draw_panel(ax: "Axes", panel: Panel, highest: float, cell: float) -> "AxesImage":
    image = ax.imshow(panel.values, cmap="Blues", vmin=0, vmax=highest, interpolation="nearest")
    ax.set_anchor("N")
    # A token may hold dollar signs, which are no formula here.
    ax.set_xlabel(panel.title, fontsize=10, parse_math=False)
    for axis, labels in ((ax.xaxis, panel.columns), (ax.yaxis, panel.rows)):
        shown = [short_label(label) for label in labels]
        axis.set_ticks(range(len(labels)), shown, parse_math=False)
        axis.set_ticks(np.arange(0.5, len(labels) - 1), minor=True)
    points = 50 * cell
    ax.tick_params(length=0, labelsize=points, top=False, labeltop=True, labelbottom=False)
    ax.tick_params(axis="x", labelrotation=90)
    ax.tick_params(which="minor", length=0)
    ax.grid(which="minor", color="white", linewidth=0.6)
    for side in ax.spines.values():
        side.set_edgecolor("lightgrey")
    return image


def short_label(label: str) -> str:
    """`label`, cut to `MAX_LABEL` letters."""
    return label if len(label) <= MAX_LABEL else f"{label[: MAX_LABEL - 1]}…"
