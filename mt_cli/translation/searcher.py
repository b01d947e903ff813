"""`Searcher`: source ids in, hypotheses out, in batches of like length on every core of the machine.

Knows ids, a model and a device; never sees text.
"""

import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed, wait
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from mt_cli.config import DecodingConfig
from mt_cli.data.batching import pad_ids
from mt_cli.decoding.rules import Rules
from mt_cli.decoding.sampling import Sampling, sample_search
from mt_cli.decoding.search import Hyp, beam_search, greedy_search
from mt_cli.errors import Option, OutOfMemoryError
from mt_cli.machine.device import Runtime, memory_errors_explained, release_memory
from mt_cli.model.attention_maps import attention_maps
from mt_cli.model.backend import DecoderState
from mt_cli.model.ensemble import Ensemble
from mt_cli.model.few_shapes import FewShapes
from mt_cli.model.translation_model import TranslationModel
from mt_cli.text.symbols import BOS_ID, EOS_ID

log = logging.getLogger(__name__)

Found = TypeVar("Found")
Ids = Sequence[int]
OnDone = Callable[[Sequence[int]], None]
"""Is told the places of the sources whose search has just ended; always in the calling thread."""

HYPS_AT_ONCE = {"cpu": 420, "cuda": 8192}
"""Rows of a step's matrix products: fewer leave it idle, more fall out of its caches (CPU: measured)."""
SENTENCES_AT_ONCE = {"cpu": 256, "cuda": 8192}
TOKENS_AT_ONCE = {"cpu": 1 << 12, "cuda": 1 << 18}
"""Source tokens of a batch, padding included, so that long sentences come in smaller batches."""
FEWEST_SENTENCES = 8
"""A batch is not split any further to give every core one."""
FEWEST_HYPS = 64
"""Nor are the last batches, which get smaller so that all cores end together; fewer rows are slower."""


