"""The training loop: a generator of step reports.

Owns everything that changes while training, and saves and restores it; knows no files, logs or
scores.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice, pairwise

import numpy as np
import torch
from torch import Tensor
from torch.profiler import record_function

from mt_cli.config.schema import TrainingConfig
from mt_cli.data.batching import Batch, BatchShape, PlannedBatch, collate, plan_epoch, sent
from mt_cli.data.prepared import EncodedSplit
from mt_cli.errors import MEMORY, shortage
from mt_cli.machine.device import Runtime, release_memory, seed_everything
from mt_cli.model.translation_model import TranslationModel
from mt_cli.training.distributed import World
from mt_cli.training.graphs import Graphs
from mt_cli.training.loss import batch_loss
from mt_cli.training.optimiser import Optimiser, learning_rate
from mt_cli.training.precision import LossScale, WorkingCopy, gradients

Update = list[PlannedBatch]
"""The batches of one update."""


@dataclass(frozen=True)
class StepReport:
    """Report of one update. It holds tensors until they are logged, so that no step waits for the
    device.
    """

    step: int
    """From 1."""
    epoch: int
    """From 1."""
    is_end_of_epoch: bool
    lr: float
    tgt_tokens: int
    loss: Tensor
    """Scalar: what is minimised, per target token."""
    nll: Tensor
    """Scalar: negative log-likelihood per target token, in nats."""
    grad_norm: Tensor
    """Scalar: before clipping."""
    skipped: Tensor
    """Scalar: 1 if the loss or the gradient was not finite, so that nothing was updated; 0
    otherwise.
    """


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
        """With a `world` of several processes, each takes its shard of every batch."""
        self.model = model
        self.progress = Progress()
        self._split = split
        self._config = config
        self._runtime = runtime
        self._seed = seed
        self._world = world or World()
        self._optimiser = Optimiser(
            model,
            optimizer=config.optimizer,
            betas=config.betas,
            eps=config.eps,
            weight_decay=config.weight_decay,
            products_in=runtime.dtype,
        )
        self._working = WorkingCopy(model, runtime.dtype)
        self._scale = LossScale(runtime.dtype, device=runtime.device)
        is_simple = config.accumulation == 1 and self._world.size == 1 and model.output.bias is None
        self._graphs = Graphs(self._whole_update) if runtime.graphs and is_simple else None
        self._micro_batches = MicroBatches()
        self.shapes: set[BatchShape] = set()
        """Shapes of all batches, before they are divided among processes."""
        self.epoch_ends: list[int] = []
        """The last update of each epoch that is trained in full."""
        self.total_steps = self._count_steps()

    def run(self) -> Iterator[StepReport]:
        """Make the updates that are left, one for each report.

        Every process begins where the first stands, with its weights and its state.
        """
        progress = self.progress
        progress.step, progress.epoch, progress.update_of_epoch = (
            self._world.told(number)
            for number in (progress.step, progress.epoch, progress.update_of_epoch)
        )
        self.share()
        while progress.step < self.total_steps:
            epoch = progress.epoch + 1
            left = islice(self._updates(epoch=progress.epoch), progress.update_of_epoch, None)
            for update, following in pairwise(chain(left, [[]])):  # an empty one follows the last
                if progress.step == self.total_steps:
                    return
                is_last = not following
                report = self._update(
                    update, step=progress.step + 1, epoch=epoch, is_end_of_epoch=is_last
                )
                progress.step += 1
                progress.update_of_epoch = 0 if is_last else progress.update_of_epoch + 1
                progress.epoch = epoch if is_last else epoch - 1
                yield report
            # Already so, unless the resumed epoch has fewer updates today than when it was saved.
            progress.epoch, progress.update_of_epoch = epoch, 0

    def tensors(self) -> dict[str, Tensor]:
        """What the next update depends on besides the weights, by name: the optimiser's state, for
        one.
        """
        return {**self._optimiser.tensors(), **self._scale.tensors()}

    def restore(self, progress: Progress, tensors: Mapping[str, Tensor]) -> None:
        """Continue from a saved `progress` and the `tensors()` saved with it.

        The weights saved with them have to be in `model` already.

        Raises:
            KeyError: a tensor is missing.
            ValueError: one has another shape.
        """
        self.progress = progress
        self._optimiser.restore(tensors)
        self._scale.restore(tensors)

    @property
    def uses_graphs(self) -> bool:
        """Whether updates are replayed as CUDA graphs."""
        return self._graphs is not None

    def share(self) -> None:
        """Give the weights and the state of the first process to all."""
        self._world.share(self._everything())

    def are_alike(self) -> bool:
        """Whether all processes have the same weights and the same state."""
        return self._world.are_alike(self._everything())

    def _everything(self) -> list[Tensor]:
        return [*self.model.parameters(), *self.tensors().values()]

    def _count_steps(self) -> int:
        """Count the updates of the whole training and collect shapes; epochs differ by a few
        batches.
        """
        count = 0
        for epoch in range(self._config.max_epochs):
            for update in self._updates(epoch=epoch):
                if count == self._config.max_steps:
                    return count
                self.shapes.update(batch.shape for batch in update)
                count += 1
            self.epoch_ends.append(count)
        return count

    def _updates(self, *, epoch: int) -> Iterator[Update]:
        """The batches of each update of `epoch` (from 0); every call yields the same."""
        batches = plan_epoch(
            self._split,
            tokens_per_batch=self._config.tokens_per_batch,
            max_width=self.model.max_len,
            rng=np.random.default_rng([self._seed, epoch]),
        )
        while update := list(islice(batches, self._config.accumulation)):
            yield update

    def _update(
        self, batches: Update, *, step: int, epoch: int, is_end_of_epoch: bool
    ) -> StepReport:
        # Dividing once, by the tokens of the whole update, makes accumulation exact.
        tgt_tokens = sum(
            int((self._split.tgt.lengths_of(batch.indices) + 1).sum()) for batch in batches
        )
        shards = [batch.shard(self._world.rank, of=self._world.size) for batch in batches]
        # Dropout depends on the update, not on earlier draws, so a resumed run needs no generator
        # state.
        mixed = np.random.SeedSequence((self._seed, step, self._world.rank))
        seed = int(mixed.generate_state(1, np.uint64)[0] >> 1)
        rate = learning_rate(
            step,
            schedule=self._config.schedule,
            peak_lr=self._config.peak_lr,
            warmup_steps=self._config.num_warmup_steps(self.total_steps),
            total_steps=self.total_steps,
        )
        if not self._working.model.training:  # train() takes 0.3 ms
            self._working.model.train()
        measured = self._replay(shards, rate, tgt_tokens=tgt_tokens, seed=seed)
        if measured is None:
            sums = self._sum_gradients(shards, tgt_tokens=tgt_tokens, seed=seed)
            measured = self._finish(sums, rate)
        loss, nll, grad_norm, skipped = measured.unbind()
        loss, nll = loss / tgt_tokens, nll / tgt_tokens
        return StepReport(
            step, epoch, is_end_of_epoch, rate, tgt_tokens, loss, nll, grad_norm, skipped
        )

    def _replay(self, shards: Update, rate: float, *, tgt_tokens: int, seed: int) -> Tensor | None:
        """Make the update by CUDA graph and return what `_finish` returns.

        None: there are no graphs, or memory ran out and they are now off.
        """
        if self._graphs is None:
            return None
        seed_everything(seed)
        batch = collate(self._split, shards[0].indices, shards[0].shape).filled_up()
        numbers = sent(torch.tensor([rate, 1 / tgt_tokens]), self._runtime.device)
        try:
            return self._graphs(*batch.to(self._runtime.device).tensors, numbers)
        except (MemoryError, RuntimeError) as error:
            if shortage(error) != MEMORY:
                raise
            self._graphs = None
            self._forget_gradients()
            return None

    def _whole_update(self, *inputs: Tensor) -> Tensor:
        """What `_finish` gives for an update of one batch; what differs from the next one is in
        `inputs`.
        """
        *batch, numbers = inputs
        rate, per_token = numbers.unbind()
        self._working.refresh()
        sums = self._add_gradient(Batch(*batch), per_token=per_token, is_filled_up=True)
        return self._finish(sums, rate)

    def _finish(self, sums: Tensor, rate: float | Tensor) -> Tensor:
        """Update the weights from their gradients.

        Gives `sums` (2,), the norm of the gradient, and 1 if nothing was updated or else 0: (4,).
        """
        with record_function("update"):
            parameters = list(self.model.parameters())
            self._scale.remove_from(parameters)
            grad_norm = torch.nn.utils.clip_grad_norm_(
                parameters, self._config.clip_norm or float("inf")
            )
            # Decided on the device: one update that is not finite would spoil all weights for ever.
            # Zero times inf or NaN is NaN.
            skipped = (sums.sum() + grad_norm).mul_(0).nan_to_num_(1.0)
            self._optimiser.update(rate, skipped=skipped)
            self._scale.update(overflowed=skipped)
            return torch.cat([sums, torch.stack([grad_norm, skipped])])

    def _sum_gradients(self, shards: Update, *, tgt_tokens: int, seed: int) -> Tensor:
        """Leave the gradient of the update in the model; returns its summed loss and nll, (2,).

        `shards` are this process's; `seed` is that of the dropout.

        Where memory runs out, all of it begins anew with smaller micro-batches, because nobody
        knows how much of a gradient had been added by then.
        """
        self._working.refresh()
        while True:
            seed_everything(seed)
            sums = self._try_gradients(shards, tgt_tokens=tgt_tokens)
            if sums is not None:
                self._world.add_up([*gradients(self.model.parameters()), sums])
                return sums
            self._forget_gradients()

    def _forget_gradients(self) -> None:
        """Make room after memory has run out."""
        for model in (self.model, self._working.model):
            model.zero_grad(set_to_none=True)
        release_memory(self._runtime.device)

    def _try_gradients(self, shards: Update, *, tgt_tokens: int) -> Tensor | None:
        """Summed loss and nll of `shards`, (2,), with their gradient left in the model.

        None if memory ran out; the shard that had no room then has more micro-batches than before.
        """
        sums = torch.zeros(2, device=self._runtime.device)
        for shard in shards:
            try:
                for micro_batch in self._micro_batches.of(shard):
                    with record_function("collate"):
                        batch = collate(self._split, micro_batch.indices, micro_batch.shape)
                        batch = batch.to(self._runtime.device)
                    sums += self._add_gradient(batch, per_token=1 / tgt_tokens)
            except (MemoryError, RuntimeError) as error:
                if shortage(error) != MEMORY or not self._micro_batches.divide(shard):
                    raise
                return None
        return sums

    def _add_gradient(
        self, batch: Batch, *, per_token: float | Tensor, is_filled_up: bool = False
    ) -> Tensor:
        """Add the gradient of `batch`, times `per_token`; returns the summed loss and nll, (2,)."""
        with record_function("forward"):
            loss = batch_loss(
                self._working.model,
                batch,
                label_smoothing=self._config.label_smoothing,
                r_drop=self._config.r_drop,
                is_filled_up=is_filled_up,
            )
        with record_function("backward"):
            torch.autograd.backward(loss.minimised, self._scale.factor * per_token)
            self._working.hand_over_gradients()
        return torch.stack([loss.minimised.detach(), loss.nll])


@torch.no_grad()
def mean_nll(
    model: TranslationModel, split: EncodedSplit, *, tokens_per_batch: int, runtime: Runtime
) -> float:
    """Negative log-likelihood per target token of `split`, in nats, without dropout."""
    working = WorkingCopy(model, runtime.dtype)
    was_training = working.model.training
    working.model.eval()
    total = torch.zeros((), device=runtime.device)
    batches = plan_epoch(
        split,
        tokens_per_batch=tokens_per_batch,
        max_width=model.max_len,
        rng=np.random.default_rng(0),
    )
    for planned in batches:
        batch = collate(split, planned.indices, planned.shape).to(runtime.device)
        total += batch_loss(working.model, batch, label_smoothing=0.0).nll
    working.model.train(was_training)
    return float(total) / (len(split.tgt.ids) + len(split))


log = logging.getLogger(__name__)


class MicroBatches:
    """Into how many micro-batches the batches of a shape are divided: one, until memory has run
    out.
    """

    def __init__(self) -> None:
        self._counts: dict[BatchShape, int] = {}

    def of(self, batch: PlannedBatch) -> Iterator[PlannedBatch]:
        """The micro-batches of `batch`, which hold each of its pairs once; one at least."""
        count = self._counts.get(batch.shape, 1)
        for number in range(count):
            micro_batch = batch.shard(number, of=count)
            if number == 0 or len(micro_batch.indices):
                yield micro_batch

    def divide(self, batch: PlannedBatch) -> bool:
        """Cut batches of this shape into twice as many micro-batches; False if each has one row
        already.
        """
        count = self._counts.get(batch.shape, 1)
        if count >= batch.shape.rows:
            return False
        if not self._counts:
            log.warning(
                "out of memory: batches that do not fit are trained in parts, which is slower; "
                "lower training.tokens_per_batch"
            )
        self._counts[batch.shape] = min(2 * count, batch.shape.rows)
        return True
