"""The training loop: a generator of step reports.

Owns everything that changes while training, and saves and restores it; knows no files, logs or scores.
"""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.profiler import record_function

from mt_cli.config import TrainingConfig
from mt_cli.data.batching import collate, plan_epoch
from mt_cli.data.encoded import EncodedSplit
from mt_cli.distributed import World
from mt_cli.model.translation_model import TranslationModel
from mt_cli.runtime import Runtime, seed_everything
from mt_cli.training.objective import batch_loss
from mt_cli.training.optimiser import (
    build_optimiser,
    optimiser_tensors,
    restore_optimiser,
    set_learning_rate,
)
from mt_cli.training.schedule import learning_rate


@dataclass(frozen=True)
class StepReport:
    """One update. Its tensors are read by whoever logs them, so that no step waits for the device."""

    step: int
    """From 1."""
    epoch: int
    """From 1."""
    is_end_of_epoch: bool
    lr: float
    tgt_tokens: int
    loss: Tensor
    """Scalar: smoothed cross-entropy per target token."""
    nll: Tensor
    """Scalar: negative log-likelihood per target token, in nats."""
    grad_norm: Tensor
    """Scalar: before clipping."""


@dataclass
class Progress:
    """Where training stands: enough to find the next batch."""

    step: int = 0
    epoch: int = 0
    """Epochs completed."""
    update_of_epoch: int = 0
    """Updates of the current epoch already made."""


