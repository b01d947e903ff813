"""Validation while training: loss, and BLEU through the very Translator that users get.

Knows the validation split and the model; never decides what follows from a score.
"""

import logging
from dataclasses import dataclass, replace

import numpy as np

from mt_cli.artefacts.prepared import Prepared
from mt_cli.artefacts.run import Run
from mt_cli.config import Config
from mt_cli.data.split import EncodedSplit, Sentences
from mt_cli.machine.device import Runtime
from mt_cli.machine.progress import ProgressDisplay
from mt_cli.model.translation_model import TranslationModel
from mt_cli.stages.train.samples import Sample
from mt_cli.training.trainer import mean_nll
from mt_cli.translation.scoring import Score, score_bleu
from mt_cli.translation.translator import Translator

log = logging.getLogger(__name__)

NUM_SAMPLES = 3


@dataclass(frozen=True)
class Validation:
    """What the validation split says of the model after `step` updates."""

    step: int
    nll: float
    """Negative log-likelihood per target token, in nats."""
    bleu: Score
    hyps: list[str]
    """The translation of each source."""
    samples: list[Sample]
    """A few sources with their translations and references."""

    def as_json(self) -> dict[str, object]:
        """The form that metrics.jsonl keeps."""
        return {
            "step": self.step,
            "nll": self.nll,
            "bleu": self.bleu.score,
            "bleu_signature": self.bleu.signature,
        }


class Validator:
    """Scores a model that is being trained on the `val` split."""

    def __init__(
        self, model: TranslationModel, run: Run, prepared: Prepared, config: Config, *, runtime: Runtime
    ) -> None:
        self._model = model
        self._config = config
        self._runtime = replace(runtime, precision=config.decoding.precision)
        self._split = _fitting(prepared.split("val"), longest=model.longest_sentence)
        self.sources = prepared.lines("val", "src")
        self._refs = prepared.lines("val", "tgt")
        # Quiet: `_fitting` has warned of long pairs, and each validation would warn of every one again.
        self._translator = Translator.of_model(
            _cached_twin(model, run), run.tokenizers, config.decoding, runtime=self._runtime, quiet=True
        )

    def validate(self, step: int) -> Validation:
        """Score the model as it is now, after `step` updates."""
        nll = mean_nll(
            self._model,
            self._split,
            tokens_per_batch=self._config.training.tokens_per_batch,
            runtime=self._runtime,
        )
        with ProgressDisplay("validating", unit="lines", total=len(self.sources)) as progress:
            hyps = self._translator.translate(self.sources, on_progress=progress.update)
        bleu = score_bleu(hyps, self._refs, lowercase=self._config.data.lowercase)
        return Validation(step, nll, bleu, hyps, self._samples(hyps))

    @property
    def num_pairs(self) -> int:
        """Pairs that are validated on."""
        return len(self._split)

    @property
    def num_tokens(self) -> int:
        """Target tokens that are validated on, with the end of each sentence."""
        return len(self._split.tgt.ids) + len(self._split)

    def _samples(self, hyps: list[str]) -> list[Sample]:
        spread = range(0, len(hyps), max(1, len(hyps) // NUM_SAMPLES))
        return [Sample(self.sources[i], hyps[i], self._refs[i]) for i in spread][:NUM_SAMPLES]


def _cached_twin(model: TranslationModel, run: Run) -> TranslationModel:
    """The same weights, in the same memory, on the backend that decodes with a cache."""
    twin = run.build_model(backend="scratch").to(next(model.parameters()).device)
    twin.load_state_dict(model.state_dict(), assign=True)
    return twin


def _fitting(split: EncodedSplit, *, longest: int) -> EncodedSplit:
    """`split` with each sentence cut to its first `longest` ids; no pair is left out."""
    num_cut = int((np.maximum(split.src.lengths, split.tgt.lengths) > longest).sum())
    if num_cut == 0:
        return split
    log.warning(
        "%d of %d validation pairs are longer than the model's %d tokens; the loss counts no more of them",
        num_cut,
        len(split),
        longest,
    )
    return EncodedSplit(_truncated(split.src, longest), _truncated(split.tgt, longest))


def _truncated(sentences: Sentences, longest: int) -> Sentences:
    """The first `longest` ids of each sentence."""
    lengths = sentences.lengths
    places = np.arange(lengths.sum()) - np.repeat(sentences.offsets[:-1], lengths)
    offsets = np.concatenate((np.zeros(1, np.int64), np.minimum(lengths, longest).cumsum()))
    return Sentences(sentences.ids[places < longest], offsets)
