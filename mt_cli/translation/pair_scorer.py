"""`PairScorer`: how likely trained models find translations that somebody else has made.

Knows pairs of lines, not where they come from.
Letters: B pairs, S source length, T target length, V target vocabulary.
"""

import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from mt_cli.artefacts.run import open_runs
from mt_cli.config import Device
from mt_cli.data.batching import pad_ids
from mt_cli.machine.device import Runtime, memory_errors_explained, set_up_runtime
from mt_cli.model.translation_model import TranslationModel
from mt_cli.text.normalize import normalize
from mt_cli.text.symbols import BOS_ID, EOS_ID, PAD_ID
from mt_cli.text.tokenizer import Tokenizers
from mt_cli.translation.halving import Halving
from mt_cli.translation.options import SearchOptions, check_options

log = logging.getLogger(__name__)

TOKENS_AT_ONCE = {"cpu": 1 << 11, "cuda": 1 << 15}
"""Positions of a batch, padding included."""
LOGITS_AT_ONCE = {"cpu": 1 << 24, "cuda": 1 << 28}
"""At each position, the whole vocabulary is predicted."""

Ids = list[int]


@dataclass(frozen=True)
class PairScore:
    """What the models make of one pair."""

    log_prob: float
    """Natural logarithm of the translation's probability, `</s>` included; minus infinity if impossible."""
    num_tokens: int
    """Of the translation, `</s>` included."""

    @property
    def per_token(self) -> float:
        """Mean log-probability of a token, which does not favour short translations."""
        return self.log_prob / self.num_tokens


class PairScorer:
    """Scores pairs of lines with a trained model, or with several as an ensemble."""

    def __init__(
        self,
        models: Sequence[TranslationModel],
        tokenizers: Tokenizers,
        *,
        runtime: Runtime,
        batch_size: int = 0,
    ) -> None:
        """`batch_size` is the most pairs at once; 0 is as many as suit the device."""
        self._models = [model.to(runtime.device).eval() for model in models]
        self._longest = min(model.longest_sentence for model in models)
        self._tokenizers = tokenizers
        self._runtime = runtime
        self._batch_size = batch_size
        self._halving = Halving(runtime.device, if_single=("a single pair does not fit",))

    @classmethod
    def load(
        cls,
        run_dirs: Sequence[Path],
        *,
        checkpoint: str = "best",
        device: Device = "auto",
        threads: int = 0,
        search: SearchOptions | None = None,
    ) -> "PairScorer":
        """Scorer of the runs in `run_dirs`; of `search`, only the batch size and the precision count.

        Raises:
            UsageError: no run, no such checkpoint, an option out of range, or vocabularies that differ.
        """
        runs = open_runs(run_dirs)
        config = check_options(
            runs[0].config.decoding, search or {}, backend=None, device=device, threads=threads
        )
        runtime = set_up_runtime(device=device, precision=config.precision, threads=threads)
        with memory_errors_explained("the model does not fit"):
            models = [run.load_model(checkpoint=checkpoint, backend="scratch") for run in runs]
            return cls(models, runs[0].tokenizers, runtime=runtime, batch_size=config.batch_size)

    def score(
        self, sources: Sequence[str], targets: Sequence[str], *, first_line: int = 1, warns: bool = True
    ) -> list[PairScore]:
        """The score of each pair; `first_line` is the number of the first, for warnings.

        The translation of an empty line is empty, for certain, so any other is impossible. A pair with a side
        that is too long for the model is impossible too, and a warning says so if this `warns`.
        """
        src_ids = self._encode(sources, side="src")
        tgt_ids = self._encode(targets, side="tgt")
        scores = [PairScore(-math.inf, len(tgt) + 1) for tgt in tgt_ids]
        possible = []
        for i, (src, tgt) in enumerate(zip(src_ids, tgt_ids, strict=True)):
            if max(len(src), len(tgt)) > self._longest:
                if warns:
                    log.warning(
                        "line %d: %d and %d tokens, but the model takes %d: its score is minus infinity",
                        first_line + i, len(src), len(tgt), self._longest,
                    )  # fmt: skip
            elif src:
                possible.append(i)
            elif not tgt:
                scores[i] = PairScore(0.0, 1)
        for batch in self._batches(possible, src_ids, tgt_ids):
            found = self._halving.map(self._log_probs, [(src_ids[i], tgt_ids[i]) for i in batch])
            for i, log_prob in zip(batch, found, strict=True):
                scores[i] = PairScore(log_prob, len(tgt_ids[i]) + 1)
        return scores

    def _encode(self, lines: Sequence[str], *, side: Literal["src", "tgt"]) -> list[Ids]:
        tokenizer = self._tokenizers.src if side == "src" else self._tokenizers.tgt
        lowercase = self._tokenizers.options.lowercase
        distinct = list(dict.fromkeys(lines))  # a line may have many translations
        ids = tokenizer.encode([normalize(line, lowercase=lowercase) for line in distinct])
        by_line = dict(zip(distinct, ids, strict=True))
        return [by_line[line] for line in lines]

    def _batches(
        self, places: Sequence[int], src_ids: Sequence[Ids], tgt_ids: Sequence[Ids]
    ) -> Iterator[list[int]]:
        """`places` in batches of like lengths, the longest first."""

        def length(i: int) -> int:
            return max(len(src_ids[i]), len(tgt_ids[i])) + 1

        device = self._runtime.device.type
        positions = min(TOKENS_AT_ONCE[device], LOGITS_AT_ONCE[device] // self._tokenizers.tgt.vocab_size)
        order = sorted(places, key=length, reverse=True)
        while order:
            most = max(1, positions // length(order[0]))
            size = min(most, self._batch_size or most)
            yield order[:size]
            order = order[size:]

    def _log_probs(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[float]:
        """Log-probability of each target, teacher-forced; probabilities are the models' mean."""
        sources, targets = zip(*pairs, strict=True)
        src_ids = pad_ids([[*ids, EOS_ID] for ids in sources]).to(self._runtime.device)  # (B, S)
        tgt_in = pad_ids([[BOS_ID, *ids] for ids in targets]).to(self._runtime.device)  # (B, T)
        tgt_out = pad_ids([[*ids, EOS_ID] for ids in targets]).to(self._runtime.device)  # (B, T)
        with self._runtime.without_gradients(), self._runtime.autocast():
            of_models = torch.stack(
                [_token_log_probs(model, src_ids, tgt_in, tgt_out) for model in self._models]
            )
            # The mean of the models' probabilities, as `Ensemble` searches with.
            mean = of_models.logsumexp(0) - math.log(len(self._models))  # (B, T)
        log_probs: list[float] = mean.double().masked_fill(tgt_out == PAD_ID, 0.0).sum(-1).tolist()
        return log_probs


def _token_log_probs(model: TranslationModel, src_ids: Tensor, tgt_in: Tensor, tgt_out: Tensor) -> Tensor:
    """Log-probability (B, T) that `model` gives each token of `tgt_out` (B, T); of padding, any number."""
    logits = model(src_ids, tgt_in).float()  # (B, T, V)
    return -F.cross_entropy(logits.flatten(0, 1), tgt_out.flatten(), reduction="none").view_as(tgt_out)
