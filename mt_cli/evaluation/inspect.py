"""`inspect`: what is in a run folder, and the shapes of a sentence inside its model."""

import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from mt_cli.config.load import differences, dump_config, parse_config
from mt_cli.config.schema import Config
from mt_cli.data.prepared import open_prepared
from mt_cli.errors import DataError
from mt_cli.evaluation.kept import WEIGHTS, validation_of
from mt_cli.machine.files import read_json
from mt_cli.model.model import Shape
from mt_cli.model.shapes import ModuleShapes
from mt_cli.runs.checkpoint import MODEL, weights_sha256
from mt_cli.runs.opening import open_run
from mt_cli.runs.run import ENVIRONMENT, POINTERS, SCORES, STATUS
from mt_cli.text import SPECIALS
from mt_cli.text.tokenizers import Tokenizer

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
SHORT_HASH = 12
"""Characters of a sha256 that a terminal shows."""
SHA256 = re.compile(r"[0-9a-f]{64}")

Description = dict[str, dict[str, object]]
"""Facts by name, by section; JSON can hold it."""


def describe_run(run_dir: Path, *, checkpoint: str = "best") -> Description:
    """What the run in `run_dir` is and has reached, with the hashes of `checkpoint`.

    Raises:
        UsageError: there is no such run or checkpoint (one that has none yet is described without).
        DataError: a file is missing or altered.
    """
    run = open_run(run_dir)
    name = None
    if run.checkpoints and (checkpoint not in POINTERS or run.pointer(checkpoint)):
        name = run.resolve_checkpoint(checkpoint)
    weights = {}
    if name is not None:
        weights[f"{name}/{MODEL}"] = weights_sha256(run.checkpoint_folder(name))
    status = run.read_facts(STATUS)
    status.pop("best_score", None)  # the validation has it, with its signature
    scores: dict[str, object] = {}
    if validation := validation_of(run, name):
        shown = {key: validation.get(key) for key in ("nll", "bleu", "bleu_signature")}
        scores[f"val, step {validation['step']}"] = shown
    for folder in run.kept_evaluations():
        record = read_json(folder / SCORES)
        if record.get("checkpoint") != name or record.get(WEIGHTS) in weights.values():
            scores[folder.name] = record
    tokenizers = run.tokenizers
    vocabulary: dict[str, object] = {
        "kind": tokenizers.kind,
        "joint": tokenizers.joint,
        "src_entries": tokenizers.src.vocab_size,
        "tgt_entries": tokenizers.tgt.vocab_size,
        "src_first": _first_entries(tokenizers.src),
    }
    if not tokenizers.joint:
        vocabulary["tgt_first"] = _first_entries(tokenizers.tgt)
    inputs = {}
    with suppress(DataError, OSError):  # the run's data may be gone
        prepared = open_prepared(Path(run.prepared.folder), verify=False)
        if prepared.sha256 == run.prepared.sha256:
            inputs = prepared.manifest.inputs
    return {
        "run": {"folder": str(run_dir), "checkpoint": name, **status},
        "parameters": parameters_by_part(run.parameter_shapes),
        "vocabulary": vocabulary,
        "scores": scores,
        "data": {
            "prepared_folder": run.prepared.folder,
            "prepared_sha256": run.prepared.sha256,
            **inputs,
        },
        "sha256": {**run.sha256, **weights},
        "environment": run.read_facts(ENVIRONMENT),
        "config": run.config.model_dump(mode="json"),
    }


def parameters_by_part(shapes: Mapping[str, Shape]) -> dict[str, object]:
    """Number of parameters of each part, and in `total`; a shared one counts for the first part."""
    counts = dict.fromkeys(PARTS, 0)
    for name, shape in shapes.items():
        (part,) = (part for part, pattern in PARTS.items() if re.match(pattern, name))
        counts[part] += math.prod(shape)
    return {**counts, "total": sum(counts.values())}


def _first_entries(tokenizer: Tokenizer) -> list[str]:
    """The most frequent words or the first learnt subwords, without special symbols and bytes."""
    entries = tokenizer.tokens(range(len(SPECIALS), tokenizer.vocab_size))
    return [entry for entry in entries if not re.fullmatch(r"<0x[0-9A-F]{2}>", entry)][:NUM_ENTRIES]


def facts_as_text(description: Description, *, width: int | None) -> str:
    """For people: one section after the other, and the config as TOML.

    For a terminal of `width` columns, hashes are cut short, lines are wrapped, and of the config
    only what is not its default is shown.
    """
    sections = []
    for name, facts in description.items():
        if name != "config" and facts:
            sections.append("\n".join([name, *_rows(facts, width)]))
    config = parse_config(description["config"])
    if width is None:
        sections.append(f"config\n{dump_config(config).rstrip()}")
    else:
        changed = {}
        for path, (_, own) in differences(Config(), config).items():
            if own not in ("", None):
                changed[path] = own
        rows = _rows(changed, width) or ["  as it is by default"]
        sections.append("\n".join(["config, where it is not the default", *rows]))
    return "\n\n".join(sections)


def _rows(facts: Mapping[str, object], width: int | None) -> list[str]:
    """A row for each fact."""
    values = {name: _value(value) for name, value in facts.items()}
    if all(isinstance(value, int) for value in facts.values()):
        longest = max((len(value) for value in values.values()), default=0)
        values = {name: value.rjust(longest) for name, value in values.items()}
    margin = max((len(name) for name in values), default=0)
    if width is None:
        return [f"  {name:<{margin}}  {value}" for name, value in values.items()]
    margin = min(margin, width // 2)
    lines = []
    for name, value in values.items():
        shown = f"{value[:SHORT_HASH]}…" if SHA256.fullmatch(value) else value
        indent = " " * (margin + 4)
        lines += textwrap.wrap(f"  {name:<{margin}}  {shown}", width, subsequent_indent=indent)
    return lines


def _value(value: object) -> str:  # noqa: PLR0911 — one return a type
    match value:
        case {"bleu": {"score": float(score), "signature": signature}, **others}:
            checkpoint = others.get("checkpoint", "of an unnamed checkpoint")
            return f"BLEU {score:.2f}  {signature}  {checkpoint}"
        case {"bleu": float(score), "bleu_signature": signature, "nll": float(nll)}:
            return f"BLEU {score:.2f}  {signature}  nll {nll:.4f}"
        case bool():
            return str(value).lower()
        case int():
            return f"{value:,}"
        case dict():
            return ", ".join(f"{name} {_value(each)}" for name, each in value.items())
        case list():
            return "  ".join(_value(each) for each in value)
        case _:
            return str(value)


def shapes_as_text(traced: Sequence[ModuleShapes]) -> str:
    """A row for each module: its name, and the shapes that go in and come out."""
    rows = []
    for module in traced:
        name = module.name.removeprefix("backend.")
        rows.append((name, "  ".join(map(_shape, module.inputs)), _shape(module.output)))
    names = max(len(name) for name, _, _ in rows)
    inputs = max(len(shapes) for _, shapes, _ in rows)
    return "\n".join(f"{name:<{names}}  {shapes:<{inputs}}  {out}" for name, shapes, out in rows)


def _shape(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape))
