"""`TorchEngine`: search with PyTorch, in batches of similar length on every core."""

import logging
import math
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed, wait
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from mt_cli.config.schema import DecodingConfig
from mt_cli.data.batching import pad_ids
from mt_cli.data.encoded import TrainingLengths
from mt_cli.decoding import Hyp, Ids, OnDone
from mt_cli.decoding.search import Rules, beam_search, greedy_search, pad_prefixes, sample_search
from mt_cli.errors import OutOfMemoryError
from mt_cli.machine.device import Runtime
from mt_cli.machine.failures import MEMORY, shortage
from mt_cli.model.cpu_kernels import CAN_PACK, PackedLinear, transpose_weights_
from mt_cli.model.inside import attention_maps
from mt_cli.model.model import Ensemble, TranslationModel
from mt_cli.model.numpy_model import Weights
from mt_cli.runs.run import Run
from mt_cli.text import BOS_ID, EOS_ID
from mt_cli.translation.engine import CrossAttention, Engine
from mt_cli.translation.options import DecodingOptions, forbidden_ids

log = logging.getLogger(__name__)
Sentence = tuple[Ids, Ids]
"""The ids of a source, and the prefix of its translation."""
Pair = tuple[Ids, Ids]
"""The ids of a source and of a target."""
Item = TypeVar("Item")
Found = TypeVar("Found")
MAX_HYPS = {"cpu": 420, "cuda": 8192, "mps": 8192}
"""Rows of a step's matrix products: fewer leave the device idle, more overflow its caches
(measured).
"""
MAX_SENTENCES = {"cpu": 256, "cuda": 8192, "mps": 8192}
MAX_TOKENS = {"cpu": 1 << 12, "cuda": 1 << 18, "mps": 1 << 18}
"""Source tokens per batch, padding included; long sentences come in smaller batches."""
MAX_POSITIONS = {"cpu": 1 << 11, "cuda": 1 << 15, "mps": 1 << 15}
"""Positions per batch of pairs, padding included."""
MAX_LOGITS = {"cpu": 1 << 24, "cuda": 1 << 28, "mps": 1 << 28}
"""Positions times vocabulary size: each position has logits for the whole vocabulary."""
MIN_SENTENCES = 8
"""Minimum batch size when batches shrink so that every core has one."""
FEW_NUMBERS = 1 << 14
"""Numbers in all hypotheses of a step up to which one thread is as fast as several. It also does
not have to wait for threads whose cores are busy with other programs.
"""
MIN_HYPS = 64
"""Minimum rows of the last batches, which shrink so that all cores finish together."""


