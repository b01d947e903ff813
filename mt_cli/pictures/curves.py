"""The curves of trainings, read from their metrics.jsonl and drawn."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mt_cli.errors import DataError
from mt_cli.machine.files import write_atomically
from mt_cli.pictures.figures import PICTURES, check_ending, render
from mt_cli.runs.opening import open_run
from mt_cli.runs.run import Run, number_in, read_metrics

if TYPE_CHECKING:  # matplotlib takes a second to import, and `render` chooses its backend
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
"""Of Okabe and Ito (2008): people who see few colours tell them apart, and so does a grey print."""


MARKERS = "osD^vPX"
"""One for each run, for prints without colours."""


WIDTH, HEIGHT = 7.0, 8.5
"""In inches: a page with margins."""


MAX_MARKERS = 40
"""Validations beyond which only some are marked."""


Curve = list[tuple[float, float]]
"""Steps, ascending, and values."""


@dataclass(frozen=True)
class Curves:
    """What a run measured of itself."""

    name: str
    bleu_signatures: tuple[str, ...]
    """Of the points of `bleu`: one, unless sacreBLEU changed between two sessions."""
    train_loss: Curve
    """What is minimized, per target token: the smoothed loss."""
    train_nll: Curve
    """Negative log-likelihood per target token, in nats, with dropout: what `val_nll` compares
    with.
    """
    lr: Curve
    val_nll: Curve
    """The same of the validation split, without dropout."""
    bleu: Curve


def curves_of(run: Run) -> Curves:
    """The curves of `run`, named like its folder.

    Raises:
        DataError: its metrics are missing or damaged, or there are none yet.
    """
    path = run.metrics_path
    records = read_metrics(path)
    steps = [record for record in records if record["kind"] == "step"]
    validations = [record for record in records if record["kind"] == "validation"]
    if not steps and not validations:
        raise DataError(f"{path}: no measurement yet; train on, or name a folder that train wrote")

    def curve(of: Sequence[dict[str, object]], key: str) -> Curve:
        return [
            (number_in(each, "step", path=path), number_in(each, key, path=path)) for each in of
        ]

    return Curves(
        name=run.folder.resolve().name,
        bleu_signatures=tuple(
            dict.fromkeys(str(each.get("bleu_signature")) for each in validations)
        ),
        train_loss=curve(steps, "loss"),
        train_nll=curve(steps, "nll"),
        lr=curve(steps, "lr"),
        val_nll=curve(validations, "nll"),
        bleu=curve(validations, "bleu"),
    )


def plot_runs(run_dirs: Sequence[Path], *, output: Path) -> list[Curves]:
    """Draw the curves of all runs into `output`, which ends with one of `PICTURES`; return them.

    Raises:
        UsageError: the ending is another, or a folder is no run.
        DataError: a run's metrics are missing or damaged, or there are none yet.
    """
    check_ending(output, PICTURES)
    runs = [curves_of(open_run(run_dir)) for run_dir in run_dirs]
    labels = labels_of(run_dirs)
    write_atomically(output, render(lambda: compose(runs, labels=labels), output.suffix))
    return runs


def labels_of(run_dirs: Sequence[Path]) -> list[str]:
    """A name for each of the folders: its own where no other has that, else its path."""
    names = [run_dir.resolve().name for run_dir in run_dirs]
    return [
        name if names.count(name) == 1 else os.path.normpath(run_dir)
        for name, run_dir in zip(names, run_dirs, strict=True)
    ]


def compose(runs: Sequence[Curves], *, labels: Sequence[str]) -> "Figure":
    """A figure with loss, BLEU and learning rate against the step, one colour for each run."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
    loss, bleu, rate = figure.subplots(3, 1, sharex=True, height_ratios=(4, 3, 2))
    for number, (curves, label) in enumerate(zip(runs, labels, strict=True)):
        colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
        _draw(loss, curves.train_nll, colour, label=f"{label}, train", style=":")
        _draw(loss, curves.val_nll, colour, label=f"{label}, val", marker=marker)
        _draw(bleu, curves.bleu, colour, label=label, marker=marker)
        _draw(rate, curves.lr, colour, label=label)
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
        text.set_parse_math(False)  # a folder's name may hold dollar signs
    return figure


def _draw(
    axes: "Axes", curve: Curve, colour: str, *, label: str, style: str = "-", marker: str = ""
) -> None:
    axes.plot(
        [step for step, _ in curve],
        [value for _, value in curve],
        color=colour,
        linestyle=style,
        linewidth=1.4,
        marker=marker,
        markersize=4,
        markevery=max(1, len(curve) // MAX_MARKERS),
        label=label,
    )
