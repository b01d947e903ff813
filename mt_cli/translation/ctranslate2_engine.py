"""The other engine: search with a model that `export` wrote for CTranslate2."""

import ctypes
import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mt_cli.config.schema import DecodingConfig
from mt_cli.decoding.search import Hyp, Ids, OnDone, wu_length_penalty
from mt_cli.errors import DataError, Option, ResourceError, UsageError
from mt_cli.machine.process import shortage, usable_cores
from mt_cli.runs.run import ExportedModel
from mt_cli.translation.lines import forbidden_ids
from mt_cli.translation.options import DecodingOptions
from mt_cli.translation.searcher import CrossAttention, Engine

if TYPE_CHECKING:  # an optional package
    from ctranslate2 import AsyncTranslationResult, TranslationResult

log = logging.getLogger(__name__)
MAX_SENTENCES = {"cpu": 64, "cuda": 128}
LIMITS_TOGETHER = 32
"""Limits of greedy search that differ by less than this share a batch, which has one limit."""
PATIENCE = 2.0
"""Hypotheses that end a search with a length penalty, in beam sizes; 1 costs 0.3 BLEU."""
NO_LIBRARY = "is not found or cannot be loaded"
"""What CTranslate2 says where a library of CUDA is missing, or has another version."""
CUBLAS = "cublas64_12.dll" if sys.platform == "win32" else "libcublas.so.12"
"""What CTranslate2 loads when it first multiplies; PyTorch may bring another version."""
NO_CUBLAS = (
    f"CTranslate2 cannot load {CUBLAS}: pip install nvidia-cublas-cu12, and add the folder "
    "nvidia/cublas/lib of site-packages to LD_LIBRARY_PATH"
)
MIN_TOP_P = 1e-6
"""Stands for a top_p of 0, which CTranslate2 refuses; either draws only the likeliest token."""


def check_installed(purpose: str) -> None:
    """Make sure that CTranslate2 can be imported; `purpose` is what needs it.

    Raises:
        ResourceError: it is not installed.
    """
    try:
        import ctranslate2  # noqa: F401
    except ImportError as error:
        raise ResourceError(
            f"{purpose} needs the package ctranslate2, which cannot be imported ({error}); "
            "run: pip install 'mt_cli[export]'"
        ) from error


def has_cublas() -> bool:
    """Whether the library can be loaded with which CTranslate2 computes on a GPU."""
    try:
        ctypes.CDLL(CUBLAS)
    except OSError:
        return False
    return True


