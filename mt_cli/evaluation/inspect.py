"""`inspect`: what is in a run folder, and what happens to a sentence inside its model."""

import math
import re
import textwrap
from collections.abc import Mapping
from contextlib import suppress
from itertools import groupby
from pathlib import Path

import torch

from mt_cli.config.load import differences, dump_config, parse_config
from mt_cli.config.schema import Config
from mt_cli.data.prepared import open_prepared
from mt_cli.errors import DataError
from mt_cli.evaluation.card import WEIGHTS, validation_of
from mt_cli.machine.files import read_json
from mt_cli.model.inside import LEVELS, ShapeTrace
from mt_cli.model.transformer import causal_mask, padding_mask
from mt_cli.runs.checkpoint import MODEL, weights_sha256
from mt_cli.runs.run import ENVIRONMENT, POINTERS, SCORES, STATUS, Shape, open_run
from mt_cli.text import PAD_ID, SPECIALS
from mt_cli.text.tokenizer import Tokenizer
from mt_cli.translation.attention import Panel, TeacherForced, write_picture

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
    name = run.resolve_checkpoint(checkpoint) if has_come_to_it else None
    weights = (
        {} if name is None else {f"{name}/{MODEL}": weights_sha256(run.checkpoint_folder(name))}
    )
    status = {key: value for key, value in run.read_facts(STATUS).items() if key != "best_score"}
    scores: dict[str, object] = {}
    if validation := validation_of(run, name):  # with its signature, unlike the status's
        shown = {key: validation.get(key) for key in ("nll", "bleu", "bleu_signature")}
        scores[f"val, step {validation['step']}"] = shown
    for folder in run.kept_evaluations():
        record = read_json(folder / SCORES)
        if record.get("checkpoint") != name or record.get(WEIGHTS) in weights.values():
            scores[folder.name] = record
    tokenizers, inputs = run.tokenizers, {}
    vocabulary: dict[str, object] = {
        "kind": tokenizers.kind,
        "joint": tokenizers.joint,
        "src_entries": tokenizers.src.vocab_size,
        "tgt_entries": tokenizers.tgt.vocab_size,
        "src_first": _first_entries(tokenizers.src),
    }
    if not tokenizers.joint:
        vocabulary["tgt_first"] = _first_entries(tokenizers.tgt)
    with suppress(
        DataError, OSError
    ):  # the corpus files' hashes, where the run's data are still at hand
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
    """Of words the most frequent, of subwords the first learnt; special symbols and bytes left out."""
    entries = tokenizer.tokens(range(len(SPECIALS), tokenizer.vocab_size))
    return [entry for entry in entries if not re.fullmatch(r"<0x[0-9A-F]{2}>", entry)][:NUM_ENTRIES]


def facts_as_text(description: Description, *, width: int | None) -> str:
    """For people: a section after another. For a terminal of `width`, hashes are cut short and
    lines wrapped.

    The config comes last: as the TOML that it is, or on a terminal what is not its default.
    """
    sections = [
        "\n".join([name, *_rows(facts, width)])
        for name, facts in description.items()
        if name != "config" and facts
    ]
    config = parse_config(description["config"])
    if width is None:
        return "\n\n".join([*sections, f"config\n{dump_config(config).rstrip()}"])
    changed = {
        path: own
        for path, (_, own) in differences(Config(), config).items()
        if own not in ("", None)
    }
    rows = _rows(changed, width) if changed else ["  as it is by default"]
    return "\n\n".join([*sections, "\n".join(["config, where it is not the default", *rows])])


