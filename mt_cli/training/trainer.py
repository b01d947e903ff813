"""`Trainer`: the updates of a training, and all state that changes during training.

`Trainer._update` is one update, `Trainer.run` yields one after the other, and `CudaGraphs` replays
them. Letters: B, S, T as in `batching`.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from mt_cli.config.schema import TrainingConfig
from mt_cli.data.batching import Batch, PlannedBatch, collate, epoch_size, plan_epoch, to_device
from mt_cli.data.encoded import EncodedSplit
from mt_cli.machine.device import Runtime, seed_dropout
from mt_cli.model.model import TranslationModel
from mt_cli.training.distributed import World
from mt_cli.training.loss import Teachers, batch_loss
from mt_cli.training.optimizer import LossScale, Optimizer, WorkingCopy, gradients, learning_rate

log = logging.getLogger(__name__)
ENOUGH_PAIRS = 1 << 20
"""Pairs after which the updates per epoch are extrapolated; counting takes about half a second."""


@dataclass(frozen=True)
class StepReport:
    """Report of one update. Its tensors are read only when logged: no step waits for the device."""

    step: int
    """From 1."""
    epoch: int
    """From 1."""
    is_end_of_epoch: bool
    lr: float
    tgt_tokens: int
    loss: Tensor
    """Scalar: what is minimized, per target token."""
    nll: Tensor
    """Scalar: negative log-likelihood per target token, in nats."""
    grad_norm: Tensor
    """Scalar: before clipping."""
    skipped: Tensor
    """Scalar: 1 if the loss or the gradient was not finite and nothing was updated, else 0."""


class Trainer:
    """Trains `model` on `split` by `config`; iterate over `run()`."""

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
        """With several processes in `world`, each takes its shard of every batch."""
        self.model = model
        self.step = 0
        """Updates made so far; it alone determines the next batch."""
        self._split = split
        self._config = config
        self._runtime = runtime
        self._seed = seed
        self._world = world or World()
        self._parameters = list(model.parameters())
        self._optimizer = Optimizer(model, config, matmul_dtype=runtime.dtype)
        self._working = WorkingCopy(model, runtime.dtype)
        self._teachers: Teachers | None = None
        self._scale = LossScale(runtime.dtype, device=runtime.device)

        self.uses_graphs = runtime.graphs and self._has_graphs()
        """Whether updates are replayed as CUDA graphs."""
        self._make_update: UpdateFunction = self._update
        if self.uses_graphs:
            self._make_update = CudaGraphs(self._update, start_over=self._start_over)

        self.num_pairs = len(split)
        self.steps_per_epoch = self._count_steps()
        """Number of updates, the same in every epoch."""
        self.total_steps = config.max_epochs * self.steps_per_epoch
        if config.max_steps is not None:
            self.total_steps = min(self.total_steps, config.max_steps)

    def learn_from(self, teachers: Sequence[TranslationModel]) -> None:
        """Use the predictions of `teachers` as part of the labels from now on."""
        share = self._config.distil_share
        self._teachers = Teachers(teachers, share=share, runtime=self._runtime)

    def run(self) -> Iterator[StepReport]:
        """Make the remaining updates, and yield a report after each.

        All processes start with the step, the weights and the state of the first one.
        """
        self.step = self._world.broadcast_int(self.step)
        self._world.broadcast_([*self._parameters, *self.state_dict().values()])
        while self.step < self.total_steps:
            epoch, done = divmod(self.step, self.steps_per_epoch)
            end = min(self.steps_per_epoch, done + self.total_steps - self.step)
            for batches in islice(self._planned_updates(epoch=epoch), done, end):
                report = self._collate_and_update(batches, epoch=epoch + 1)
                self.step = report.step
                yield report

    @property
    def epoch_of_last_update(self) -> int:
        """From 1; 0 before the first update."""
        return -(-self.step // self.steps_per_epoch)

    def rate_at(self, step: int) -> float:
        """The learning rate of update `step`."""
        return learning_rate(
            step,
            schedule=self._config.schedule,
            peak_lr=self._config.peak_lr,
            warmup_steps=self._config.num_warmup_steps(self.total_steps),
            total_steps=self.total_steps,
        )

    def _update(
        self, batches: Sequence[Batch], lr: float | Tensor, per_token: float | Tensor
    ) -> Tensor:
        """Make one update: forward and backward of each batch, then all-reduce, clip and step.

        `per_token` is one over the number of target tokens of the whole update, in all batches of
        all processes. Returns (4,): the summed loss and nll, the norm of the gradient before it is
        clipped, and 1 if the update was skipped or else 0.
        """
        self._working.copy_weights_from_master()
        sums = torch.zeros(2, device=self._runtime.device)
        for batch in batches:
            loss = batch_loss(
                self._working.model,
                batch,
                label_smoothing=self._config.label_smoothing,
                r_drop=self._config.r_drop,
                teachers=self._teachers,
            )
            # Dividing by the tokens of the whole update makes accumulation exact.
            torch.autograd.backward(loss.minimized, self._scale.factor * per_token)
            self._working.add_gradients_to_master()
            sums += torch.stack([loss.minimized.detach(), loss.nll])
        self._world.all_reduce([*gradients(self._parameters), sums])
        self._scale.unscale_(self._parameters)
        grad_norm = clip_grad_norm_(self._parameters, self._config.clip_norm or float("inf"))
        # A single non-finite update would ruin the weights. The device decides, so the host does
        # not wait: zero times inf or NaN is NaN.
        skipped = (sums.sum() + grad_norm).mul_(0).nan_to_num_(1.0)
        self._optimizer.step(lr, skipped=skipped)
        self._scale.update(overflowed=skipped)
        return torch.cat([sums, torch.stack([grad_norm, skipped])])

    def _collate_and_update(self, planned: Sequence[PlannedBatch], *, epoch: int) -> StepReport:
        """Collate this process's shards of the `planned` batches, update, and report."""
        step = self.step + 1
        lr = self.rate_at(step)
        tgt_tokens = 0
        batches = []
        for of_all in planned:
            tgt_tokens += int((self._split.tgt.lengths_of(of_all.indices) + 1).sum())
            shard = of_all.shard(self._world.rank, of=self._world.size)
            batch = collate(self._split, shard.indices, shard.shape)
            batches.append(batch.to(self._runtime.device))
        if not self._working.model.training:  # train() takes 0.3 ms
            self._working.model.train()
        self._seed_dropout()
        with self._runtime.attention():
            measured = self._make_update(batches, lr, 1 / tgt_tokens)
        loss, nll, grad_norm, skipped = measured.unbind()
        return StepReport(
            step=step,
            epoch=epoch,
            is_end_of_epoch=step % self.steps_per_epoch == 0,
            lr=lr,
            tgt_tokens=tgt_tokens,
            loss=loss / tgt_tokens,
            nll=nll / tgt_tokens,
            grad_norm=grad_norm,
            skipped=skipped,
        )

    def _seed_dropout(self) -> None:
        """Seed dropout by the update, so that resuming needs no generator state."""
        entropy = (self._seed, self.step + 1, self._world.rank)
        seed = np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0] >> np.uint64(1)
        seed_dropout(int(seed))

    def _start_over(self) -> None:
        """Clean up after a failed capture."""
        for model in (self.model, self._working.model):
            model.zero_grad(set_to_none=True)
        self._seed_dropout()

    def _has_graphs(self) -> bool:
        """Whether graphs are possible: one batch per update, one process, targets can be padded."""
        is_one_batch = self._config.accumulation == 1 and self._world.size == 1
        return is_one_batch and self.model.output.bias is None

    # Saving and restoring

    def state_dict(self) -> dict[str, Tensor]:
        """The state besides the weights that the next update depends on: the optimizer's."""
        return {**self._optimizer.state_dict(), **self._scale.state_dict()}

    def restore(self, step: int, tensors: Mapping[str, Tensor]) -> None:
        """Continue after update `step` with the `state_dict()` saved then.

        `model` must already have the weights saved with it.

        Raises:
            KeyError: a tensor is missing.
            ValueError: a tensor has another shape.
        """
        self.step = step
        self._optimizer.load_state_dict(tensors)
        self._scale.load_state_dict(tensors)

    # Planning batches

    def _planned_updates(self, *, epoch: int) -> Iterator[list[PlannedBatch]]:
        """The batches of each update of `epoch` (from 0), repeated forever; deterministic.

        The plans of epochs differ by a few batches, but every epoch has the same number of updates:
        a longer plan is cut, and a shorter one starts again. So the total number of updates is
        known before the first one.
        """
        while True:
            batches = plan_epoch(
                self._split,
                tokens_per_batch=self._config.tokens_per_batch,
                max_width=self.model.max_len,
                rng=np.random.default_rng([self._seed, epoch]),
            )
            while update := list(islice(batches, self._config.accumulation)):
                yield update

    def _count_steps(self) -> int:
        """Number of updates in the first epoch's plan; extrapolated for a large corpus."""
        size = epoch_size(self._split)
        num_steps = 0
        num_pairs = 0
        updates = self._planned_updates(epoch=0)
        while num_pairs < min(size, ENOUGH_PAIRS):
            num_pairs += sum(len(batch.indices) for batch in next(updates))
            num_steps += 1
        return round(num_steps * size / num_pairs)


