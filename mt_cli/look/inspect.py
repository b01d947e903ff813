"""`inspect` and `runs`: facts about a run and its model, and a table of all runs."""

import json
import logging
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from statistics import mode
from typing import TYPE_CHECKING

from mt_cli.config.load import differences, flat, parse_config
from mt_cli.config.schema import TRAIN, VAL, Config
from mt_cli.data.prepared import open_prepared
from mt_cli.errors import DataError, MtCliError, UsageError
from mt_cli.evaluation.kept import WEIGHTS, kept_evaluations, validation_of
from mt_cli.machine.files import read_json
from mt_cli.machine.locks import is_locked
from mt_cli.model.numpy_model import Shape, num_parameters
from mt_cli.runs.checkpoint import MODEL
from mt_cli.runs.opening import open_run, run_folders
from mt_cli.runs.reports import FINISHED, read_metrics
from mt_cli.runs.run import POINTERS, SCORES, STATUS, Recipe, Run, joined_by_seed
from mt_cli.text import SPECIALS
from mt_cli.text.tokenizers import Tokenizer

if TYPE_CHECKING:  # torch is not needed to list runs
    from mt_cli.model.inside import ModuleShapes

log = logging.getLogger(__name__)

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
"""Parts of the model, by parameter names."""
NUM_ENTRIES = 10
"""Number of vocabulary entries shown for each side."""

Description = dict[str, dict[str, object]]
"""Facts by section and name, representable as JSON."""


def describe_run(run_dir: Path, *, checkpoint: str = "best") -> Description:
    """Facts about the run in `run_dir` and its `checkpoint`, if it has one yet.

    Raises:
        UsageError: the run or the checkpoint does not exist.
        DataError: a file is missing or altered.
    """
    run = open_run(run_dir)
    name = None
    if run.checkpoints and (checkpoint not in POINTERS or run.pointer(checkpoint)):
        name = run.resolve_checkpoint(checkpoint)
    weights = {}
    if name is not None:
        weights[f"{name}/{MODEL}"] = run.weights_sha256(name)
    # The best score is shown with the validation, with its signature.
    status = run.status().model_dump(exclude_unset=True, exclude={"best_score"})
    scores: dict[str, object] = {}
    if validation := validation_of(run, name):
        shown = validation.model_dump(include={"nll", "bleu", "bleu_signature"})
        scores[f"val, step {validation.step}"] = shown
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
    with suppress(DataError, OSError):  # the run's data may be missing
        prepared = open_prepared(Path(run.manifest.prepared.folder), verify=False)
        if prepared.continues(run.manifest.prepared.sha256):
            inputs = prepared.manifest.inputs
    return {
        "run": {"folder": str(run_dir), "checkpoint": name, **status},
        "parameters": parameters_by_part(run.parameter_shapes),
        "vocabulary": vocabulary,
        "scores": scores,
        "data": {
            "prepared_folder": run.manifest.prepared.folder,
            "prepared_sha256": run.manifest.prepared.sha256,
            **inputs,
        },
        "sha256": {**run.manifest.sha256, **weights},
        "environment": run.environment(),
        "config": run.config.model_dump(mode="json"),
    }


def parameters_by_part(shapes: Mapping[str, Shape]) -> dict[str, object]:
    """Number of parameters per part, and in `total`; shared ones count for the first part."""
    counts = Counter(dict.fromkeys(PARTS, 0))
    for name, shape in shapes.items():
        part = next((part for part, names in PARTS.items() if re.match(names, name)), "other")
        counts[part] += math.prod(shape)
    return {**counts, "total": sum(counts.values())}


def _first_entries(tokenizer: Tokenizer) -> list[str]:
    """The most frequent words or first learned subwords, without special symbols and bytes."""
    entries = tokenizer.tokens(range(len(SPECIALS), tokenizer.vocab_size))
    return [entry for entry in entries if not re.fullmatch(r"<0x[0-9A-F]{2}>", entry)][:NUM_ENTRIES]


def facts_as_text(description: Description) -> str:
    """The description as text, by section, with only the config keys that are not defaults."""
    sections = {name: facts for name, facts in description.items() if name != "config" and facts}
    changed = differences(Config(), parse_config(description["config"]))
    not_default = {path: own for path, (_, own) in changed.items() if own not in ("", None)}
    sections["config, where it differs from the defaults"] = not_default
    blocks = []
    for name, facts in sections.items():
        margin = max(map(len, facts), default=0)
        rows = [f"  {key:<{margin}}  {_value(value)}" for key, value in facts.items()]
        blocks.append("\n".join([name, *rows]))
    return "\n\n".join(blocks)


def _value(value: object) -> str:
    match value:
        case {"bleu": {"score": float(score), "signature": signature}, **others}:
            checkpoint = others.get("checkpoint", "of an unknown checkpoint")
            return f"BLEU {score:.2f}  {signature}  {checkpoint}"
        case {"bleu": float(score), "bleu_signature": signature, "nll": float(nll)}:
            return f"BLEU {score:.2f}  {signature}  nll {nll:.4f}"
        case int() if not isinstance(value, bool):
            return f"{value:,}"
        case dict():
            return ", ".join(f"{name} {_value(each)}" for name, each in value.items())
        case list():
            return "  ".join(_value(each) for each in value)
    return str(value)


def shapes_as_text(traced: "Sequence[ModuleShapes]") -> str:
    """A row for each module: its name, and the shapes of inputs and output."""
    rows = []
    for module in traced:
        name = module["name"].removeprefix("backend.")
        rows.append((name, "  ".join(map(_shape, module["inputs"])), _shape(module["output"])))
    names = max(len(name) for name, _, _ in rows)
    inputs = max(len(shapes) for _, shapes, _ in rows)
    return "\n".join(f"{name:<{names}}  {shapes:<{inputs}}  {out}" for name, shapes, out in rows)


