"""The proof of an export: the validation split, translated with the run's own model and with the export.

Knows both engines as lines in, lines out; never how a model is converted.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch

from mt_cli.artefacts.prepared import Prepared
from mt_cli.artefacts.run import Run
from mt_cli.config import decoding_with
from mt_cli.machine.device import set_up_runtime
from mt_cli.machine.progress import ProgressDisplay
from mt_cli.model.memory_layout import lay_out_for_decoding
from mt_cli.model.translation_model import TranslationModel
from mt_cli.translation.lines import Splitter, counting_lines, joined_texts
from mt_cli.translation.scoring import Score, score_bleu
from mt_cli.translation.translator import Translator

log = logging.getLogger(__name__)

SPLIT = "val"
FAITHFUL = 0.9
"""Share of identical lines that unquantised weights reach; rounding alone leaves 0.99 of them."""
WARM_UP_LINES = 64
BATCH_SIZE = 64
"""Sentences decoded together, where the run names no number."""


@dataclass(frozen=True)
class Performance:
    """What one engine made of the split."""

    hyps: list[str]
    bleu: Score
    sentences_per_s: float
    """From text to text."""

    def as_json(self) -> dict[str, object]:
        """A part of what `export --json` prints."""
        return {"bleu": self.bleu.details, "sentences_per_s": self.sentences_per_s}


@dataclass(frozen=True)
class Proof:
    """Two engines, side by side."""

    ours: Performance
    theirs: Performance
    compute_type: str
    """What the exported model calculates in on this machine."""

    @property
    def n(self) -> int:
        """Sentences."""
        return len(self.ours.hyps)

    @property
    def identical(self) -> int:
        """Sentences whose translations are the same, letter by letter."""
        return sum(a == b for a, b in zip(self.ours.hyps, self.theirs.hyps, strict=True))

    @property
    def is_faithful(self) -> bool:
        """Whether the same weights can be behind both."""
        return self.identical >= FAITHFUL * self.n

    def as_json(self) -> dict[str, object]:
        """A part of what `export --json` prints."""
        return {
            "split": SPLIT,
            "n": self.n,
            "identical": self.identical,
            "mt_cli": self.ours.as_json(),
            "ctranslate2": {**self.theirs.as_json(), "compute_type": self.compute_type},
        }

    def __str__(self) -> str:
        rows = [
            f"{SPLIT}  {engine:<11}  {each.bleu}  {each.sentences_per_s:.0f} sentences/s"
            for engine, each in (("mt_cli", self.ours), ("ctranslate2", self.theirs))
        ]
        share = f"{self.identical} of {self.n} lines, {self.identical / self.n:.1%}"
        return "\n".join([rows[0], f"{rows[1]}  {self.compute_type}", f"{SPLIT}  identical    {share}"])


class ExportedTranslator:
    """Translates sentences with an exported model on the CPU, greedily and under `Translator`'s limits."""

    def __init__(self, folder: Path, run: Run, *, threads: int) -> None:
        """Of the exported model in `folder`, made of `run`."""
        import ctranslate2

        self._engine = ctranslate2.Translator(
            str(folder), device="cpu", inter_threads=threads, intra_threads=1
        )
        tokenizers = run.tokenizers
        self._src_tokens = tokenizers.src.entries
        self._tgt_ids = {token: i for i, token in enumerate(tokenizers.tgt.entries)}
        self._tgt = tokenizers.tgt
        self._config = run.config.decoding
        self._longest = run.config.model.longest_sentence
        self.splitter = Splitter(tokenizers, longest=self._longest, quiet=True)

    @property
    def compute_type(self) -> str:
        """What it calculates in, such as `float32`; not every machine can what the weights are stored as."""
        return str(self._engine.compute_type)

    def translate(
        self, lines: Sequence[str], *, on_progress: Callable[[int], None] | None = None
    ) -> list[str]:
        """The translation of each of `lines`, in order; an empty line's is empty.

        `on_progress` is called now and then with the number of lines that are new since the last call.
        """
        of_lines = self.splitter.split(lines)
        sources = [part.ids for of_line in of_lines for part in of_line]
        texts = iter(self._search(sources, counting_lines(of_lines, on_progress)))
        return [joined_texts(islice(texts, len(of_line))) for of_line in of_lines]

    def _search(
        self, sources: Sequence[Sequence[int]], on_done: Callable[[Sequence[int]], None] | None
    ) -> list[str]:
        limits = [min(self._config.max_len(len(ids)), self._longest) for ids in sources]
        pending = self._engine.translate_batch(
            [[self._src_tokens[i] for i in ids] for ids in sources],
            max_batch_size=self._config.batch_size or BATCH_SIZE,
            beam_size=1,
            min_decoding_length=0,
            max_input_length=self._longest + 1,
            max_decoding_length=max(limits, default=1),
            asynchronous=True,  # or nobody would know how far it is
        )
        results = []
        for place, each in enumerate(pending):
            results.append(each.result())
            if on_done is not None:
                on_done([place])
        # It knows one limit for all. Greedy search never looks ahead, so cutting is as good as stopping.
        hyps = [result.hypotheses[0][:limit] for result, limit in zip(results, limits, strict=True)]
        return self._tgt.decode([[self._tgt_ids[token] for token in hyp] for hyp in hyps])


def prove(run: Run, model: TranslationModel, folder: Path, prepared: Prepared, *, threads: int) -> Proof:
    """Translate the split of `prepared` with `model` of `run` and with the export in `folder`; score both."""
    sources, refs = prepared.lines(SPLIT, "src"), prepared.lines(SPLIT, "tgt")
    runtime = set_up_runtime(device="cpu", precision="fp32", threads=threads)
    lay_out_for_decoding(model)
    # What mt-cli adds to greedy search is not in the weights.
    plain = {"beam_size": 1, "no_repeat_ngram": 0, "min_len": 0, "replace_unk": False, "precision": "fp32"}
    ours = Translator(model, run.tokenizers, decoding_with(run.config.decoding, plain), runtime=runtime)
    threads = torch.get_num_threads()  # what 0 came to
    log.info("translating %s with both  sentences %d  device cpu  threads %d", SPLIT, len(sources), threads)
    theirs = ExportedTranslator(folder, run, threads=threads)
    # What only the first would pay: tokenizers remember words, and CTranslate2 keeps memory once it has it.
    theirs.splitter.split(sources)
    theirs.translate(sources[:WARM_UP_LINES])

    def measure(engine: str, translator: Translator | ExportedTranslator) -> Performance:
        label = f"translating {SPLIT} with {engine}"
        with ProgressDisplay(label, unit="lines", total=len(sources)) as progress:
            begin = time.perf_counter()
            hyps = translator.translate(sources, on_progress=progress.update)
            elapsed_s = time.perf_counter() - begin
        return Performance(
            hyps, score_bleu(hyps, refs, lowercase=run.config.data.lowercase), len(hyps) / elapsed_s
        )

    return Proof(measure("mt_cli", ours), measure("ctranslate2", theirs), theirs.compute_type)
