"""`TrainResult`: how training ended, as the command tells it.

Knows names and numbers, nothing of how they came about.
"""

from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class TrainResult:
    """How training ended."""

    folder: Path
    state: str
    """`finished`, `early_stop` or `time_limit`."""
    step: int
    best_step: int | None
    best_score: float | None
    """Validation BLEU, or minus the validation loss, as `training.best_by` says."""

    def as_json(self) -> dict[str, object]:
        """The form that `train --json` prints."""
        return {**asdict(self), "folder": str(self.folder)}
