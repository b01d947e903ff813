"""`Attention`: who attends to whom in a sentence and its translation, as numbers, text, pictures
and files.

Matplotlib is imported only to draw.

Letters: S source length, T target length, L layers, H heads.
"""

import io
import logging
import math
import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from mt_cli.errors import Option, UsageError
from mt_cli.machine.files import write_atomically, write_json
from mt_cli.model.inside import MapKind

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


def render(compose: Callable[[], "Figure"], ending: str) -> bytes:
    """What `compose` draws, as the content of a file with this `ending`, one of `PICTURES`."""
    image_format = ending.lower().removeprefix(".")
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
            metadata={"Date": None}
            if image_format == "svg"
            else None,  # the same figure, the same file
        )
    if image_format != "svg" and any("missing from font" in str(each.message) for each in caught):
        log.warning(
            "the picture's font lacks some of the letters; an .svg leaves them to its viewer"
        )
    return content.getvalue()


SHADES = " ░▒▓█"
LONGEST_LABEL = 16
"""Characters of a token that are shown."""
CELL, LARGEST_PANEL = 0.2, 16.0
"""In inches: the side of a cell with a legible label, and of the largest panel, whose cells shrink."""
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


def heat_map(panel: Panel, *, width: int | None = None) -> str:
    """`panel` in letters: a shade for each cell, and each row's highest column at its end.

    Where `width` columns of a terminal are too few, the map is cut into blocks, one below the
    other.
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
            lines.append(
                f"columns {begin + 1} to {min(begin + size, len(columns))} of {len(columns)}"
            )
        height = max(map(len, columns[block]))
        for place in range(height):
            letters = "".join(f"{label.rjust(height)[place]} " for label in columns[block])
            lines.append(f"{'':{margin}} {letters.rstrip()}")
        for label, values, top in zip(rows, panel.values[:, block], tops, strict=True):
            cells = "".join(
                2 * SHADES[round(float(value) / highest * (len(SHADES) - 1))] for value in values
            )
            lines.append(f"{label:>{margin}} {cells}{top}")
    return "\n".join(lines)


def write_picture(path: Path, panels: Sequence[Panel], *, title: str) -> None:
    """Write a picture of `panels` to `path`, whose ending is one of `PICTURES`."""
    write_atomically(path, render(lambda: compose_panels(panels, title=title), path.suffix))


def compose_panels(panels: Sequence[Panel], *, title: str) -> "Figure":
    """A picture of `panels`, beside and below each other, all on one scale of colours."""
    from matplotlib.figure import Figure

    cell = min(CELL, LARGEST_PANEL / max(max(panel.values.shape) for panel in panels))
    letters = max(
        len(short_label(label)) for panel in panels for label in (*panel.rows, *panel.columns)
    )
    labels = 0.5 * cell * letters  # of either side
    width = max(len(panel.columns) for panel in panels) * cell + labels + 0.3
    height = max(len(panel.rows) for panel in panels) * cell + labels + 0.5
    # The number of panels in a row that makes the picture's longer side shortest.
    across = min(
        range(len(panels), 0, -1), key=lambda n: max(n * width, -(-len(panels) // n) * height)
    )
    down = math.ceil(len(panels) / across)
    figure = Figure(figsize=(across * width + 1, down * height + 0.6), layout="constrained")
    figure.suptitle(title, parse_math=False)
    places = figure.subplots(down, across, squeeze=False).flatten().tolist()
    highest = max(float(panel.values.max()) for panel in panels)
    images = [
        _draw_panel(ax, panel, highest, cell) for ax, panel in zip(places, panels, strict=False)
    ]
    for ax in places[len(panels) :]:
        ax.remove()
    if any(
        np.any((panel.values > 0) & (panel.values < 1)) for panel in panels
    ):  # more than yes and no
        figure.colorbar(images[0], ax=places[: len(panels)], shrink=0.6, pad=0.02)
    return figure


def _draw_panel(ax: "Axes", panel: Panel, highest: float, cell: float) -> "AxesImage":
    image = ax.imshow(panel.values, cmap="Blues", vmin=0, vmax=highest, interpolation="nearest")
    ax.set_anchor("N")
    # A token may hold dollar signs, which are no formula here.
    ax.set_xlabel(panel.title, fontsize=10, parse_math=False)
    for axis, labels in ((ax.xaxis, panel.columns), (ax.yaxis, panel.rows)):
        axis.set_ticks(
            range(len(labels)), [short_label(label) for label in labels], parse_math=False
        )
        axis.set_ticks(np.arange(0.5, len(labels) - 1), minor=True)
    ax.tick_params(length=0, labelsize=50 * cell, top=False, labeltop=True, labelbottom=False)
    ax.tick_params(axis="x", labelrotation=90)
    ax.tick_params(which="minor", length=0)
    ax.grid(which="minor", color="white", linewidth=0.6)
    for side in ax.spines.values():
        side.set_edgecolor("lightgrey")
    return image


def short_label(label: str) -> str:
    """`label`, cut to `LONGEST_LABEL` letters."""
    return label if len(label) <= LONGEST_LABEL else f"{label[: LONGEST_LABEL - 1]}…"


# Attention


@dataclass(frozen=True, eq=False)
class TeacherForced:
    """A sentence and a translation, as the model is given them when it is taught: one row each."""

    source: str
    translation: str
    src_ids: Tensor = field(repr=False)
    """(1, S), ending in `</s>`."""
    tgt_in: Tensor = field(repr=False)
    """(1, T), beginning with `<s>`."""
    src_tokens: tuple[str, ...] = field(repr=False)
    """What stands at each of the S source positions."""
    tgt_tokens: tuple[str, ...] = field(repr=False)
    """What stands at each of the T target positions."""
    predicted_tokens: tuple[str, ...] = field(repr=False)
    """What is predicted at each of them: the next token."""


TITLES: Mapping[MapKind, str] = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "cross-attention",
}
ENDINGS = (*PICTURES, ".json")
"""Endings of the files that maps can be written to."""


@dataclass(frozen=True, eq=False)
class AttentionMaps:
    """Maps of one layer. A notebook shows them as a picture."""

    pair: TeacherForced = field(repr=False)
    kind: MapKind
    layer: int
    """From 1."""
    title: str = field(repr=False)
    heads: Sequence[int | str]
    """From 1, or `mean`."""
    panels: list[Panel] = field(repr=False)
    """One for each of `heads`."""

    def as_text(self, *, width: int | None = None) -> str:
        """For a terminal of `width` columns."""
        return "\n\n".join([self.title, *(heat_map(panel, width=width) for panel in self.panels)])

    def as_json(self) -> dict[str, object]:
        """The content of a .json file."""
        maps = [
            {
                "attention": self.kind,
                "layer": self.layer,
                "head": head,
                "rows": panel.rows,
                "columns": panel.columns,
                "weights": panel.values.tolist(),
            }
            for head, panel in zip(self.heads, self.panels, strict=True)
        ]
        return {"source": self.pair.source, "translation": self.pair.translation, "maps": maps}

    def write(self, path: str | Path) -> None:
        """Write a picture or JSON, by the ending of `path`.

        Raises:
            UsageError: the ending is none of `ENDINGS`.
        """
        path = Path(path)
        check_ending(path, ENDINGS)
        if path.suffix.lower() == ".json":
            write_json(path, self.as_json())
        else:
            write_picture(path, self.panels, title=self.title)

    def _repr_png_(self) -> bytes:
        return render(lambda: compose_panels(self.panels, title=self.title), ".png")


@dataclass(frozen=True, eq=False)
class Attention:
    """The attention of one sentence and its translation. A notebook shows the last cross-attention."""

    pair: TeacherForced
    weights: Mapping[MapKind, Tensor]
    """`encoder` (L, H, S, S), `decoder` (L, H, T, T), `cross` (L, H, T, S)."""

    def labels(self, kind: MapKind) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Tokens of the rows, which attend, and of the columns, which are attended to.

        A row of the cross-attention is labelled with the token that was predicted there.
        """
        if kind == "encoder":
            return self.pair.src_tokens, self.pair.src_tokens
        if kind == "decoder":
            return self.pair.tgt_tokens, self.pair.tgt_tokens
        return self.pair.predicted_tokens, self.pair.src_tokens

    def maps(
        self, kind: MapKind = "cross", *, layer: int | None = None, head: int | str = "mean"
    ) -> AttentionMaps:
        """The maps of `layer` (from 1; the last if None) and `head`: a number from 1, `mean`, or
        `all`.

        Raises:
            UsageError: there is no such kind, layer or head.
        """
        if kind not in tuple(TITLES):
            raise UsageError(Option("kind"), f": expected {', '.join(TITLES)}, found {kind!r}")
        maps = self.weights[kind]  # (L, H, queries, keys)
        num_layers, num_heads = maps.shape[:2]
        layer = num_layers if layer is None else layer
        if type(layer) is not int or not 1 <= layer <= num_layers:
            raise UsageError(
                Option("layer", layer), f": the model's {TITLES[kind]} has layers 1 to {num_layers}"
            )
        weights = maps[layer - 1].numpy()  # (H, queries, keys)
        rows, columns = self.labels(kind)
        title = f"{TITLES[kind]}, layer {layer} of {num_layers}: rows attend to columns"
        if head == "mean":
            mean = Panel(f"mean of {num_heads} heads", rows, columns, weights.mean(0))
            return AttentionMaps(self.pair, kind, layer, title, ["mean"], [mean])
        numbers = range(1, num_heads + 1)
        if head != "all" and str(head) not in map(str, numbers):
            raise UsageError(
                Option("head", head), f": expected a number from 1 to {num_heads}, mean or all"
            )
        heads = list(numbers) if head == "all" else [int(head)]
        panels = [Panel(f"head {i}", rows, columns, weights[i - 1]) for i in heads]
        return AttentionMaps(self.pair, kind, layer, title, heads, panels)

    def __repr__(self) -> str:
        num_layers, num_heads = self.weights["cross"].shape[:2]
        return (
            f"<Attention of {self.pair.source!r} and {self.pair.translation!r}: {num_heads} heads "
            f"in {len(self.weights['encoder'])} encoder and {num_layers} decoder layers>"
        )

    def _repr_png_(self) -> bytes:
        return self.maps()._repr_png_()
