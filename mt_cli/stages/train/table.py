"""The table of validations: a header and one row each, in at most 80 columns.

Knows numbers and columns, nothing of where they come from.
"""

from dataclasses import dataclass

from mt_cli.stages.train.meter import Stretch

COLUMNS = 80
"""Of the narrowest terminal that people use."""
WIDTHS = {
    "epoch": 5, "step": 8, "train loss": 11, "val nll": 8, "BLEU": 7, "lr": 8, "tok/s": 8, "elapsed": 9,
    "left": 9,
}  # fmt: skip
"""Each column's width, one space before it included; they and `best` are 79."""
BEST = "best"
HEADER = "".join(f"{name:>{width}}" for name, width in WIDTHS.items()) + f"  {BEST}"


@dataclass(frozen=True)
class Row:
    """One validation."""

    step: int
    stretch: Stretch | None
    """Since the validation before; None before the first update."""
    val_nll: float
    bleu: float
    elapsed_s: float
    left_s: float | None
    """None if it cannot be told yet."""
    is_best: bool

    def __str__(self) -> str:
        epoch, train_loss, lr, speed = "0", "-", "-", "-"
        if self.stretch is not None:
            epoch, train_loss = str(self.stretch.epoch), f"{self.stretch.loss:.3f}"
            lr, speed = f"{self.stretch.lr:.1e}", f"{self.stretch.tgt_tokens_per_s:.0f}"
        cells = (
            epoch,
            str(self.step),
            train_loss,
            f"{self.val_nll:.3f}",
            f"{self.bleu:.2f}",
            lr,
            speed,
            clock(self.elapsed_s),
            "-" if self.left_s is None else clock(self.left_s),
        )
        row = "".join(f"{cell:>{width}}" for cell, width in zip(cells, WIDTHS.values(), strict=True))
        return f"{row}  {'*' if self.is_best else ''}".rstrip()


def clock(seconds: float) -> str:
    """A duration such as `0:07`, `12:34`, `1:02:03` or, from four days on, `4d 05h`."""
    whole = round(seconds)
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if days >= 4:
        return f"{days}d {hours % 24:02}h"
    if hours:
        return f"{hours}:{minutes % 60:02}:{whole % 60:02}"
    return f"{minutes}:{whole % 60:02}"


def in_words(seconds: float) -> str:
    """A duration such as `74 s`, `2.4 min`, `35 min` or `2.6 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.{int(seconds < 600)}f} min"
    return f"{seconds / 3600:.1f} h"
