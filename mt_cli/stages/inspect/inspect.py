"""The `inspect` command: what is in a run folder.

Reads and describes; scores nothing and translates nothing.
"""

import math
import re
from collections.abc import Mapping
from pathlib import Path

from mt_cli.artefacts.checkpoint import MODEL, checked_hashes, checkpoint_name
from mt_cli.artefacts.checkpoints import POINTERS
from mt_cli.artefacts.evaluation import kept_evaluations, read_scores
from mt_cli.artefacts.prepared import open_prepared
from mt_cli.artefacts.run import Run, open_run
from mt_cli.artefacts.run_facts import ENVIRONMENT, STATUS, read_facts
from mt_cli.errors import DataError
from mt_cli.model.shapes import Shape
from mt_cli.text.symbols import SPECIALS
from mt_cli.text.tokenizer import Tokenizer

PARTS: Mapping[str, str] = {
    "source_embedding": r"src_embedding\.",
    "target_embedding": r"tgt_embedding\.",
    "source_positions": r"src_positions\.",
    "target_positions": r"tgt_positions\.",
    "encoder_self_attention": r"backend\.encoder\.layers\.\d+\.self_attn\.",
    "encoder_feed_forward": r"backend\.encoder\.layers\.\d+\.linear",
    "encoder_norms": r"backend\.encoder\..*\bnorm",
    "decoder_self_attention": r"backend\.decoder\.layers\.\d+\.self_attn\.",
    "decoder_cross_attention": r"backend\.decoder\.layers\.\d+\.multihead_attn\.",
    "decoder_feed_forward": r"backend\.decoder\.layers\.\d+\.linear",
    "decoder_norms": r"backend\.decoder\..*\bnorm",
    "output_layer": r"output\.",
}
"""Which parameters belong to a part of the model, by their names."""
NUM_ENTRIES = 10
"""Vocabulary entries that are shown of each side."""

Description = dict[str, dict[str, object]]
"""Facts by name, by section; JSON can hold it."""


def describe_run(run_dir: Path, *, checkpoint: str = "best") -> Description:
    """What the run in `run_dir` is and has reached, with the hashes of `checkpoint`.

    Raises:
        UsageError: there is no such run or checkpoint (one that has none yet is described without).
        DataError: a file is missing or altered.
    """
    run = open_run(run_dir)
    has_come_to_it = run.checkpoints and (checkpoint not in POINTERS or run.pointer(checkpoint))
    folder = run.checkpoint_folder(checkpoint) if has_come_to_it else None
    weights = {} if folder is None else checked_hashes(folder, run.parameter_shapes, names=[MODEL])
    name = None if folder is None else folder.name
    return {
        "run": {"folder": str(run_dir), "checkpoint": name, **describe_status(run)},
        "parameters": parameters_by_part(run.parameter_shapes),
        "vocabulary": _describe_vocabulary(run),
        "scores": describe_scores(run, checkpoint=name),
        "data": _describe_data(run),
        "sha256": {**run.sha256, **{f"{name}/{file}": digest for file, digest in weights.items()}},
        "environment": read_facts(run.folder, ENVIRONMENT),
        "config": run.config.model_dump(mode="json"),
    }


def parameters_by_part(shapes: Mapping[str, Shape]) -> dict[str, object]:
    """Number of parameters of each part, and in `total`; a shared one counts for the first part."""
    counts = dict.fromkeys(PARTS, 0)
    for name, shape in shapes.items():
        (part,) = (part for part, pattern in PARTS.items() if re.match(pattern, name))
        counts[part] += math.prod(shape)
    return {**counts, "total": sum(counts.values())}


def _describe_vocabulary(run: Run) -> dict[str, object]:
    tokenizers = run.tokenizers
    facts: dict[str, object] = {
        "kind": tokenizers.kind,
        "joint": tokenizers.joint,
        "src_entries": tokenizers.src.vocab_size,
        "tgt_entries": tokenizers.tgt.vocab_size,
        "src_first": _first_entries(tokenizers.src),
    }
    return facts if tokenizers.joint else {**facts, "tgt_first": _first_entries(tokenizers.tgt)}


def _first_entries(tokenizer: Tokenizer) -> list[str]:
    """Of words the most frequent, of subwords the first learnt; special symbols and bytes left out."""
    entries = tokenizer.tokens(range(len(SPECIALS), tokenizer.vocab_size))
    words = [entry for entry in entries if not re.fullmatch(r"<0x[0-9A-F]{2}>", entry)]
    return words[:NUM_ENTRIES]


def _describe_data(run: Run) -> dict[str, object]:
    """Hash of the prepared data, and of the corpus files where those data are still at hand."""
    facts: dict[str, object] = {
        "prepared_folder": run.prepared.folder,
        "prepared_sha256": run.prepared.sha256,
    }
    try:
        prepared = open_prepared(Path(run.prepared.folder), verify=False)
    except DataError:
        return facts
    return {**facts, **prepared.manifest.inputs} if prepared.sha256 == run.prepared.sha256 else facts


def describe_status(run: Run) -> dict[str, object]:
    """How far training came, as status.json says it; nothing where there is none."""
    # The best score stands among the scores, with its signature.
    status = read_facts(run.folder, STATUS)
    return {name: value for name, value in status.items() if name != "best_score"}


def describe_scores(run: Run, *, checkpoint: str | None) -> dict[str, object]:
    """The validation of `checkpoint`, and what `evaluate` has scored, by folder."""
    validations = {
        f"val, step {each.step}": {key: each.content.get(key) for key in ("nll", "bleu", "bleu_signature")}
        for each in run.metrics()
        if each.kind == "validation" and checkpoint == checkpoint_name(each.step)
    }
    evaluated = {folder.name: read_scores(folder, run=run.folder) for folder in kept_evaluations(run.folder)}
    return {**validations, **evaluated}
