"""The proof of an export: the validation split, translated with the run's own model and with the export.

Both translate through the `Translator` that users get. Knows nothing of how a model is converted.
"""

import logging
import time
from dataclasses import dataclass

import torch

from mt_cli.artefacts.exported_run import ENGINE, ExportedRun
from mt_cli.artefacts.prepared import Prepared
from mt_cli.artefacts.run import Run
from mt_cli.config import DecodingConfig
from mt_cli.machine.device import Runtime, set_up_runtime
from mt_cli.machine.progress import ProgressDisplay
from mt_cli.model.memory_layout import lay_out_for_decoding
from mt_cli.model.translation_model import TranslationModel
from mt_cli.translation.exported_searcher import ExportedSearcher
from mt_cli.translation.scoring import Score, score_bleu
from mt_cli.translation.translator import Translator
from mt_cli.translation.unknown_words import forbidden_ids

log = logging.getLogger(__name__)

SPLIT = "val"
FAITHFUL = 0.9
"""Share of identical lines that unquantised weights reach; rounding alone leaves 0.99 of them."""
WARM_UP_LINES = 64


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
    engine: str
    """What translates with the exported model."""
    compute_type: str
    """What it calculates in on this machine."""

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
            self.engine: {**self.theirs.as_json(), "compute_type": self.compute_type},
        }

    def __str__(self) -> str:
        rows = [
            f"{SPLIT}  {engine:<11}  {each.bleu}  {each.sentences_per_s:.0f} sentences/s"
            for engine, each in (("mt_cli", self.ours), (self.engine, self.theirs))
        ]
        share = f"{self.identical} of {self.n} lines, {self.identical / self.n:.1%}"
        return "\n".join([rows[0], f"{rows[1]}  {self.compute_type}", f"{SPLIT}  identical    {share}"])


def prove(
    run: Run, model: TranslationModel, exported: ExportedRun | Run, prepared: Prepared, *, threads: int
) -> Proof:
    """Translate the split of `prepared` with `model` of `run` and with what was `exported`; score both."""
    sources, refs = prepared.lines(SPLIT, "src"), prepared.lines(SPLIT, "tgt")
    runtime = set_up_runtime(device="cpu", precision="fp32", threads=threads)
    lay_out_for_decoding(model)
    # Of all searches, greedy alone is the same in both: what differs comes from the weights.
    plain = run.config.decoding.model_copy(
        update={"beam_size": 1, "length_penalty": 0.0, "precision": "fp32"}
    )
    ours = Translator.of_model(model, run.tokenizers, plain, runtime=runtime)
    log.info(
        "translating %s with both  sentences %d  device cpu  threads %d",
        SPLIT, len(sources), torch.get_num_threads(),
    )  # fmt: skip
    theirs, engine, compute_type = _translator_of(exported, plain, runtime=runtime, threads=threads)
    theirs.translate(sources[:WARM_UP_LINES])  # CTranslate2 keeps memory once it has it

    def measure(engine: str, translator: Translator) -> Performance:
        label = f"translating {SPLIT} with {engine}"
        with ProgressDisplay(label, unit="lines", total=len(sources)) as progress:
            begin = time.perf_counter()
            hyps = translator.translate(sources, on_progress=progress.update)
            elapsed_s = time.perf_counter() - begin
        return Performance(
            hyps, score_bleu(hyps, refs, lowercase=run.config.data.lowercase), len(hyps) / elapsed_s
        )

    return Proof(measure("mt_cli", ours), measure(engine, theirs), engine, compute_type)


def _translator_of(
    exported: ExportedRun | Run, decoding: DecodingConfig, *, runtime: Runtime, threads: int
) -> tuple[Translator, str, str]:
    """What translates with `exported`, its name, and what it calculates in."""
    if isinstance(exported, Run):
        model = exported.load_model(backend="scratch")
        lay_out_for_decoding(model)
        return (
            Translator.of_model(model, exported.tokenizers, decoding, runtime=runtime),
            "the copy",
            "float32",
        )
    forbidden = forbidden_ids(exported.tokenizers, decoding)
    searcher = ExportedSearcher(exported, decoding, forbidden_ids=forbidden, device="cpu", threads=threads)
    return Translator(searcher, exported.tokenizers, decoding, quiet=True), ENGINE, searcher.compute_type