class Searcher:
    """Searches for translations with a trained model, or several."""

    def __init__(
        self,
        model: TranslationModel | Ensemble,
        config: DecodingConfig,
        *,
        runtime: Runtime,
        forbidden_ids: Ids,
        sampling: Sampling | None = None,
        seed: int = 1,
    ) -> None:
        # In fp32, one kernel serves all shapes, and padding would only cost time.
        self._model = model if runtime.precision == "fp32" else FewShapes(model)
        self._longest = model.longest_sentence
        self.first = model.models[0] if isinstance(model, Ensemble) else model
        self._config = config
        self._runtime = runtime
        self._rules = Rules(
            BOS_ID,
            EOS_ID,
            tuple(forbidden_ids),
            no_repeat_ngram=config.no_repeat_ngram,
            min_len=config.min_len,
        )
        self._sampling = sampling
        self._seed = seed
        self._threads = torch.get_num_threads()
        self._pool: ThreadPoolExecutor | None = None
        self._has_warned = False

    @property
    def longest_sentence(self) -> int:
        """Most ids of a source, and of a hypothesis."""
        return self._longest

    @property
    def device(self) -> str:
        """On which it computes."""
        return str(self._runtime.device)

    def limit(self, src_length: int) -> int:
        """Most ids of the translation of `src_length` ids."""
        return min(self._config.max_len(src_length), self._longest)

    def best(self, sources: Sequence[Ids], *, on_done: OnDone | None = None) -> list[list[int]]:
        """The best hypothesis of each of `sources`, none of which is empty."""
        if self._sampling is not None or self._config.beam_size > 1:
            return [hyps[0].ids for hyps in self.n_best(sources, n_best=1, on_done=on_done)]
        return self._in_batches(sources, self._greedy, hyps_each=1, on_done=on_done)

    def n_best(
        self, sources: Sequence[Ids], *, n_best: int, on_done: OnDone | None = None
    ) -> list[list[Hyp]]:
        """The `n_best` best hypotheses of each of `sources`, the best first."""
        if self._sampling is None:
            search, hyps_each = self._beams, self._config.beam_size
        else:
            search, hyps_each = partial(self._samples, sampling=self._sampling), n_best
        return self._in_batches(sources, partial(search, n_best=n_best), hyps_each=hyps_each, on_done=on_done)

    def align(
        self, sources: Sequence[Ids], hyps: Sequence[Ids], *, among: Sequence[Sequence[int]] | None = None
    ) -> list[list[int]]:
        """The place in its source that each id of `hyps` attends to most; `</s>` does not count.

        With `among`, only those places of each source count.

        Heads are averaged in the last layer but one, whose cross-attention aligns best (Garg et al. 2019).
        Of several models, the first is asked.
        """
        self.first.eval()
        aligned: list[list[int]] = [[] for _ in sources]
        for batch in self._batches(sources, hyps_each=1, workers=1):
            src_ids = _with_ends([sources[i] for i in batch]).to(self._runtime.device)
            tgt_in = pad_ids([[BOS_ID, *hyps[i]] for i in batch]).to(self._runtime.device)
            with _memory_errors_explained(len(batch)):
                (maps,) = attention_maps(
                    self.first, src_ids, tgt_in, kinds=["cross"], layers=slice(-2, None)
                ).values()
            weights = maps[0].mean(1)  # (B, T, S), of the last layer but one, or the only one
            for row, i in enumerate(batch):
                places = list(range(len(sources[i])) if among is None else among[i])
                best = weights[row, : len(hyps[i]), places].argmax(-1).tolist()  # (T,)
                aligned[i] = [places[each] for each in best]
        return aligned

    def _greedy(self, sources: Sequence[Ids]) -> list[list[int]]:
        with self._ready(sources) as (state, limits):
            return greedy_search(self._model.step, state, limits, self._rules)

    def _beams(self, sources: Sequence[Ids], *, n_best: int) -> list[list[Hyp]]:
        with self._ready(sources) as (state, limits):
            return beam_search(
                self._model.step,
                state,
                limits,
                self._rules,
                beam_size=self._config.beam_size,
                length_penalty=self._config.length_penalty,
                n_best=n_best,
            )

    def _samples(self, sources: Sequence[Ids], *, n_best: int, sampling: Sampling) -> list[list[Hyp]]:
        """`n_best` independent samples of each of `sources`, the likeliest first."""
        repeated = [ids for ids in sources for _ in range(n_best)]
        with self._ready(repeated) as (state, limits):
            draws = [
                # Of the seed and the sentence alone, so that neither batches nor other lines matter.
                np.random.default_rng((self._seed, number, *ids)).random(int(limits.max()), dtype=np.float32)
                for ids in sources
                for number in range(n_best)
            ]
            hyps = sample_search(
                self._model.step,
                state,
                torch.from_numpy(np.stack(draws)).to(self._runtime.device),
                limits,
                sampling,
                self._rules,
            )
        of_each = (hyps[begin : begin + n_best] for begin in range(0, len(hyps), n_best))
        return [sorted(samples, key=lambda hyp: -hyp.score) for samples in of_each]

    def _in_batches(
        self,
        sources: Sequence[Ids],
        search: Callable[[list[Ids]], list[Found]],
        *,
        hyps_each: int,
        on_done: OnDone | None,
    ) -> list[Found]:
        """What `search` finds for each of `sources`: a thread for every core, each with batches of its own.

        Whole batches side by side keep the cores busier than both working on one: small operations are
        never split, and nobody waits.
        """
        workers = self._threads if self._runtime.device.type == "cpu" else 1
        batches = self._batches(sources, hyps_each=hyps_each, workers=workers)
        search = partial(self._within_memory, search)
        groups = ([sources[i] for i in batch] for batch in batches)
        map_groups = self._one_by_one if workers == 1 or len(batches) == 1 else self._side_by_side
        found: list[list[Found]] = [[] for _ in batches]
        with closing(map_groups(search, groups)) as searched:
            for number, of_batch in searched:
                found[number] = of_batch
                if on_done is not None:
                    on_done(batches[number])
        in_order = {i: each for batch, of_batch in zip(batches, found, strict=True)
                    for i, each in zip(batch, of_batch, strict=True)}  # fmt: skip
        return [in_order[i] for i in range(len(sources))]

    def _within_memory(self, search: Callable[[list[Ids]], list[Found]], sources: list[Ids]) -> list[Found]:
        """What `search` finds for `sources`, searched in halves wherever memory runs out."""
        try:
            return search(sources)
        except OutOfMemoryError as error:
            if len(sources) == 1:
                raise
            self._warn_of_memory(error)
        release_memory(self._runtime.device)
        half = len(sources) // 2
        return [
            found for part in (sources[:half], sources[half:]) for found in self._within_memory(search, part)
        ]

    def _warn_of_memory(self, error: OutOfMemoryError) -> None:
        """Say once that `error` makes the search slower."""
        if not self._has_warned:
            self._has_warned = True
            log.warning(
                "%s; batches that do not fit are searched in halves, which is slower", error.with_flags()
            )

    @staticmethod
    def _one_by_one(
        search: Callable[[list[Ids]], list[Found]], groups: Iterable[list[Ids]]
    ) -> Generator[tuple[int, list[Found]], None, None]:
        """The number of each of `groups`, and what `search` finds for it."""
        for number, group in enumerate(groups):
            yield number, search(group)

    def _side_by_side(
        self, search: Callable[[list[Ids]], list[Found]], groups: Iterable[list[Ids]]
    ) -> Generator[tuple[int, list[Found]], None, None]:
        """The same in the order in which they are done, one of them in each thread at a time."""
        if self._pool is None:  # kept, because every new thread takes memory that is not given back
            self._pool = ThreadPoolExecutor(self._threads, initializer=torch.set_num_threads, initargs=(1,))
        futures = {self._pool.submit(search, group): number for number, group in enumerate(groups)}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            for future in futures:
                future.cancel()
            wait(futures)
            torch.set_num_threads(self._threads)  # which the workers' own setting has changed in part

    def _batches(self, sources: Sequence[Ids], *, hyps_each: int, workers: int) -> list[list[int]]:
        """The places of all `sources`, like lengths together, which wastes no padding."""
        device = self._runtime.device.type
        most = self._config.batch_size or min(
            SENTENCES_AT_ONCE[device], max(1, HYPS_AT_ONCE[device] // hyps_each)
        )
        most = min(most, max(FEWEST_SENTENCES, -(-len(sources) // workers)))
        fewest = max(FEWEST_SENTENCES, FEWEST_HYPS // hyps_each)
        # The longest come first, so that memory runs out early.
        order = sorted(range(len(sources)), key=lambda i: len(sources[i]), reverse=True)
        batches: list[list[int]] = []
        while order:
            longest = len(sources[order[0]]) + 1
            share = -(-len(order) // workers) if workers > 1 else len(order)
            size = max(1, min(most, max(fewest, share), TOKENS_AT_ONCE[device] // longest))
            batches.append(order[:size])
            order = order[size:]
        return batches

    @contextmanager
    def _ready(self, sources: Sequence[Ids]) -> Iterator[tuple[DecoderState, Tensor]]:
        """The state of a search over `sources`, and the longest that each translation may be, (B,)."""
        src_ids = _with_ends(sources).to(self._runtime.device)
        self._model.eval()
        with (
            self._runtime.without_gradients(),
            self._runtime.autocast(),
            _memory_errors_explained(len(sources)),
        ):
            limits = [self.limit(len(ids)) for ids in sources]
            yield self._model.start(src_ids), torch.tensor(limits, device=src_ids.device)


def _memory_errors_explained(batch_size: int) -> AbstractContextManager[None]:
    if batch_size == 1:
        return memory_errors_explained("a single sentence does not fit; lower ", Option("beam_size"))
    return memory_errors_explained("lower ", Option("batch_size"), f" (now {batch_size})")


def _with_ends(sources: Sequence[Ids]) -> Tensor:
    return pad_ids([np.append(ids, EOS_ID) for ids in sources])