UpdateFunction = Callable[[Sequence[Batch], float | Tensor, float | Tensor], Tensor]
"""Like `Trainer._update`: takes batches, learning rate, one over the number of target tokens."""


MAX_GRAPHS = 64
"""Each graph takes memory; batches of further shapes run without one."""


class CudaGraphs:
    """Replays an update whose work on the device depends only on shapes and values of tensors.

    The first batch of a shape runs as usual, which also prepares the kernels. The second one is
    captured, and this and all later ones are replayed. After a failed capture, further shapes run
    as usual.
    """

    def __init__(self, update: UpdateFunction, *, start_over: Callable[[], None]) -> None:
        """`start_over` cleans up after a failed `update`."""
        self._update = update
        self._start_over = start_over
        self._can_capture = True
        self._seen: set[tuple[torch.Size, ...]] = set()
        self._captured: dict[tuple[torch.Size, ...], CapturedUpdate] = {}

    def __call__(
        self, batches: Sequence[Batch], lr: float | Tensor, per_token: float | Tensor
    ) -> Tensor:
        """Make the update; one of several batches is not captured."""
        if len(batches) != 1:
            return self._update(batches, lr, per_token)
        batch = batches[0].with_targets_padded()
        numbers = to_device(torch.tensor([lr, per_token]), batch.src_ids.device)
        inputs = [*batch.tensors, numbers]
        shapes = tuple(tensor.shape for tensor in inputs)
        if shapes in self._seen and shapes not in self._captured and self._can_capture:
            self._try_to_capture(shapes, inputs)
        self._seen.add(shapes)
        return self._captured.get(shapes, self._compute)(inputs)

    def _compute(self, inputs: Sequence[Tensor]) -> Tensor:
        src_ids, tgt_ids, tgt_places, targets, numbers = inputs
        lr, per_token = numbers.unbind()
        batch = Batch(src_ids, tgt_ids, tgt_places, targets, has_spare_targets=True)
        return self._update([batch], lr, per_token)

    def _try_to_capture(self, shapes: tuple[torch.Size, ...], inputs: Sequence[Tensor]) -> None:
        """Capture the update on `inputs`; nothing is computed."""
        stream = torch.cuda.current_stream()
        others = list(self._captured.values())
        try:
            self._captured[shapes] = CapturedUpdate(
                self._compute, inputs, pool=others[0].pool if others else None
            )
            self._can_capture = len(self._captured) < MAX_GRAPHS
        except (MemoryError, RuntimeError) as error:
            self._can_capture = False
            reason = next(iter(str(error).splitlines()), type(error).__name__)
            log.warning("stopped capturing CUDA graphs, training will be slower: %s", reason)
            torch.cuda.set_stream(stream)  # a failed capture may leave its own stream set
            self._start_over()


class CapturedUpdate:
    """A CUDA graph of an update.

    Graphs run one after the other and no output outlives the next one, so all of them can share the
    memory `pool` of the first.
    """

    def __init__(
        self,
        compute: Callable[[Sequence[Tensor]], Tensor],
        inputs: Sequence[Tensor],
        *,
        pool: Any,  # noqa: ANN401 — PyTorch's own type is private
    ) -> None:
        self._graph = torch.cuda.CUDAGraph()
        self._inputs = [each.clone() for each in inputs]
        with torch.cuda.graph(self._graph, pool=pool):
            self._output = compute(self._inputs)
        self.pool = self._graph.pool()

    def __call__(self, inputs: Sequence[Tensor]) -> Tensor:
        """Replay the update on other inputs of the same shapes."""
        for place, value in zip(self._inputs, inputs, strict=True):
            place.copy_(value)
        self._graph.replay()
        return self._output.clone()  # before the next replay overwrites it
