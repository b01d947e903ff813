"""What is said before the first update: what is trained, on what, and how much of it there is.

Knows facts and lines; measures nothing itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from mt_cli.config import Config
from mt_cli.machine.device import Runtime
from mt_cli.machine.hardware import describe_processor
from mt_cli.machine.world import World
from mt_cli.training.trainer import Trainer
from mt_cli.translation.scoring import bleu_signature

NAME_COLUMN = 10
"""Width of the names of facts."""


@dataclass(frozen=True)
class Opening:
    """The facts of a session that is about to begin."""

    run_folder: Path
    config_path: Path
    config: Config
    runtime: Runtime
    world: World
    trainer: Trainer
    num_train: int
    """Pairs to train on."""
    num_val: int
    """Pairs to validate on."""

    def lines(self) -> list[str]:
        """A line for each fact, in two columns."""
        num_parameters = sum(parameter.numel() for parameter in self.trainer.model.parameters())
        return in_columns(
            {
                "run": f"{self.run_folder}{self._resumed()}",
                "config": str(self.config_path),
                "device": self._device(),
                "precision": self._precision(),
                "threads": f"{torch.get_num_threads()}{self._processes()}",
                "pairs": f"{self.num_train:,} to train on, {self.num_val:,} to validate on",
                "parameters": f"{num_parameters:,}",
                "updates": self._updates(),
                "batches": self._batches(),
                "BLEU": bleu_signature(lowercase=self.config.data.lowercase),
            }
        )

    def _resumed(self) -> str:
        step = self.trainer.progress.step
        return f", resumed after update {step:,}" if step else ""

    def _device(self) -> str:
        device = self.runtime.device
        if device.type == "cuda":
            return f"{device}: {torch.cuda.get_device_name(device)}"
        return f"{device}: {describe_processor()}"

    def _precision(self) -> str:
        training, decoding = self.runtime.precision, self.config.decoding.precision
        return training if training == decoding else f"{training}, validation in {decoding}"

    def _processes(self) -> str:
        return "" if self.world.size == 1 else f" in each of {self.world.size} processes"

    def _updates(self) -> str:
        total, ends = self.trainer.total_steps, self.trainer.epoch_ends
        if not ends:
            return f"{total:,}, less than an epoch"
        every = self.config.training.validate_every
        rhythm = f"every {every:,}" if every else "after each epoch"
        return f"{total:,}, {ends[0]:,} in an epoch; validation {rhythm}"

    def _batches(self) -> str:
        training = self.config.training
        summed = "" if training.accumulation == 1 else f", {training.accumulation} to an update"
        shapes = f"{len(self.trainer.shapes)} shapes"
        return f"{training.tokens_per_batch:,} tokens a side at most{summed}, in {shapes}"


def in_columns(facts: Mapping[str, str]) -> list[str]:
    """A line for each of `facts`, its name in the first column."""
    return [f"{name:<{NAME_COLUMN}}  {fact}" for name, fact in facts.items()]
