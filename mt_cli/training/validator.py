"""Validation during training: loss on `val`, and BLEU with the same Translator that users get."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from mt_cli.config.schema import VAL
from mt_cli.data.batching import collate, plan_epoch
from mt_cli.data.encoded import EncodedSplit, Sentences
from mt_cli.data.prepared import Prepared
from mt_cli.evaluation.scoring import Score, score_bleu
from mt_cli.machine.device import Runtime
from mt_cli.model.model import TranslationModel
from mt_cli.runs.run import Run
from mt_cli.training.loss import batch_loss
from mt_cli.training.optimizer import WorkingCopy
from mt_cli.translation.options import forbidden_ids
from mt_cli.translation.torch_engine import TorchEngine
from mt_cli.translation.translator import OnProgress, Translator

log = logging.getLogger(__name__)

NUM_SAMPLES = 2
"""Number of translations shown after a validation."""


@dataclass(frozen=True)
class Validation:
    """The model's scores on the validation split after `step` updates."""

    step: int
    nll: float
    """Negative log-likelihood per target token, in nats."""
    bleu: Score
    hyps: list[str]
    """The translation of each source."""


class Validator:
    """Validates a model during training."""

    def __init__(
        self, model: TranslationModel, run: Run, prepared: Prepared, *, runtime: Runtime
    ) -> None:
        self._model = model
        self._config = run.config
        self._runtime = replace(runtime, precision=run.config.decoding.precision)
        self._split = truncated(prepared.split(VAL), longest=model.longest_sentence)
        self.sources = prepared.lines(VAL, "src")
        self.refs = prepared.lines(VAL, "tgt")
        distance = max(1, len(self.sources) // NUM_SAMPLES)
        self.samples = range(0, len(self.sources), distance)[:NUM_SAMPLES]
        """Indices of the sources whose translations are shown."""
        perfect = self._score(self.refs)
        self.bleu_signature = perfect.signature
        self.has_bleu = perfect.score > 0
        """Whether BLEU is usable; it is always 0 if all references have fewer than four words."""
        self.best_by = run.config.training.best_by if self.has_bleu else "loss"
        """The measure that chooses the best checkpoint."""
        if self.best_by != run.config.training.best_by:
            log.warning(
                "the val references are too short for BLEU, it is 0 even for the references "
                "themselves; choosing the best checkpoint by loss instead"
            )
        engine = TorchEngine(
            model,
            run.config.decoding,
            runtime=self._runtime,
            forbidden_ids=forbidden_ids(run.tokenizers, run.config.decoding),
            lengths=run.manifest.lengths,
        )
        self._translator = Translator(engine, run.tokenizers)

    def validate(self, step: int, *, on_progress: OnProgress | None = None) -> Validation:
        """Score the model as it is now, after `step` updates."""
        nll = mean_nll(
            self._model,
            self._split,
            tokens_per_batch=self._config.training.tokens_per_batch,
            runtime=self._runtime,
        )
        hyps = self._translator.translate(self.sources, on_progress=on_progress)
        return Validation(step, nll, self._score(hyps), hyps)

    def _score(self, hyps: Sequence[str]) -> Score:
        data = self._config.data
        return score_bleu(hyps, self.refs, lang=data.tgt_lang, lowercase=data.lowercase)


@torch.no_grad()
def mean_nll(
    model: TranslationModel, split: EncodedSplit, *, tokens_per_batch: int, runtime: Runtime
) -> float:
    """Negative log-likelihood per target token of `split`, in nats, without dropout."""
    working = WorkingCopy(model, runtime.dtype)
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
        with runtime.attention():
            total += batch_loss(working.model, batch, label_smoothing=0.0).nll
    return float(total) / (split.tgt.num_ids + len(split))


def truncated(split: EncodedSplit, *, longest: int) -> EncodedSplit:
    """`split` with each sentence cut to its first `longest` ids; no pair is dropped."""
    lengths = np.maximum(split.src.lengths, split.tgt.lengths)
    num_cut = int((lengths > longest).sum())
    if num_cut == 0:
        return split
    log.warning(
        "%d of %d validation pairs are longer than the model's limit of %d tokens; the loss "
        "ignores the tokens beyond it",
        num_cut,
        len(split),
        longest,
    )
    return EncodedSplit(_truncated_side(split.src, longest), _truncated_side(split.tgt, longest))


def _truncated_side(side: Sentences, longest: int) -> Sentences:
    return Sentences.of([side[i][:longest].tolist() for i in range(len(side))])