class CTranslate2Engine(Engine):
    """Searches for translations with an exported model, under the rules and limits of `Searcher`.

    CTranslate2 decides how a beam is searched. What it found is scored anew: its own scores share
    out the probability of what the rules forbid, where ours are the model's.
    """

    def __init__(
        self, model: ExportedModel, config: DecodingConfig, options: DecodingOptions
    ) -> None:
        """Search with `model` as `config` says; `options` say where, and how at random."""
        _check_supported(model, options)
        check_installed(f"{model.folder}, an exported model,")
        import ctranslate2

        has_cuda = options.device != "cpu" and ctranslate2.get_cuda_device_count() > 0
        if options.device in ("cuda", "mps") and not has_cuda:
            raise ResourceError("no CUDA device found; use ", Option("device", "cpu"), ", or auto")
        if has_cuda and not has_cublas():
            if options.device == "cuda":
                raise ResourceError(f"{NO_CUBLAS}, or use ", Option("device", "cpu"))
            log.warning("computing on the CPU: %s", NO_CUBLAS)
            has_cuda = False
        super().__init__(
            config,
            device="cuda" if has_cuda else "cpu",
            longest_sentence=model.config.model.longest_sentence,
            lengths=model.lengths,
            sampling=options.sampling,
            seed=options.seed,
        )
        self._src_tokens = model.tokenizers.src.entries
        self._tgt_tokens = model.tokenizers.tgt.entries
        self._forbidden = [[self._tgt_tokens[i]] for i in forbidden_ids(model.tokenizers, config)]
        self._tgt_ids = {token: i for i, token in enumerate(self._tgt_tokens)}
        self._batch_size = config.batch_size or MAX_SENTENCES[self.device]
        # A thread for each batch is faster than threads that share one, for a single small sentence
        # too. Sampling has one thread, so that results do not depend on timing.
        num_workers = options.threads or usable_cores()
        if options.sampling is not None or has_cuda:
            num_workers = 1
        if options.sampling is not None:
            ctranslate2.set_random_seed(options.seed % 2**32)
        with self._failures_explained("the model does not fit", loaded=model.folder):
            self._engine = ctranslate2.Translator(
                str(model.folder), device=self.device, inter_threads=num_workers, intra_threads=1
            )
        self.compute_type = str(self._engine.compute_type)
        """Such as `float32`; not every machine can compute in what the weights are stored as."""

    def greedy(self, sources: Sequence[Ids], *, on_done: OnDone | None) -> list[list[int]]:
        """What greedy search finds for each of `sources`."""
        # Greedy search never looks ahead, so cutting at the sentence's own limit equals stopping
        # there.
        results = self._in_batches(sources, limits_together=LIMITS_TOGETHER, on_done=on_done)
        hyps = []
        for ids, result in zip(sources, results, strict=True):
            hyps.append(self._ids(result.hypotheses[0])[: self.limit(len(ids))])
        return hyps

    def n_best(
        self, sources: Sequence[Ids], *, n_best: int, on_done: OnDone | None = None
    ) -> list[list[Hyp]]:
        """The `n_best` best hypotheses of each of `sources`, the best first."""
        num_hyps = n_best
        if self.config.length_penalty and self.sampling is None:
            # All beams: the one that CTranslate2 ranks last may be the first by our penalty.
            num_hyps = self.config.beam_size
        results = self._in_batches(sources, num_hyps=num_hyps, on_done=on_done)
        pairs = []
        for ids, result in zip(sources, results, strict=True):
            pairs += [(ids, tokens) for tokens in result.hypotheses]
        scored = iter(self._scored(pairs))
        ranked = []
        for result in results:
            hyps = [next(scored) for _ in result.hypotheses]
            ranked.append(sorted(hyps, key=lambda hyp: -hyp.score)[:n_best])
        return ranked

    def _scored(self, pairs: Sequence[tuple[Ids, Sequence[str]]]) -> list[Hyp]:
        """A hypothesis of each pair of a source and tokens, with its probability by the model."""
        with self._failures_explained("lower ", Option("batch_size"), f" (now {self._batch_size})"):
            found = self._engine.score_batch(
                [[self._src_tokens[i] for i in ids] for ids, _ in pairs],
                [tokens for _, tokens in pairs],
                max_batch_size=self._batch_size,
                max_input_length=self.longest_sentence + 1,
            )
        hyps = []
        for (ids, tokens), result in zip(pairs, found, strict=True):
            # The last is `</s>`, which does not end a hypothesis that reached its limit.
            log_probs = result.log_probs[: self.limit(len(ids))]
            log_prob = sum(log_probs)
            divisor = wu_length_penalty(len(log_probs), self.config.length_penalty)
            hyps.append(Hyp(self._ids(tokens), log_prob / divisor, log_prob))
        return hyps

    def cross_attention(self, sources: Sequence[Ids], hyps: Sequence[Ids]) -> list[CrossAttention]:
        """See `Engine`; which layer and heads are asked is written in the exported weights."""
        found = []
        for src, hyp in zip(sources, hyps, strict=True):
            weights = np.empty((0, len(src)), np.float32)
            if hyp:
                with self._failures_explained("the sentence does not fit"):
                    (pending,) = self._translate(
                        [src],
                        target_prefix=[[self._tgt_tokens[i] for i in hyp]],
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
            [[self._src_tokens[i] for i in ids] for ids in sources],
            max_batch_size=self._batch_size,
            max_input_length=self.longest_sentence + 1,
            asynchronous=True,
            **options,
        )
        return pending

    def _in_batches(
        self,
        sources: Sequence[Ids],
        *,
        num_hyps: int = 1,
        limits_together: int = 1,
        on_done: OnDone | None,
    ) -> "list[TranslationResult]":
        """The results for `sources`; CTranslate2 makes batches of those with like limits."""
        config = self.config
        drawn: dict[str, object] = {}
        if self.sampling is not None:
            drawn = {
                "sampling_temperature": self.sampling.temperature,
                "sampling_topk": self.sampling.top_k,
                "sampling_topp": self.sampling.top_p or MIN_TOP_P,
            }
        groups: dict[int, list[int]] = {}
        for place, ids in enumerate(sources):
            groups.setdefault(self.limit(len(ids)) // limits_together, []).append(place)
        started: list[tuple[int, AsyncTranslationResult]] = []
        found: dict[int, TranslationResult] = {}
        with self._failures_explained("lower ", Option("batch_size"), f" (now {self._batch_size})"):
            for places in groups.values():
                limit = max(self.limit(len(sources[i])) for i in places)
                pending = self._translate(
                    [sources[i] for i in places],
                    beam_size=1 if drawn else config.beam_size,
                    num_hypotheses=num_hyps,
                    # Without a penalty, its beams stop at the likeliest hypothesis that has ended.
                    length_penalty=1.0 if config.length_penalty else 0.0,
                    patience=PATIENCE if config.length_penalty else 1.0,
                    no_repeat_ngram_size=config.no_repeat_ngram,
                    min_decoding_length=min(config.min_len, limit),
                    max_decoding_length=limit,
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
    def _failures_explained(
        self, *hint: str | Option, loaded: Path | None = None
    ) -> Iterator[None]:
        """Turn what the machine lacks into a `ResourceError`; for memory, it ends with `hint`.

        What else goes wrong while a folder is `loaded` is damage to it.
        """
        try:
            yield
        except (MemoryError, RuntimeError, ValueError, LookupError) as error:
            if isinstance(error, MemoryError) or "out of memory" in str(error):
                raise ResourceError("out of memory; ", *hint) from error
            lacks_library = self.device == "cuda" and NO_LIBRARY in str(error)
            if loaded is not None and shortage(error) is None and not lacks_library:
                raise DataError(
                    f"{loaded}: CTranslate2 cannot load it: {error}; export it again"
                ) from error
            if self.device == "cpu":
                raise
            raise ResourceError(
                f"CTranslate2 cannot compute on the GPU: {error}; use ", Option("device", "cpu")
            ) from error


def _check_supported(model: ExportedModel, options: DecodingOptions) -> None:
    """Refuse options that an exported model does not have."""
    options.checkpoints_of([model])
    if options.backend is not None:
        raise UsageError(
            f"{model.folder}: an exported model has no layers of ours; leave out ",
            Option("backend"),
        )
    quantization = model.exported_from.quantization
    own = {"none": "fp32", "bfloat16": "bf16"}.get(quantization, quantization)
    precision = options.search.get("precision")
    if precision not in (None, own):
        raise UsageError(
            f"{model.folder}: exported to compute in {own}; leave out ",
            Option("precision", precision),
        )
