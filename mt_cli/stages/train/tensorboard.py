"""TensorBoard's event files: the same numbers as in metrics.jsonl, for those who watch them there.

Knows readings and validations; imports the package tensorboard, an extra, only when asked for.
"""

from pathlib import Path
from typing import Self

from mt_cli.artefacts.files import check_no_links
from mt_cli.errors import ResourceError
from mt_cli.stages.train.meter import Reading
from mt_cli.stages.train.validation import Validation

FOLDER = "tensorboard"
"""Inside of the run folder."""


def check_installed() -> None:
    """Make sure that TensorBoard can be imported.

    Raises:
        ResourceError: it is not installed.
    """
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError as error:
        raise ResourceError(
            f"--tensorboard needs the package tensorboard, which cannot be imported ({error}); "
            "run: pip install 'mt_cli[tensorboard]'"
        ) from error


class EventFiles:
    """Writes event files into a run folder; as a context it closes them."""

    def __init__(self, run_folder: Path, *, after_step: int) -> None:
        """What earlier sessions wrote of updates after `after_step`, which a kill lost, is hidden."""
        from torch.utils.tensorboard import SummaryWriter

        check_no_links(run_folder / FOLDER, below=run_folder)
        self._writer = SummaryWriter(str(run_folder / FOLDER), purge_step=after_step + 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()

    def add_step(self, reading: Reading) -> None:
        """Write what was measured of the updates before `reading`."""
        self._add("train/loss", reading.loss, reading.step)
        self._add("train/nll", reading.nll, reading.step)
        self._add("train/lr", reading.lr, reading.step)
        self._add("train/grad_norm", reading.grad_norm, reading.step)
        self._add("train/tgt_tokens_per_s", reading.tgt_tokens_per_s, reading.step)

    def add_validation(self, validation: Validation) -> None:
        """Write what a validation found."""
        self._add("val/nll", validation.nll, validation.step)
        # A score never travels without its signature.
        self._add(f"val/BLEU ({validation.bleu.signature})", validation.bleu.score, validation.step)
        self._writer.flush()

    def _add(self, name: str, value: float, step: int) -> None:
        self._writer.add_scalar(name, value, step)
