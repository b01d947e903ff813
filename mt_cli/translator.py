"""`Translator`: lines in, lines out. The one place that joins text, model and search.

Knows no files or streams; the commands, and validation while training, all translate through it.
"""

import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from mt_cli.artefacts.run import open_run
from mt_cli.config import Backend, DecodingConfig, Device, Precision
from mt_cli.data.batching import pad_ids
from mt_cli.data.normalize import normalize
from mt_cli.data.symbols import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from mt_cli.data.tokenizer import Tokenizers
from mt_cli.decoding.search import greedy_search
from mt_cli.model.translation_model import TranslationModel
from mt_cli.runtime import Runtime, memory_errors_explained, set_up_runtime

log = logging.getLogger(__name__)

NEVER_SAID = (PAD_ID, BOS_ID, UNK_ID)
"""No reader has any use for `<unk>`: the likeliest real word stands in its place."""


class Translator:
    """Translates sentences with a trained model."""

    def __init__(
        self, model: TranslationModel, tokenizers: Tokenizers, config: DecodingConfig, *, runtime: Runtime
    ) -> None:
        self._model = model.to(runtime.device)
        self._tokenizers = tokenizers
        self._config = config
        self._runtime = runtime

    @classmethod
    def load(
        cls,
        run: str | Path,
        *,
        checkpoint: str = "best",
        backend: Backend | None = "scratch",
        batch_size: int | None = None,
        device: Device = "auto",
        precision: Precision = "auto",
        threads: int = 0,
    ) -> "Translator":
        """Translator of the run folder `run`; `backend=None` is the one it was trained with."""
        runtime = set_up_runtime(device=device, precision=precision, threads=threads)
        opened = open_run(Path(run))
        config = opened.config.decoding
        if batch_size is not None:
            config = config.model_copy(update={"batch_size": batch_size})
        with memory_errors_explained("the model does not fit"):
            model = opened.load_model(checkpoint=checkpoint, backend=backend)
            return cls(model, opened.tokenizers, config, runtime=runtime)

    def translate(self, lines: Sequence[str]) -> list[str]:
        """The translation of each of `lines`, in order; an empty line's is empty."""
        if isinstance(lines, str):
            raise TypeError("translate takes a list of lines; put the one line into a list")
        texts = [normalize(line, lowercase=self._tokenizers.lowercase) for line in lines]
        sources = self._encode(texts)
        filled = [i for i, ids in enumerate(sources) if ids]
        # Like lengths together waste no padding; the longest come first, so that memory runs out early.
        filled.sort(key=lambda i: len(sources[i]), reverse=True)
        translations = [""] * len(lines)
        for begin in range(0, len(filled), self._config.batch_size):
            group = filled[begin : begin + self._config.batch_size]
            hyps = self._search([sources[i] for i in group])
            for i, text in zip(group, self._tokenizers.tgt.decode(hyps), strict=True):
                translations[i] = text
        return translations

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text, cut at what the model can take."""
        longest = self._model.max_len - 1  # room for </s>
        sources = self._tokenizers.src.encode(texts)
        for number, ids in enumerate(sources):
            if len(ids) > longest:
                log.warning(
                    "a sentence of %d tokens was cut to the model's %d: %.60s…",
                    len(ids),
                    longest,
                    texts[number],
                )
        return [ids[:longest] for ids in sources]

    @torch.inference_mode()
    def _search(self, sources: Sequence[Sequence[int]]) -> list[list[int]]:
        """Target ids of each of `sources`."""
        src_ids = pad_ids([np.append(ids, EOS_ID) for ids in sources]).to(self._runtime.device)
        limits = [self._limit(len(ids)) for ids in sources]
        hint = f"lower --batch-size (now {self._config.batch_size})"
        self._model.eval()
        with self._runtime.autocast(), memory_errors_explained(hint):
            return greedy_search(
                self._model.step,
                self._model.start(src_ids, max_len=max(limits)),
                limits,
                bos_id=BOS_ID,
                eos_id=EOS_ID,
                forbidden_ids=NEVER_SAID,
                device=self._runtime.device,
            )

    def _limit(self, src_length: int) -> int:
        wanted = int(self._config.max_len_factor * src_length) + self._config.max_len_extra
        return min(wanted, self._model.max_len - 1)
