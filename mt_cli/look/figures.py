"""Figures: curves of trainings, and grids such as attention maps.

Matplotlib is imported only when something is drawn.
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

from mt_cli.errors import DataError, UsageError
from mt_cli.machine.files import write_atomically
from mt_cli.runs.opening import open_run
from mt_cli.runs.reports import Record, read_metrics
from mt_cli.runs.run import Recipe, Run, joined_by_seed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage
    from matplotlib.lines import Line2D

log = logging.getLogger(__name__)

PICTURES = (".png", ".svg")
"""File endings of pictures."""
DOTS_PER_INCH = 150
MAX_LABEL = 16
"""Maximum characters of a token's label."""
CELL = 0.2
"""Side of a cell with a legible label, in inches."""
MAX_PANEL = 16.0
"""Maximum side of a panel, in inches; beyond it, the cells shrink."""


@dataclass(frozen=True)
class Panel:
    """A grid of cells."""

    title: str
    rows: Sequence[str]
    """R labels."""
    columns: Sequence[str]
    """C labels."""
    values: NDArray[np.float32]
    """(R, C), from 0 to 1."""


def check_ending(path: Path, endings: Sequence[str]) -> None:
    """Check the ending of `path` before any work is done.

    Raises:
        UsageError: the ending is not in `endings`.
    """
    if path.suffix.lower() not in endings:
        raise UsageError(f"{path}: unknown picture format; use {' or '.join(endings)}")


def render(compose: Callable[[], "Figure"], ending: str) -> bytes:
    """Draw the figure from `compose`, as the content of a file with this `ending` (`PICTURES`)."""
    image_format = ending.lower().removeprefix(".")
    # Never load a window system, whatever the environment says.
    backend = None if "matplotlib" in sys.modules else os.environ.pop("MPLBACKEND", None)
    import matplotlib as mpl  # lazily: it takes a second, and few commands draw

    if backend is not None:
        os.environ["MPLBACKEND"] = backend
    content = io.BytesIO()
    # Reproducible files: independent of the user's settings and of the date.
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
            "the picture's font lacks some letters; write an .svg, which uses the viewer's fonts"
        )
    return content.getvalue()


def write_picture(path: Path, panels: Sequence[Panel], *, title: str) -> None:
    """Write a picture of `panels` to `path`, with an ending of `PICTURES`."""
    write_atomically(path, render(lambda: compose_panels(panels, title=title), path.suffix))


def compose_panels(panels: Sequence[Panel], *, title: str) -> "Figure":
    """A figure with `panels` in rows and columns, on a common colour scale."""
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

    # Choose the number of panels per row for which the figure's longer side is shortest.
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
    # Dollar signs in tokens are not formulas.
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
    """`label`, cut to `MAX_LABEL` characters."""
    return label if len(label) <= MAX_LABEL else f"{label[: MAX_LABEL - 1]}…"


COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
"""From Okabe and Ito (2008): distinguishable for colour-blind people and in grey prints."""


MARKERS = "osD^vPX"
"""Markers of the runs, for prints without colours."""


WIDTH, HEIGHT = 7.0, 8.5
"""Size of the figure in inches: a page with margins."""


LINE_WIDTH = 1.4


MAX_MARKERS = 40
"""With more validations than this, only some get a marker."""


Curve = list[tuple[float, float]]
"""(step, value), by ascending step."""


@dataclass(frozen=True)
class Curves:
    """The measurements of a run."""

    name: str
    recipe: Recipe | None
    """None until the training has finished."""
    bleu_signatures: tuple[str, ...]
    """Signatures of the points in `bleu`: several if sacreBLEU changed between sessions."""
    train_loss: Curve
    """What is minimized, per target token: the smoothed loss."""
    train_nll: Curve
    """Negative log-likelihood per target token, in nats, with dropout: comparable with `val_nll`.
    """
    lr: Curve
    val_nll: Curve
    """Negative log-likelihood on the validation split, without dropout."""
    bleu: Curve


def curves_of(run: Run) -> Curves:
    """Read the curves of `run`.

    Raises:
        DataError: its metrics are missing, damaged or still empty.
    """
    path = run.metrics_path
    steps, validations = read_metrics(path)
    if not steps and not validations:
        raise DataError(f"{path}: has no measurements yet; train longer, or use another run")

    def curve(records: Sequence[Record], key: str) -> Curve:
        return [(record.step, getattr(record, key)) for record in records]

    return Curves(
        name=run.folder.resolve().name,
        recipe=run.recipe if run.is_finished else None,
        bleu_signatures=tuple(dict.fromkeys(record.bleu_signature for record in validations)),
        train_loss=curve(steps, "loss"),
        train_nll=curve(steps, "nll"),
        lr=curve(steps, "lr"),
        val_nll=curve(validations, "nll"),
        bleu=curve(validations, "bleu"),
    )


