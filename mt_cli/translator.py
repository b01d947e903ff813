"""`Translator`: lines in, lines out. The one place that joins text, model and search.

Knows no files or streams; the commands, and validation while training, all translate through it.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from mt_cli.artefacts.run import open_run
from mt_cli.config import Backend, DecodingConfig, Device, Precision
from mt_cli.data.batching import pad_ids
from mt_cli.data.normalize import normalize
from mt_cli.data.symbols import BOS_ID, EOS_ID, PAD_ID, SPECIALS, UNK_ID
from mt_cli.data.tokenizer import Tokenizers
from mt_cli.decoding.search import Hyp, beam_search, greedy_search
from mt_cli.errors import UsageError
from mt_cli.model.backend import DecoderState
from mt_cli.model.maps import MapKind, attention_maps
from mt_cli.model.translation_model import TranslationModel
from mt_cli.runtime import Runtime, memory_errors_explained, set_up_runtime

log = logging.getLogger(__name__)

Found = TypeVar("Found")

NEVER_SAID = (PAD_ID, BOS_ID, UNK_ID)
"""No reader has any use for `<unk>`: the likeliest real word stands in its place."""


@dataclass(frozen=True)
class TeacherForced:
    """A sentence and its own translation, as the model is given them when it is taught: one row each."""

    source: str
    translation: str
    src_ids: Tensor
    """(1, S), ending in `</s>`."""
    tgt_in: Tensor
    """(1, T), beginning with `<s>`."""
    src_tokens: tuple[str, ...]
    """What stands at each of the S source positions."""
    tgt_tokens: tuple[str, ...]
    """What stands at each of the T target positions."""
    predicted_tokens: tuple[str, ...]
    """What is predicted at each of them: the next token."""


@dataclass(frozen=True)
class Attention:
    """The attention maps of one sentence and its translation."""

    pair: TeacherForced
    weights: Mapping[MapKind, Tensor]
    """`encoder` (L, H, S, S), `decoder` (L, H, T, T), `cross` (L, H, T, S)."""

    def labels(self, kind: MapKind) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Tokens of the rows, which attend, and of the columns, which are attended to.

        A row of the cross-attention is labelled with the token that was predicted there.
        """
        if kind == "encoder":
            return self.pair.src_tokens, self.pair.src_tokens
        if kind == "decoder":
            return self.pair.tgt_tokens, self.pair.tgt_tokens
        return self.pair.predicted_tokens, self.pair.src_tokens


@dataclass(frozen=True)
class Translation:
    """One translation of a line."""

    text: str
    score: float
    """Natural logarithm of its probability, over the length penalty."""