class TorchEngine(Engine):
    """Searches for translations with one trained model or an ensemble."""

    def __init__(
        self,
        model: TranslationModel | Ensemble,
        config: DecodingConfig,
        *,
        runtime: Runtime,
        forbidden_ids: Ids,
        lengths: TrainingLengths | None = None,
    ) -> None:
        """`forbidden_ids` are never chosen; `lengths` describes the training data."""
        super().__init__(
            config,
            device=str(runtime.device),
            longest_sentence=model.longest_sentence,
            lengths=lengths or TrainingLengths(),
        )
        self._model = model
        self._models = model.models if isinstance(model, Ensemble) else [model]
        self.runtime = runtime
        self._rules = Rules(
            BOS_ID, EOS_ID, tuple(forbidden_ids), no_repeat_ngram=config.no_repeat_ngram
        )
        self._threads = runtime.threads or torch.get_num_threads()
        # Kept, because the memory of a thread is never freed.
        self._pool = ThreadPoolExecutor(
            self._threads, initializer=torch.set_num_threads, initargs=(1,)
        )

    @classmethod
    def load(
        cls, runs: Sequence[Run], config: DecodingConfig, options: DecodingOptions
    ) -> "TorchEngine":
        """Load the checkpoints of `runs` onto the device, both given by `options`."""
        weights = []
        for run, name in zip(runs, options.checkpoints_of(runs), strict=True):
            weights.append(run.read_weights(name))
        return cls.of_weights(runs, weights, config, options)

    @classmethod
    def of_weights(
        cls,
        runs: Sequence[Run],
        weights: Sequence[Weights],
        config: DecodingConfig,
        options: DecodingOptions,
    ) -> "TorchEngine":
        """Build the models of `runs` with these `weights`, on the device of `options`."""
        runtime = options.set_up_runtime(config)
        models = []
        for run, of_run in zip(runs, weights, strict=True):
            models.append(run.model_of(of_run, backend=options.backend))
        if runtime.device.type == "cpu":
            for model in models:
                if CAN_PACK and runtime.precision == "fp32":
                    model.output = PackedLinear(model.output)
                transpose_weights_(model)
        joint = models[0] if len(models) == 1 else Ensemble(models).eval()
        joint.to(runtime.device)
        return cls(
            joint,
            config,
            runtime=runtime,
            forbidden_ids=forbidden_ids(runs[0].tokenizers, config),
            lengths=runs[0].manifest.lengths,
        )

    def close(self) -> None:
        """See `Engine`."""
        self._pool.shutdown()

    @property
    def models(self) -> Sequence[TranslationModel]:
        """See `Engine`."""
        return self._models

    def search(
        self,
        sources: Sequence[Ids],
        *,
        prefixes: Sequence[Ids] = (),
        n_best: int = 1,
        is_scored: bool = True,
        on_done: OnDone | None = None,
    ) -> list[list[Hyp]]:
        """See `Engine`. Each core works on its own batches in one thread.

        This is faster than all cores sharing a batch: small operations are not split, and no
        thread waits for another.
        """
        sentences = list(zip(sources, prefixes or [()] * len(sources), strict=True))
        hyps_each = n_best if self.config.temperature else self.config.beam_size
        workers = self._threads if self.runtime.device.type == "cpu" else 1
        num_numbers = len(sources) * hyps_each * self.models[0].output.weight.shape[1]
        runtime = replace(self.runtime, threads=1) if num_numbers <= FEW_NUMBERS else self.runtime
        batches = self._batches(sentences, hyps_each=hyps_each, workers=workers)
        work = partial(self._search_batch, n_best=n_best, is_scored=is_scored)
        found: list[list[Hyp]] = [[] for _ in sources]
        results = self._searched(batches, sentences, work, workers=workers)
        with runtime.with_threads(), closing(results):
            for batch, hyps in results:
                for i, of_source in zip(batch, hyps, strict=True):
                    found[i] = of_source
                if on_done is not None:
                    on_done(batch)
        return found

    def _searched(
        self,
        batches: Sequence[list[int]],
        sentences: Sequence[Sentence],
        work: Callable[[list[Sentence]], list[list[Hyp]]],
        *,
        workers: int,
    ) -> Generator[tuple[list[int], list[list[Hyp]]], None, None]:
        """Each batch with the result of `work`, in the order in which they finish."""
        if workers == 1 or len(batches) == 1:
            for batch in batches:
                yield batch, in_halves(work, [sentences[i] for i in batch])
            return
        futures = {
            self._pool.submit(in_halves, work, [sentences[i] for i in batch]): batch
            for batch in batches
        }
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            for future in futures:
                future.cancel()
            wait(futures)

    def _batches(
        self, sentences: Sequence[Sentence], *, hyps_each: int, workers: int
    ) -> list[list[int]]:
        """Batches of indices into `sentences`, sorted by length, which saves padding.

        The first sort key is the prefix length: up to the end of the shortest prefix, there is
        only one beam.
        """
        device = self.runtime.device.type
        largest = self.config.batch_size
        if not largest:
            largest = min(MAX_SENTENCES[device], max(1, MAX_HYPS[device] // hyps_each))
        fair_share = math.ceil(len(sentences) / workers)
        largest = min(largest, max(MIN_SENTENCES, fair_share))
        smallest = max(MIN_SENTENCES, MIN_HYPS // hyps_each)
        copies = hyps_each if self.config.temperature else 1  # each sample encodes its source
        # The longest come first, so that memory runs out early if it does.
        lengths = [(len(prefix), len(ids)) for ids, prefix in sentences]
        order = sorted(range(len(sentences)), key=lengths.__getitem__, reverse=True)
        batches: list[list[int]] = []
        while order:
            longest = max(lengths[i][1] for i in order[:largest]) + 1
            share = math.ceil(len(order) / workers)
            by_tokens = MAX_TOKENS[device] // (longest * copies)
            count = max(1, min(largest, max(smallest, share), by_tokens))
            batches.append(order[:count])
            order = order[count:]
        return batches

    def _search_batch(
        self, sentences: list[Sentence], *, n_best: int, is_scored: bool
    ) -> list[list[Hyp]]:
        """The hypotheses of one batch."""
        config = self.config
        sources = [ids for ids, _ in sentences]
        lens = [self.limit(len(ids), len(prefix)) for ids, prefix in sentences]
        if self._model.training:
            self._model.eval()
        with self.runtime.inference():
            if config.temperature:
                return self._samples(sentences, lens, n_best=n_best)
            limits = torch.tensor(lens, device=self.runtime.device)
            src_ids = self._with_ends(sources)
            prefixes = pad_prefixes([prefix for _, prefix in sentences], self.runtime.device)
            if config.beam_size == 1 and not is_scored:
                model = self._model
                found = greedy_search(
                    model.step, model.start(src_ids), limits, self._rules, prefixes=prefixes
                )
                return [[Hyp(ids, 0.0, 0.0)] for ids in found]
            return beam_search(
                self._model.step,
                self._model.start(src_ids),
                limits,
                self._rules,
                prefixes=prefixes,
                beam_size=config.beam_size,
                length_penalty=config.length_penalty,
                n_best=n_best,
            )

    def _samples(
        self, sentences: Sequence[Sentence], lens: Sequence[int], *, n_best: int
    ) -> list[list[Hyp]]:
        """`n_best` independent samples of each of `sentences`, the highest score first."""
        repeated = [sentence for sentence in sentences for _ in range(n_best)]
        draws = []
        for place, (ids, _) in enumerate(repeated):
            # Depends on seed and sentence only, not on the batch or other lines.
            rng = np.random.default_rng((self.config.seed, place % n_best, *ids))
            draws.append(rng.random(max(lens), dtype=np.float32))
        limits = [each for each in lens for _ in range(n_best)]
        hyps = sample_search(
            self._model.step,
            self._model.start(self._with_ends([ids for ids, _ in repeated])),
            torch.from_numpy(np.stack(draws)).to(self.runtime.device),
            torch.tensor(limits, device=self.runtime.device),
            self._rules,
            prefixes=pad_prefixes([prefix for _, prefix in repeated], self.runtime.device),
            temperature=self.config.temperature,
            top_k=self.config.top_k,
            top_p=self.config.top_p,
            length_penalty=self.config.length_penalty,
        )
        ranked = []
        for begin in range(0, len(hyps), n_best):
            samples = hyps[begin : begin + n_best]
            ranked.append(sorted(samples, key=lambda hyp: -hyp.score))
        return ranked

    def cross_attention(self, sources: Sequence[Ids], hyps: Sequence[Ids]) -> list[CrossAttention]:
        """See `Engine`."""
        self.models[0].eval()
        with self.runtime.with_threads():
            return self._of_pairs(self._cross_attention, sources, hyps)

    def token_log_probs(self, sources: Sequence[Ids], hyps: Sequence[Ids]) -> list[list[float]]:
        """See `Engine`."""
        return self._of_pairs(self._token_log_probs, sources, hyps)

    def _of_pairs(
        self,
        work: Callable[[list[Pair]], list[Found]],
        sources: Sequence[Ids],
        hyps: Sequence[Ids],
    ) -> list[Found]:
        """The result of `work` for each pair of source and hypothesis.

        Batches hold pairs of similar length; the longest come first.
        """
        pairs = list(zip(sources, hyps, strict=True))
        lengths = [max(len(src), len(hyp)) + 1 for src, hyp in pairs]
        device = self.runtime.device.type
        vocab_size = self.models[0].output.weight.shape[0]
        positions = min(MAX_POSITIONS[device], MAX_LOGITS[device] // vocab_size)
        order = sorted(range(len(pairs)), key=lengths.__getitem__, reverse=True)
        found: dict[int, Found] = {}
        while order:
            most = max(1, positions // lengths[order[0]])
            batch = order[: min(most, self.config.batch_size or most)]
            found.update(zip(batch, in_halves(work, [pairs[i] for i in batch]), strict=True))
            order = order[len(batch) :]
        return [found[i] for i in range(len(pairs))]

    def _cross_attention(self, pairs: list[Pair]) -> list[CrossAttention]:
        src_ids = self._with_ends([src for src, _ in pairs])
        tgt_in = pad_ids([[BOS_ID, *hyp] for _, hyp in pairs]).to(self.runtime.device)
        maps = attention_maps(
            self.models[0], src_ids, tgt_in, kinds=["cross"], layers=slice(-2, None)
        )
        # The last layer but one, or the only one.
        weights = maps["cross"][0].mean(1).cpu().numpy()  # (B, T, S)
        cut = []
        for of_pair, (src, hyp) in zip(weights, pairs, strict=True):
            cut.append(of_pair[: len(hyp), : len(src)])
        return cut

    def _token_log_probs(self, pairs: list[Pair]) -> list[list[float]]:
        """The log-probability of each target's ids and of `</s>`, teacher-forced.

        Probabilities are averaged over the models. Letters: B pairs, S source length, T target
        length, V target vocabulary.
        """
        src_ids = self._with_ends([src for src, _ in pairs])  # (B, S)
        tgt_in = pad_ids([[BOS_ID, *tgt] for _, tgt in pairs]).to(self.runtime.device)  # (B, T)
        tgt_out = self._with_ends([tgt for _, tgt in pairs])  # (B, T)
        with self.runtime.with_threads(), self.runtime.inference():
            of_models = []
            for model in self.models:
                logits = model.eval()(src_ids, tgt_in).float().flatten(0, 1)  # (B·T, V)
                losses = F.cross_entropy(logits, tgt_out.flatten(), reduction="none")  # (B·T,)
                of_models.append(-losses.view_as(tgt_out))
            # The mean of the models' probabilities, as in `Ensemble`.
            mean = torch.stack(of_models).logsumexp(0) - math.log(len(self.models))  # (B, T)
        rows = mean.cpu().double().tolist()
        return [row[: len(tgt) + 1] for row, (_, tgt) in zip(rows, pairs, strict=True)]

    def _with_ends(self, sentences: Sequence[Ids]) -> Tensor:
        return pad_ids([np.append(ids, EOS_ID) for ids in sentences]).to(self.runtime.device)


def in_halves(work: Callable[[list[Item]], list[Found]], items: list[Item]) -> list[Found]:
    """The results of `work` for `items`, split in halves whenever memory runs out.

    Raises:
        OutOfMemoryError: a single item does not fit.
    """
    try:
        return work(items)
    except (MemoryError, RuntimeError) as error:
        if shortage(error) != MEMORY:
            raise
        if len(items) == 1:
            raise OutOfMemoryError("out of memory: even a single sentence does not fit") from error
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.empty_cache()  # here, because the exception keeps its frames' tensors alive
    log.warning("out of memory with %d sentences: splitting them; lower batch_size", len(items))
    middle = len(items) // 2
    return in_halves(work, items[:middle]) + in_halves(work, items[middle:])
