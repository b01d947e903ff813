"""The proof that an exported model translates as the run does."""

import logging
import time
from dataclasses import dataclass

import torch

from mt_cli.data.prepared import Prepared
from mt_cli.evaluation.scoring import score_bleu
from mt_cli.machine.terminal import progress_shown
from mt_cli.runs.run import ExportedModel, Run
from mt_cli.translation.ctranslate2_engine import CTranslate2Engine
from mt_cli.translation.options import DecodingOptions
from mt_cli.translation.translator import Translator

log = logging.getLogger(__name__)
SPLIT = "val"
WARM_UP_LINES = 64


@dataclass(frozen=True)
class Proof:
    """How two engines translate the split, side by side."""

    share: float
    """Of the sentences whose translations are the same, letter by letter."""
    text: str
    document: dict[str, object]
    """A part of what `export --json` prints."""


def prove(
    run: Run, checkpoint: str, exported: Run | ExportedModel, prepared: Prepared, *, threads: int
) -> Proof:
    """Translate and score the split of `prepared` with `checkpoint` of `run` and with `exported`.

    Greedily and on the CPU: of all searches, greedy alone is the same in both engines, so what
    differs comes from the weights.
    """
    sources = prepared.lines(SPLIT, "src")
    refs = prepared.lines(SPLIT, "tgt")
    data = run.config.data
    own = _translator(run, checkpoint, precision="fp32", threads=threads)
    if isinstance(exported, Run):
        name = "the copy"
        other = _translator(exported, checkpoint, precision="fp32", threads=threads, quiet=True)
    else:
        name = "ctranslate2"
        other = _translator(exported, checkpoint, precision=None, threads=threads, quiet=True)
    log.info(
        "translating %s with both  sentences %d  device cpu  threads %d",
        SPLIT,
        len(sources),
        torch.get_num_threads(),
    )
    other.translate(sources[:WARM_UP_LINES])  # CTranslate2 keeps memory once it has it
    hyps = []
    lines = []
    documents: dict[str, dict[str, object]] = {}
    for engine, translator in (("mt_cli", own), (name, other)):
        label = f"translating {SPLIT} with {engine}"
        with progress_shown(label, unit="lines", total=len(sources)) as on_progress:
            began_at = time.perf_counter()
            found = translator.translate(sources, on_progress=on_progress)
            sentences_per_s = len(sources) / (time.perf_counter() - began_at)
        bleu = score_bleu(found, refs, lang=data.tgt_lang, lowercase=data.lowercase)
        hyps.append(found)
        lines.append(f"{SPLIT}  {engine:<11}  {bleu}  {sentences_per_s:.0f} sentences/s")
        documents[engine] = {"bleu": bleu.details, "sentences_per_s": sentences_per_s}
    # What it computes in on this machine.
    compute_type = "float32"
    if isinstance(other.engine, CTranslate2Engine):
        compute_type = other.engine.compute_type
    documents[name]["compute_type"] = compute_type
    lines[-1] += f"  {compute_type}"
    n = len(sources)
    identical = sum(a == b for a, b in zip(*hyps, strict=True))
    lines.append(f"{SPLIT}  identical    {identical} of {n} lines, {identical / n:.1%}")
    document = {"split": SPLIT, "n": n, "identical": identical, **documents}
    return Proof(identical / n, "\n".join(lines), document)


def _translator(
    model: Run | ExportedModel,
    checkpoint: str,
    *,
    precision: str | None,
    threads: int,
    quiet: bool = False,
) -> Translator:
    options = DecodingOptions(
        checkpoint,
        device="cpu",
        threads=threads,
        search={"beam_size": 1, "length_penalty": 0.0, "precision": precision},
        owns_process=True,
    )
    return Translator.of_models([model], options, quiet=quiet)