class Trainer:
    """Updates `model` on `split` as `config` says; iterate over `run()`."""

    def __init__(
        self,
        model: TranslationModel,
        split: EncodedSplit,
        config: TrainingConfig,
        *,
        runtime: Runtime,
        seed: int,
        world: World | None = None,
    ) -> None:
        """With a `world` of several processes, each takes its share of every batch."""
        self.model = model
        self.progress = Progress()
        self._split = split
        self._config = config
        self._runtime = runtime
        self._seed = seed
        self._world = world or World()
        self._src_lengths, self._tgt_lengths = split.src.lengths, split.tgt.lengths
        self._optimiser = build_optimiser(
            model,
            optimizer=config.optimizer,
            betas=config.betas,
            eps=config.eps,
            weight_decay=config.weight_decay,
        )
        self.steps_per_epoch = len(self._plan_updates(epoch=0))
        self.total_steps = self._count_steps()

    def run(self) -> Iterator[StepReport]:
        """Make the updates that are left, one for each report."""
        progress = self.progress
        while progress.step < self.total_steps:
            updates = self._plan_updates(epoch=progress.epoch)
            epoch = progress.epoch + 1
            if progress.update_of_epoch >= len(updates):  # saved under a longer plan
                progress.epoch, progress.update_of_epoch = epoch, 0
                continue
            for update in updates[progress.update_of_epoch :]:
                if progress.step == self.total_steps:
                    return
                is_last = progress.update_of_epoch + 1 == len(updates)
                progress.step += 1
                progress.update_of_epoch = 0 if is_last else progress.update_of_epoch + 1
                progress.epoch = epoch if is_last else epoch - 1
                yield self._update(update, epoch=epoch, is_end_of_epoch=is_last)

    def tensors(self) -> dict[str, Tensor]:
        """The optimiser's state, by name."""
        return optimiser_tensors(self.model, self._optimiser)

    def restore(self, progress: Progress, tensors: Mapping[str, Tensor]) -> None:
        """Go on from a saved `progress` with what `tensors()` gave then; weights are the model's own."""
        self.progress = progress
        restore_optimiser(self.model, self._optimiser, tensors)

    def _count_steps(self) -> int:
        """Updates of the whole training; counted, because epochs differ by a few batches."""
        total, limit = 0, self._config.max_steps or sys.maxsize
        for epoch in range(self._config.max_epochs):
            if total >= limit:
                break
            total += len(self._plan_updates(epoch=epoch))
        return min(total, limit)

    def _plan_updates(self, *, epoch: int) -> list[list[NDArray[np.int64]]]:
        """The batches of each update of `epoch` (from 0), the same whenever they are asked for."""
        batches = plan_epoch(
            self._src_lengths,
            self._tgt_lengths,
            tokens_per_batch=self._config.tokens_per_batch,
            rng=np.random.default_rng([self._seed, epoch]),
        )
        size = self._config.accumulation
        return [batches[i : i + size] for i in range(0, len(batches), size)]

    def _update(self, batches: list[NDArray[np.int64]], *, epoch: int, is_end_of_epoch: bool) -> StepReport:
        self.model.train()
        # Dropout depends on the update alone, not on what was drawn before: a resumed run has no need of it.
        seed_everything(_mixed(self._seed, self.progress.step, self._world.rank))
        # Dividing once, by the tokens of the whole update, makes accumulation exact.
        tgt_tokens = sum(int((self._tgt_lengths[batch] + 1).sum()) for batch in batches)
        sums = torch.zeros(2, device=self._runtime.device)
        for batch in batches:
            share = batch[self._world.rank :: self._world.size]
            if len(share):
                sums += self._accumulate(share, tgt_tokens=tgt_tokens)
        with record_function("update"):
            self._add_up_gradients(sums)
            grad_norm = torch.nn.utils.clip_grad_norm_(
                self.model.parameters(), self._config.clip_norm or float("inf")
            )
            rate = self._learning_rate(self.progress.step)
            set_learning_rate(self._optimiser, rate)
            self._optimiser.step()
            self._optimiser.zero_grad(set_to_none=True)
        loss, nll = (sums / tgt_tokens).unbind()
        return StepReport(self.progress.step, epoch, is_end_of_epoch, rate, tgt_tokens, loss, nll, grad_norm)

    def _accumulate(self, indices: NDArray[np.int64], *, tgt_tokens: int) -> Tensor:
        """Add one batch's share of the gradient; gives its summed loss and nll, (2,)."""
        with record_function("collate"):
            batch = collate(self._split, indices).to(self._runtime.device)
        with record_function("forward"), self._runtime.autocast():
            loss = batch_loss(self.model, batch, label_smoothing=self._config.label_smoothing)
        with record_function("backward"):
            (loss.smoothed / tgt_tokens).backward()  # type: ignore[no-untyped-call]
        return torch.stack([loss.smoothed.detach(), loss.nll])

    def _add_up_gradients(self, sums: Tensor) -> None:
        """Have every process see the gradient, and the `sums` (2,), of the whole update."""
        if self._world.size == 1:
            return
        for parameter in self.model.parameters():
            if parameter.grad is None:  # a batch of fewer pairs than processes
                parameter.grad = torch.zeros_like(parameter)
        gradients = [parameter.grad for parameter in self.model.parameters() if parameter.grad is not None]
        self._world.add_up([*gradients, sums])

    def _learning_rate(self, step: int) -> float:
        return learning_rate(
            step,
            schedule=self._config.schedule,
            peak_lr=self._config.peak_lr,
            warmup_steps=self._config.warmup_steps,
            total_steps=self.total_steps,
        )


def _mixed(*numbers: int) -> int:
    """One seed of several."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 1)


@torch.no_grad()
def mean_nll(
    model: TranslationModel, split: EncodedSplit, *, tokens_per_batch: int, runtime: Runtime
) -> float:
    """Negative log-likelihood per target token of `split`, in nats, without dropout."""
    was_training = model.training
    model.eval()
    total = torch.zeros((), device=runtime.device)
    lengths = split.src.lengths, split.tgt.lengths
    for indices in plan_epoch(*lengths, tokens_per_batch=tokens_per_batch, rng=np.random.default_rng(0)):
        batch = collate(split, indices).to(runtime.device)
        with runtime.autocast():
            total += batch_loss(model, batch, label_smoothing=0.0).nll
    model.train(was_training)
    return float(total) / float((split.tgt.lengths + 1).sum())
