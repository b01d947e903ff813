"""Where runs are, and faults that come in a certain update."""

import math
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from mt_cli.data.batching import Batch
from mt_cli.model.model import TranslationModel
from mt_cli.training import trainer
from mt_cli.training.loss import Loss, batch_loss
from mt_cli.training.session import Session

Disturb = Callable[[Collection[int], Callable[[Loss], object]], None]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Where a test may train."""
    return tmp_path / "run"


@pytest.fixture
def disturb(monkeypatch: pytest.MonkeyPatch) -> Disturb:
    """Calls a function with the loss in some updates from now on, which are counted from 1."""

    def plant(updates: Collection[int], act: Callable[[Loss], object]) -> None:
        made = 0

        def disturbed(model: TranslationModel, batch: Batch, **options: Any) -> Loss:  # noqa: ANN401
            nonlocal made
            loss = batch_loss(model, batch, **options)
            made += 1
            if made in updates:
                act(loss)
            return loss

        monkeypatch.setattr(trainer, "batch_loss", disturbed)

    return plant


@pytest.fixture
def end_time_after(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Lets each time limit be reached by the update named; by none, if that is infinite."""
    elapsed_s = Session._elapsed_s

    def end(step: float) -> None:
        def elapsed(session: Session, *, in_session: bool = False) -> float:
            is_over = in_session and session._trainer.step >= step
            return math.inf if is_over else elapsed_s(session)

        monkeypatch.setattr(Session, "_elapsed_s", elapsed)

    return end
