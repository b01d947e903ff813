"""Word-level distillation: part of each label is what trained models, the teachers, predict there.

Hinton et al. (2015); for translation, Kim and Rush (2016), 3.1.
"""

from collections.abc import Sequence

import torch

from mt_cli.data.batching import Batch
from mt_cli.machine.device import Runtime
from mt_cli.model.translation_model import TranslationModel
from mt_cli.training.loss import TeacherLabels, TeacherOutput


class Teachers:
    """Trained models that read what the student reads, without dropout."""

    def __init__(
        self, models: Sequence[TranslationModel], *, share: float, runtime: Runtime
    ) -> None:
        """Let the mean of what the `models` predict have a weight of `share` in each label."""
        self._share = share
        self._models = models
        self._weights = []
        for model in models:
            model.to(runtime.device).compute_in(runtime.dtype).requires_grad_(False).eval()
            self._weights.append(model.output.weight.to(runtime.dtype))

    @torch.no_grad()
    def labels(self, batch: Batch) -> TeacherLabels:
        """What they predict for `batch`, teacher-forced."""
        outputs = []
        for model, weight in zip(self._models, self._weights, strict=True):
            hidden = model.hidden(batch.src_ids, batch.tgt_in)  # (B, T, D)
            hidden = batch.select_targets(hidden.flatten(0, 1))
            outputs.append(TeacherOutput(hidden, weight, model.output.bias))
        return TeacherLabels(self._share, outputs)