class Translator:
    """Translates sentences with a trained model."""

    def __init__(
        self, model: TranslationModel, tokenizers: Tokenizers, config: DecodingConfig, *, runtime: Runtime
    ) -> None:
        self.model = model.to(runtime.device)
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
        beam_size: int | None = None,
        length_penalty: float | None = None,
        batch_size: int | None = None,
        device: Device = "auto",
        precision: Precision = "auto",
        threads: int = 0,
    ) -> "Translator":
        """Translator of the run folder `run`; `backend=None` is the one it was trained with.

        `beam_size`, `length_penalty` and `batch_size` are the run's own unless given.
        """
        runtime = set_up_runtime(device=device, precision=precision, threads=threads)
        opened = open_run(Path(run))
        given = {"beam_size": beam_size, "length_penalty": length_penalty, "batch_size": batch_size}
        config = opened.config.decoding.model_copy(
            update={name: value for name, value in given.items() if value is not None}
        )
        with memory_errors_explained("the model does not fit"):
            model = opened.load_model(checkpoint=checkpoint, backend=backend)
            return cls(model, opened.tokenizers, config, runtime=runtime)

    def translate(self, lines: Sequence[str]) -> list[str]:
        """The translation of each of `lines`, in order; an empty line's is empty."""
        hyps = self._in_batches(lines, self._search)
        return self._tokenizers.tgt.decode([hyp or [] for hyp in hyps])

    def translate_n_best(self, lines: Sequence[str], *, n_best: int = 1) -> list[list[Translation]]:
        """The `n_best` best translations of each of `lines`, the best first; an empty line's are empty.

        Raises:
            UsageError: the beam is not wide enough.
        """
        if n_best > self._config.beam_size:
            raise UsageError(f"{n_best} translations a line need as many beams; give --beam-size {n_best}")
        hyps = self._in_batches(lines, lambda sources: self._search_beams(sources, n_best=n_best))
        nothing = [Translation("", 0.0)] * n_best
        return [nothing if of_line is None else self._detokenize(of_line) for of_line in hyps]

    @property
    def search_name(self) -> str:
        """How translations are searched for, in a word that can name a folder."""
        if self._config.beam_size == 1:
            return "greedy"
        return f"beam{self._config.beam_size}-alpha{self._config.length_penalty:g}"

    def teacher_force(self, line: str) -> TeacherForced:
        """`line` and its translation as one pass of the model takes them, for looking inside.

        Raises:
            UsageError: `line` is empty, so that there is nothing to look at.
        """
        (ids,) = self._encode([normalize(line, lowercase=self._tokenizers.lowercase)])
        if not ids:
            raise UsageError("the text is empty: there is nothing to look at; give a sentence with --text")
        (hyp,) = self._search([ids])
        tokens = self._tokenizers.tgt.tokens(hyp)
        # A translation that ran into its limit has no end.
        end = [SPECIALS[EOS_ID]] if len(hyp) < self._limit(len(ids)) else []
        tgt_in = [BOS_ID, *hyp] if end else [BOS_ID, *hyp[:-1]]
        return TeacherForced(
            source=line,
            translation=self._tokenizers.tgt.decode([hyp])[0],
            src_ids=torch.tensor([[*ids, EOS_ID]], device=self._runtime.device),
            tgt_in=torch.tensor([tgt_in], device=self._runtime.device),
            src_tokens=(*self._tokenizers.src.tokens(ids), SPECIALS[EOS_ID]),
            tgt_tokens=(SPECIALS[BOS_ID], *tokens)[: len(tgt_in)],
            predicted_tokens=(*tokens, *end),
        )

    def attention(self, line: str) -> Attention:
        """Who attends to whom when `line` has been translated: every layer and head, in fp32.

        Raises:
            UsageError: `line` is empty.
        """
        pair = self.teacher_force(line)
        maps = attention_maps(self.model, pair.src_ids, pair.tgt_in)
        return Attention(pair, {kind: weights[:, 0].cpu() for kind, weights in maps.items()})

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text, cut at what the model can take."""
        longest = self.model.max_len - 1  # room for </s>
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

    def _in_batches(
        self, lines: Sequence[str], search: Callable[[list[list[int]]], list[Found]]
    ) -> list[Found | None]:
        """What `search` finds for the ids of each of `lines`; nothing for an empty one."""
        if isinstance(lines, str):
            raise TypeError("translate takes a list of lines; put the one line into a list")
        sources = self._encode([normalize(line, lowercase=self._tokenizers.lowercase) for line in lines])
        filled = [i for i, ids in enumerate(sources) if ids]
        # Like lengths together waste no padding; the longest come first, so that memory runs out early.
        filled.sort(key=lambda i: len(sources[i]), reverse=True)
        found: list[Found | None] = [None] * len(lines)
        for begin in range(0, len(filled), self._config.batch_size):
            group = filled[begin : begin + self._config.batch_size]
            for i, each in zip(group, search([sources[i] for i in group]), strict=True):
                found[i] = each
        return found

    def _search(self, sources: Sequence[Sequence[int]]) -> list[list[int]]:
        """The best target ids of each of `sources`."""
        if self._config.beam_size > 1:
            return [hyps[0].ids for hyps in self._search_beams(sources, n_best=1)]
        with self._ready(sources) as (state, limits):
            return greedy_search(
                self.model.step,
                state,
                limits,
                bos_id=BOS_ID,
                eos_id=EOS_ID,
                forbidden_ids=NEVER_SAID,
                device=self._runtime.device,
            )

    def _search_beams(self, sources: Sequence[Sequence[int]], *, n_best: int) -> list[list[Hyp]]:
        """The `n_best` best target ids of each of `sources`, with their scores."""
        with self._ready(sources) as (state, limits):
            return beam_search(
                self.model.step,
                state,
                limits,
                beam_size=self._config.beam_size,
                length_penalty=self._config.length_penalty,
                n_best=n_best,
                bos_id=BOS_ID,
                eos_id=EOS_ID,
                forbidden_ids=NEVER_SAID,
                device=self._runtime.device,
            )

    @contextmanager
    def _ready(self, sources: Sequence[Sequence[int]]) -> Iterator[tuple[DecoderState, list[int]]]:
        """The state of a search over `sources`, and the longest that each translation may be."""
        src_ids = pad_ids([np.append(ids, EOS_ID) for ids in sources]).to(self._runtime.device)
        limits = [self._limit(len(ids)) for ids in sources]
        self.model.eval()
        hint = f"lower --batch-size (now {self._config.batch_size})"
        with torch.inference_mode(), self._runtime.autocast(), memory_errors_explained(hint):
            yield self.model.start(src_ids), limits

    def _detokenize(self, hyps: Sequence[Hyp]) -> list[Translation]:
        texts = self._tokenizers.tgt.decode([hyp.ids for hyp in hyps])
        return [Translation(text, hyp.score) for text, hyp in zip(texts, hyps, strict=True)]

    def _limit(self, src_length: int) -> int:
        wanted = int(self._config.max_len_factor * src_length) + self._config.max_len_extra
        return min(wanted, self.model.max_len - 1)
