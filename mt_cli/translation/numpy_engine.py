"""`NumpyEngine`: greedy search for a few sentences, faster than importing PyTorch would take."""

import sys
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from mt_cli.config.schema import DecodingConfig
from mt_cli.decoding import Hyp, Ids, OnDone
from mt_cli.machine.process import may_have_gpu
from mt_cli.model.numpy_model import NumpyModel, num_parameters
from mt_cli.runs.run import Run
from mt_cli.text import EOS_ID
from mt_cli.translation.ctranslate2_engine import CTranslate2Engine
from mt_cli.translation.engine import CrossAttention, Engine
from mt_cli.translation.options import DecodingOptions, forbidden_ids

if TYPE_CHECKING:
    from mt_cli.model.model import TranslationModel
    from mt_cli.translation.torch_engine import TorchEngine

PRODUCTS_BEFORE_TORCH = 1 << 32
"""Parameters times source tokens, counted over batches, from which importing PyTorch pays off:
about a hundred sentences for a model of three million parameters (measured).
"""


def load_engine(runs: Sequence[Run], config: DecodingConfig, options: DecodingOptions) -> Engine:
    """The engine for one or several runs, or for one exported model.

    `config` describes the search, `options` the checkpoints and the device.
    """
    if runs[0].is_exported:
        return CTranslate2Engine(runs[0], config, options)
    backend = options.backend or runs[0].config.model.backend
    is_ours = len(runs) == 1 and backend == "scratch"
    is_greedy = config.beam_size == 1 and not config.temperature and not config.no_repeat_ngram
    is_on_cpu = options.device == "cpu" or (options.device == "auto" and not may_have_gpu())
    if is_ours and is_greedy and is_on_cpu and config.precision == "fp32":
        return NumpyEngine(runs[0], config, options)
    from mt_cli.translation.torch_engine import TorchEngine

    return TorchEngine.load(runs, config, options)


class NumpyEngine(Engine):
    """Searches greedily, one sentence after the other.

    Once enough sentences have arrived in batches, it loads a `TorchEngine` and hands over to it.
    """

    def __init__(self, run: Run, config: DecodingConfig, options: DecodingOptions) -> None:
        """Load the checkpoint of `run` that `options` names."""
        super().__init__(
            config,
            device="cpu",
            longest_sentence=run.config.model.longest_sentence,
            lengths=run.manifest.lengths,
        )
        (checkpoint,) = options.checkpoints_of([run])
        self._run = run
        self._options = options
        # Kept for the `TorchEngine`: by then, training may have replaced the checkpoint.
        self._weights = run.read_weights(checkpoint)
        self._model = NumpyModel(run.config.model, self._weights)
        self._forbidden_ids = forbidden_ids(run.tokenizers, config)
        self._num_products = 0

    @cached_property
    def torch_engine(self) -> "TorchEngine":
        """The same model in PyTorch."""
        from mt_cli.translation.torch_engine import TorchEngine

        return TorchEngine.of_weights([self._run], [self._weights], self.config, self._options)

    def with_beam_size(self, beam_size: int | None) -> Engine:
        """See `Engine`."""
        is_greedy = beam_size in (None, 1)
        return self if is_greedy else self.torch_engine.with_beam_size(beam_size)

    def close(self) -> None:
        """See `Engine`."""
        if "torch_engine" in self.__dict__:  # it was loaded
            self.torch_engine.close()

    @property
    def models(self) -> "Sequence[TranslationModel]":
        """See `Engine`."""
        return self.torch_engine.models

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
        if not self._are_few(sources):
            return self.torch_engine.search(
                sources, prefixes=prefixes, n_best=n_best, is_scored=is_scored, on_done=on_done
            )
        prefixes = prefixes or [()] * len(sources)
        hyps = []
        for place, (ids, prefix) in enumerate(zip(sources, prefixes, strict=True)):
            limit = self.limit(len(ids), len(prefix))
            hyps.append(
                self._model.greedy_search(
                    [*ids, EOS_ID], limit=limit, forbidden_ids=self._forbidden_ids, prefix=prefix
                )
            )
            if on_done is not None:
                on_done([place])
        if is_scored:
            return [[hyp] for hyp in self.scored(sources, hyps, [*map(len, prefixes)])]
        return [[Hyp(ids, 0.0, 0.0)] for ids in hyps]

    def cross_attention(self, sources: Sequence[Ids], hyps: Sequence[Ids]) -> list[CrossAttention]:
        """See `Engine`."""
        if not self._are_few(sources):
            return self.torch_engine.cross_attention(sources, hyps)
        found = []
        for src, hyp in zip(sources, hyps, strict=True):
            found.append(self._model.cross_attention([*src, EOS_ID], hyp)[:, : len(src)])
        return found

    def token_log_probs(self, sources: Sequence[Ids], hyps: Sequence[Ids]) -> list[list[float]]:
        """See `Engine`."""
        if not self._are_few(sources):
            return self.torch_engine.token_log_probs(sources, hyps)
        found = []
        for src, hyp in zip(sources, hyps, strict=True):
            found.append(self._model.token_log_probs([*src, EOS_ID], hyp))
        return found

    def _are_few(self, sources: Sequence[Ids]) -> bool:
        """Whether NumPy translates `sources` faster than importing and running PyTorch takes."""
        if len(sources) <= 1:
            return True
        shapes = self._run.parameter_shapes
        self._num_products += num_parameters(shapes) * sum(map(len, sources))
        return self._num_products <= PRODUCTS_BEFORE_TORCH and not has_torch()


def has_torch() -> bool:
    """Whether PyTorch is already imported."""
    return "torch" in sys.modules
