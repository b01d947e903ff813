"""`CTranslate2Engine`: search with a model that `export` wrote for CTranslate2."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mt_cli.config.schema import DecodingConfig
from mt_cli.decoding import Hyp, Ids, OnDone
from mt_cli.errors import DataError, ResourceError, UsageError
from mt_cli.machine.failures import MEMORY, shortage
from mt_cli.machine.process import import_extra, usable_cores
from mt_cli.runs.run import Run
from mt_cli.translation.engine import CrossAttention, Engine
from mt_cli.translation.options import DecodingOptions, forbidden_ids

if TYPE_CHECKING:  # an optional package
    from ctranslate2 import AsyncTranslationResult, TranslationResult

MAX_SENTENCES = {"cpu": 64, "cuda": 128}
LIMITS_TOGETHER = 32
"""In greedy search, sentences share a batch if their length limits, divided by this, are equal."""
PATIENCE = 2.0
"""Finished hypotheses that end a search with length penalty, in beam sizes; 1 costs 0.3 BLEU."""
MIN_TOP_P = 1e-6
"""Replaces a top_p of 0, which CTranslate2 refuses; both draw only the likeliest token."""


class CTranslate2Engine(Engine):
    """Searches with an exported model, by the same rules and limits as `TorchEngine`.

    CTranslate2 runs the beam search, and its hypotheses are then rescored: CTranslate2's scores
    redistribute the probability of forbidden tokens, ours are the model's own.
    """

    def __init__(self, model: Run, config: DecodingConfig, options: DecodingOptions) -> None:
        """Search with the exported `model` by `config`, on the device in `options`."""
        _check_supported(model, options)
        ctranslate2 = import_extra("ctranslate2", extra="export", needed_by="an exported model")
        has_cuda = options.device != "cpu" and ctranslate2.get_cuda_device_count() > 0
        if options.device in ("cuda", "mps") and not has_cuda:
            raise ResourceError("no CUDA device found; use --device cpu or --device auto")
        super().__init__(
            config,
            device="cuda" if has_cuda else "cpu",
            longest_sentence=model.config.model.longest_sentence,
            lengths=model.manifest.lengths,
        )
        self._src_tokens = model.tokenizers.src.entries
        self._tgt_tokens = model.tokenizers.tgt.entries
        self._forbidden = [[self._tgt_tokens[i]] for i in forbidden_ids(model.tokenizers, config)]
        self._tgt_ids = {token: i for i, token in enumerate(self._tgt_tokens)}
        self._batch_size = config.batch_size or MAX_SENTENCES[self.device]
        # One thread per batch is faster than several threads on one batch, even for one short
        # sentence. Sampling uses a single thread, so that results do not depend on timing.
        num_workers = options.threads or usable_cores()
        if config.temperature or has_cuda:
            num_workers = 1
        if config.temperature:
            ctranslate2.set_random_seed(config.seed % 2**32)
        with self._failures_explained(loaded=model.folder):
            self._engine = ctranslate2.Translator(
                str(model.folder), device=self.device, inter_threads=num_workers, intra_threads=1
            )

    def close(self) -> None:
        """See `Engine`."""
        self._engine.unload_model()

    def search(
        self,
        sources: Sequence[Ids],
        *,
        prefixes: Sequence[Ids] = (),
        n_best: int = 1,
        is_scored: bool = True,
        on_done: OnDone | None = None,
    ) -> list[list[Hyp]]:
        """See `Engine`."""
        config = self.config
        prefixes = prefixes or [()] * len(sources)
        if config.beam_size == 1 and not config.temperature and not is_scored:
            # Greedy search never looks ahead, so cutting at the sentence's own limit gives the
            # same result as stopping there.
            results = self._in_batches(
                sources, prefixes, limits_together=LIMITS_TOGETHER, on_done=on_done
            )
            found = []
            for ids, prefix, result in zip(sources, prefixes, results, strict=True):
                hyp = self._ids(result.hypotheses[0])[: self.limit(len(ids), len(prefix))]
                found.append([Hyp(hyp, 0.0, 0.0)])
            return found
        num_hyps = n_best
        if config.length_penalty and not config.temperature:
            # All beams: the one that CTranslate2 ranks last may be the best by our penalty.
            num_hyps = config.beam_size
        results = self._in_batches(sources, prefixes, num_hyps=num_hyps, on_done=on_done)
        src_ids: list[Ids] = []
        hyps: list[list[int]] = []
        prefix_lengths = []
        for ids, prefix, result in zip(sources, prefixes, results, strict=True):
            for tokens in result.hypotheses:
                src_ids.append(ids)
                hyps.append(self._ids(tokens))
                prefix_lengths.append(len(prefix))
        scored = iter(self.scored(src_ids, hyps, prefix_lengths))
        ranked = []
        for result in results:
            of_source = [next(scored) for _ in result.hypotheses]
            ranked.append(sorted(of_source, key=lambda hyp: -hyp.score)[:n_best])
        return ranked

    def token_log_probs(self, sources: Sequence[Ids], hyps: Sequence[Ids]) -> list[list[float]]:
        """See `Engine`."""
        with self._failures_explained():
            found = self._engine.score_batch(
                [_named(ids, self._src_tokens) for ids in sources],
                [_named(hyp, self._tgt_tokens) for hyp in hyps],
                max_batch_size=self._batch_size,
                max_input_length=self.longest_sentence + 1,
            )
        return [result.log_probs for result in found]

    def cross_attention(self, sources: Sequence[Ids], hyps: Sequence[Ids]) -> list[CrossAttention]:
        """See `Engine`; the exported weights define which layer and heads are used."""
        found = []
        for src, hyp in zip(sources, hyps, strict=True):
            weights = np.empty((0, len(src)), np.float32)
            if hyp:
                with self._failures_explained():
                    (pending,) = self._translate(
                        [src],
                        target_prefix=[_named(hyp, self._tgt_tokens)],
                        beam_size=1,
                        min_decoding_length=0,
                        max_decoding_length=len(hyp),
                        return_attention=True,
                    )
                    weights = np.array(pending.result().attention[0], np.float32)[:, : len(src)]
            found.append(weights)
        return found

    def _translate(
        self, sources: Sequence[Ids], **options: object
    ) -> "list[AsyncTranslationResult]":
        """Hand `sources` to CTranslate2 as one batch."""
        pending: list[AsyncTranslationResult] = self._engine.translate_batch(
            [_named(ids, self._src_tokens) for ids in sources],
            max_batch_size=self._batch_size,
            max_input_length=self.longest_sentence + 1,
            asynchronous=True,
            **options,
        )
        return pending

    def _in_batches(
        self,
        sources: Sequence[Ids],
        prefixes: Sequence[Ids],
        *,
        num_hyps: int = 1,
        limits_together: int = 1,
        on_done: OnDone | None,
    ) -> "list[TranslationResult]":
        """The results for `sources`; sources with similar limits go to CTranslate2 together."""
        config = self.config
        drawn: dict[str, object] = {}
        if config.temperature:
            drawn = {
                "sampling_temperature": config.temperature,
                "sampling_topk": config.top_k,
                "sampling_topp": config.top_p or MIN_TOP_P,
            }
        groups: dict[int, list[int]] = {}
        limits = []
        for place, (ids, prefix) in enumerate(zip(sources, prefixes, strict=True)):
            limits.append(self.limit(len(ids), len(prefix)))
            groups.setdefault(limits[place] // limits_together, []).append(place)
        started: list[tuple[int, AsyncTranslationResult]] = []
        found: dict[int, TranslationResult] = {}
        with self._failures_explained():
            for places in groups.values():
                pending = self._translate(
                    [sources[i] for i in places],
                    target_prefix=[_named(prefixes[i], self._tgt_tokens) for i in places],
                    beam_size=1 if drawn else config.beam_size,
                    num_hypotheses=num_hyps,
                    # Without a penalty, beam search stops at the likeliest finished hypothesis.
                    length_penalty=1.0 if config.length_penalty else 0.0,
                    patience=PATIENCE if config.length_penalty else 1.0,
                    no_repeat_ngram_size=config.no_repeat_ngram,
                    min_decoding_length=0,
                    max_decoding_length=max(limits[i] for i in places),
                    suppress_sequences=self._forbidden,
                    **drawn,
                )
                started += zip(places, pending, strict=True)
            for place, result in started:
                found[place] = result.result()
                if on_done is not None:
                    on_done([place])
        return [found[place] for place in range(len(sources))]

    def _ids(self, tokens: Sequence[str]) -> list[int]:
        return [self._tgt_ids[token] for token in tokens]

    @contextmanager
    def _failures_explained(self, *, loaded: Path | None = None) -> Iterator[None]:
        """Turn failures of the GPU or of loading the folder `loaded` into errors for the user."""
        try:
            yield
        except (MemoryError, RuntimeError, ValueError, LookupError) as error:
            if shortage(error) == MEMORY:
                raise ResourceError("out of memory; lower --batch-size") from error
            if self.device == "cuda":
                raise ResourceError(f"CTranslate2 on the GPU: {error}; use --device cpu") from error
            if loaded is None or shortage(error):
                raise
            raise DataError(
                f"{loaded}: CTranslate2 cannot load this model: {error}; export it again"
            ) from error


def _named(ids: Ids, tokens: Sequence[str]) -> list[str]:
    return [tokens[i] for i in ids]


def _check_supported(model: Run, options: DecodingOptions) -> None:
    """Reject options that an exported model does not support."""
    options.checkpoints_of([model])
    if options.backend is not None:
        raise UsageError(f"{model.folder}: exported models do not support --backend; leave it out")
    assert model.manifest.exported_from is not None
    quantization = model.manifest.exported_from.quantization or "none"
    own = {"none": "fp32", "bfloat16": "bf16"}.get(quantization, quantization)
    precision = options.search.get("precision")
    if precision not in (None, own):
        raise UsageError(f"{model.folder}: was exported for {own}; leave out --precision")