def _rows(facts: Mapping[str, object], width: int | None) -> list[str]:
    """A row for each fact."""
    values = {name: _value(value) for name, value in facts.items()}
    if all(isinstance(value, int) for value in facts.values()):
        longest = max(map(len, values.values()))
        values = {name: value.rjust(longest) for name, value in values.items()}
    if width is not None:
        is_hash = re.compile(r"[0-9a-f]{64}")
        values = {n: f"{v[:SHORT_HASH]}…" if is_hash.fullmatch(v) else v for n, v in values.items()}
    margin = min(max(map(len, values), default=0), (width or 1000) // 2)
    lines = [f"  {name:<{margin}}  {value}" for name, value in values.items()]
    if width is None:
        return lines
    indent = " " * (margin + 4)
    return [part for line in lines for part in textwrap.wrap(line, width, subsequent_indent=indent)]


def _value(value: object) -> str:
    match value:
        case {"bleu": {"score": float(score), "signature": signature}, **others}:
            return f"BLEU {score:.2f}  {signature}  {others.get('checkpoint', 'of an unnamed checkpoint')}"
        case {"bleu": float(score), "bleu_signature": signature, "nll": float(nll)}:
            return f"BLEU {score:.2f}  {signature}  nll {nll:.4f}"
        case bool() | int():
            return str(value).lower() if isinstance(value, bool) else f"{value:,}"
        case dict():
            return ", ".join(f"{name} {_value(each)}" for name, each in value.items())
        case list():
            return "  ".join(map(_value, value))
        case _:
            return str(value)


# One sentence on its way through the model

NAMES = {
    "B": "sentences",
    "S": "source positions",
    "T": "target positions",
    "D": "d_model",
    "H": "h, heads",
    "K": "d_k = d_v, a head's size",
    "F": "d_ff",
    "V": "target vocabulary",
}
"""The letters of the legend, in the paper's words."""
NUM_PADS = 3
"""As many as a longer sentence in the batch would need."""


def trace_as_text(trace: ShapeTrace, pair: TeacherForced, *, width: int | None) -> str:
    """For people; on a terminal of `width` columns, long sentences go on in a new line."""
    lines = []
    for name, tokens in (("source", pair.src_tokens), ("target", pair.tgt_tokens)):
        line = f"{name}  {' '.join(tokens)}"
        lines += textwrap.wrap(line, width, subsequent_indent=" " * 8) if width else [line]
    lines += [
        "",
        *(f"{letter} = {size:<6} {NAMES[letter]}" for letter, size in trace.legend.items()),
    ]
    lines += [f"N = {size:<6} {stack} layers, all alike" for stack, size in trace.depths.items()]
    widest = max(2 * LEVELS.index(each.level) + len(each.name) for each in trace.tensors)
    for place, group in groupby(trace.tensors, lambda tensor: tensor.place):
        lines += ["", place or "model"]
        for tensor in group:
            name = " " * 2 * LEVELS.index(tensor.level) + tensor.name
            letters = f"({', '.join(tensor.letters.split())})"
            lines.append(f"  {name:<{widest}}  {letters:<14}{' × '.join(map(str, tensor.shape))}")
    return "\n".join(lines)


def draw_masks(path: Path, pair: TeacherForced) -> None:
    """Draw the masks of `pair`, padded as it would be beside a longer sentence: dark = may be
    attended.
    """
    padding = torch.full((1, NUM_PADS), PAD_ID, device=pair.src_ids.device)
    src_mask = padding_mask(torch.cat([pair.src_ids, padding], dim=1), pad_id=PAD_ID)  # (1, S)
    tgt_mask = causal_mask(len(pair.tgt_tokens), device=pair.tgt_in.device)  # (T, T)
    src = (*pair.src_tokens, *[SPECIALS[PAD_ID]] * NUM_PADS)
    tgt = pair.tgt_tokens
    panels = [
        Panel(title, rows, columns, mask.expand(len(rows), -1).float().cpu().numpy())
        for title, rows, columns, mask in (
            ("encoder self-attention", src, src, src_mask),
            ("decoder self-attention", tgt, tgt, tgt_mask),
            ("cross-attention", tgt, src, src_mask),
        )
    ]
    write_picture(path, panels, title="masks: rows may attend to the dark columns")
