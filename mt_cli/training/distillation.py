"""Word-level distillation: part of each label is what trained models, the teachers, predict there.

Hinton et al. (2015); for translation, Kim and Rush (2016), 3.1.
"""

from collections.abc import Sequence

import torch

from mt_cli.data.batching import Batch
from mt_cli.machine.device import Runtime
from mt_cli.model.translation_model import TranslationModel
from mt_cli.training.loss import TeacherLabels


class Teachers:
    """Trained models that read what the student reads, without dropout. There may be none."""

    def __init__(
        self, models: Sequence[TranslationModel], *, share: float, runtime: Runtime
    ) -> None:
        """`share` of each label is the mean of the models' predicted probabilities."""
        self._share = share
        self._models = []
        self._weights = []
        for model in models:
            model.to(runtime.device).compute_in(runtime.dtype).requires_grad_(False)
            self._models.append(model.eval())
            self._weights.append(model.output.weight.to(runtime.dtype))

    @torch.no_grad()
    def read(self, batch: Batch) -> TeacherLabels | None:
        """What they predict for `batch`, teacher-forced; None where there are none."""
        if not self._models:
            return None
        hidden = []
        for model in self._models:
            states = model.hidden(batch.src_ids, batch.tgt_in)  # (B, T, D)
            hidden.append(batch.at_real(states.flatten(0, 1)))
        biases = [model.output.bias for model in self._models]
        return TeacherLabels(hidden, self._weights, biases, share=self._share)