def plot_runs(run_dirs: Sequence[Path], *, output: Path) -> list[Curves]:
    """Draw the curves of all runs into `output` (with an ending of `PICTURES`), and return them.

    Raises:
        UsageError: `output` has another ending, or a folder is not a run.
        DataError: a run's metrics are missing, damaged or still empty.
    """
    check_ending(output, PICTURES)
    runs = [curves_of(open_run(run_dir)) for run_dir in run_dirs]
    labels = labels_of(run_dirs)
    write_atomically(output, render(lambda: compose(runs, labels=labels), output.suffix))
    return runs


def labels_of(run_dirs: Sequence[Path]) -> list[str]:
    """A label for each folder: its name if that is unique, else its path."""
    names = [run_dir.resolve().name for run_dir in run_dirs]
    return [
        name if names.count(name) == 1 else os.path.normpath(run_dir)
        for name, run_dir in zip(names, run_dirs, strict=True)
    ]


def compose(runs: Sequence[Curves], *, labels: Sequence[str]) -> "Figure":
    """A figure with loss, BLEU and learning rate by step, with a colour for each run.

    Runs that differ only in their seed are drawn as mean and standard deviation.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
    loss, bleu, rate = figure.subplots(3, 1, sharex=True, height_ratios=(4, 3, 2))
    labelled = list(zip(runs, labels, strict=True))
    groups = joined_by_seed(labelled, [curves.recipe for curves in runs])
    for number, of_group in enumerate(groups):
        group = [curves for curves, _ in of_group]
        colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
        label = ", ".join(label for _, label in of_group)
        _draw(loss, [run.train_nll for run in group], colour, label=f"{label}, train", style=":")
        _draw(loss, [run.val_nll for run in group], colour, label=f"{label}, val", marker=marker)
        _draw(bleu, [run.bleu for run in group], colour, label=label, marker=marker)
        _draw(rate, [run.lr for run in group], colour, label=label)
    for axes in (loss, bleu, rate):
        _widen_hidden(axes.get_lines())
    # A score never travels without its signature.
    signatures = dict.fromkeys(signature for curves in runs for signature in curves.bleu_signatures)
    scored = "\n".join(f"val BLEU {signature}" for signature in signatures) or "no validation yet"
    loss.set_ylabel("nats per target token")
    loss.set_title("negative log-likelihood (train: with dropout)", fontsize=10)
    bleu.set_ylabel("BLEU")
    bleu.set_title(scored, fontsize=10, parse_math=False)
    rate.set_ylabel("learning rate")
    rate.set_xlabel("step")
    for axes in (loss, bleu, rate):
        axes.grid(color="0.9")
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    rate.set_ylim(bottom=0)
    rate.ticklabel_format(axis="y", style="sci", scilimits=(0, 0))
    bleu.set_ylim(bottom=0)
    legend = figure.legend(
        handles=loss.get_lines(), loc="outside lower center", ncols=2, fontsize=9
    )
    for text in legend.get_texts():
        text.set_parse_math(False)  # a folder's name may contain dollar signs
    return figure


def _draw(
    axes: "Axes",
    curves: Sequence[Curve],
    colour: str,
    *,
    label: str,
    style: str = "-",
    marker: str = "",
) -> None:
    """Draw the mean of `curves` at their common steps, with a band of one standard deviation."""
    of_steps = [dict(curve) for curve in curves]
    steps = sorted(set(of_steps[0]).intersection(*of_steps))
    values = np.array([list(map(of_curve.__getitem__, steps)) for of_curve in of_steps])
    mean = values.mean(0)
    if len(curves) > 1:
        deviation = values.std(0, ddof=1)
        axes.fill_between(steps, mean - deviation, mean + deviation, color=colour, alpha=0.2, lw=0)
    axes.plot(
        steps,
        mean,
        color=colour,
        linestyle=style,
        linewidth=LINE_WIDTH,
        marker=marker or ("." if len(steps) == 1 else ""),  # a single point has no line
        markersize=4,
        markevery=max(1, len(steps) // MAX_MARKERS),
        label=label,
    )


def _widen_hidden(lines: Sequence["Line2D"]) -> None:
    """Widen each line by the number of equal lines drawn over it, so that it stays visible."""
    for number, line in enumerate(lines):
        over = sum(
            np.array_equal(line.get_xydata(), each.get_xydata()) for each in lines[number + 1 :]
        )
        line.set_linewidth(LINE_WIDTH * (1 + 2 * over))