def _shape(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape))


BEST_FIRST = ("bleu", "val_bleu", "chrf")
"""Columns that are sorted with the best first."""


@dataclass(frozen=True)
class RunSummary:
    """A run in the table of runs."""

    folder: Path
    state: str
    """The state in status.json; `killed` if that is `running` but no process holds the lock."""
    reason: str | None
    """Why it did not finish: the signal or the error."""
    step: int | None
    total_steps: int | None
    epoch: int | None
    seconds_left: float | None
    """Remaining training time, at the speed so far."""
    updated_at: str
    """When it last wrote a measurement or its status: ISO 8601, UTC."""
    val_bleu: float | None
    """BLEU of the best checkpoint in its validation."""
    bleu: float | None
    """BLEU of the best checkpoint on its first test split, with the best search evaluated."""
    chrf: float | None
    """chrF2 of the same translations."""
    evaluation: str | None
    """Folder of both scores in `eval/`."""
    signatures: list[str]
    """sacreBLEU's signatures of BLEU and chrF2, if there are scores."""
    num_parameters: int
    minutes: float | None
    """Training time."""
    recipe: Recipe
    differs: dict[str, object]
    """Config keys whose value differs from the most common one among the runs; None: not set."""

    @property
    def is_finished(self) -> bool:
        """Whether the training is finished."""
        return self.state in FINISHED


def rows_of(runs: Sequence[RunSummary]) -> list[list[RunSummary]]:
    """The runs of each table row: finished ones that differ only in their seed share a row."""
    return joined_by_seed(runs, [each.recipe if each.is_finished else None for each in runs])


def summarize_runs(folder: Path, *, sort: str = "name") -> list[RunSummary]:
    """Summarize all runs in `folder`; damaged ones are skipped with a warning.

    Raises:
        UsageError: the folder has no runs.
    """
    summaries: list[RunSummary] = []
    configs = []
    for run_folder in run_folders(folder):
        try:
            run = open_run(run_folder)
            summaries.append(_summary(run))
            configs.append(run.config)
        except (MtCliError, OSError) as error:
            log.warning("skipped: %s", error)
    if not summaries:
        what = "has no runs" if folder.exists() else "no such folder"
        raise UsageError(f"{folder}: {what}; mt-cli train CONFIG creates a run in runs/")
    for summary, differs in zip(summaries, _uncommon_values(configs), strict=True):
        summary.differs.update(differs)
    if sort == "name":
        return summaries
    with_value = [summary for summary in summaries if getattr(summary, sort) is not None]
    without_value = [summary for summary in summaries if getattr(summary, sort) is None]
    with_value.sort(key=lambda summary: getattr(summary, sort), reverse=sort in BEST_FIRST)
    return with_value + without_value


def _summary(run: Run) -> RunSummary:
    status = run.status()
    checkpoint = run.best_checkpoint
    validation = validation_of(run, checkpoint)
    signatures = [] if validation is None else [validation.bleu_signature]
    tests = [split for split in run.config.data.splits if split not in (TRAIN, VAL)]
    evaluations = []
    for evaluation in kept_evaluations(run, checkpoint=checkpoint):
        if evaluation.split in tests[:1] and "bleu" in evaluation.scores:
            evaluations.append(evaluation)
    best = max(evaluations, key=lambda of: float(of.scores["bleu"]["score"]), default=None)
    scores = {} if best is None else best.scores
    if best is not None:
        signatures = [scores[key]["signature"] for key in ("bleu", "chrf") if key in scores]
    state: str = status.state or "unknown"
    if state == "running" and not is_locked(run.folder):
        state = "killed"
    step = status.step
    epoch = status.epoch
    seconds = status.elapsed_s
    seconds_left = None
    steps, _ = read_metrics(run.metrics_path) if state == "running" else ([], [])
    if steps:  # status.json is as old as the last checkpoint
        step = steps[-1].step
        epoch = steps[-1].epoch
        seconds = steps[-1].elapsed_s
    if state == "running" and step and status.total_steps and seconds is not None:
        seconds_left = seconds / step * max(0, status.total_steps - step)
    written = [path for path in (run.folder / STATUS, run.metrics_path) if path.exists()]
    updated = max((path.stat().st_mtime for path in written), default=0.0)
    return RunSummary(
        folder=run.folder,
        state=state,
        reason=status.reason or None,
        step=step,
        total_steps=status.total_steps,
        epoch=epoch,
        seconds_left=seconds_left,
        updated_at=datetime.fromtimestamp(updated, UTC).isoformat(timespec="seconds"),
        val_bleu=None if validation is None else validation.bleu,
        bleu=scores.get("bleu", {}).get("score"),
        chrf=scores.get("chrf", {}).get("score"),
        evaluation=None if best is None else best.name,
        signatures=signatures,
        num_parameters=num_parameters(run.parameter_shapes),
        minutes=None if seconds is None else seconds / 60,
        recipe=run.recipe,
        differs={},
    )


def _uncommon_values(configs: Sequence[Config]) -> list[dict[str, object]]:
    """For each config, the values that differ from the most common ones."""
    all_values = [flat(config) for config in configs]
    uncommon: list[dict[str, object]] = [{} for _ in configs]
    for key in dict.fromkeys(chain.from_iterable(all_values)):
        texts = [json.dumps(values.get(key)) for values in all_values]
        most_common = mode(texts)
        for found, values, text in zip(uncommon, all_values, texts, strict=True):
            if text != most_common:
                found[key] = values.get(key)
    return uncommon
