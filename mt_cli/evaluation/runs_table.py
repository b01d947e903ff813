"""`runs`: all runs under a folder, one a line, and in what their configs differ."""

import logging
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mt_cli.config.load import differences
from mt_cli.config.schema import TRAIN, VAL, Config
from mt_cli.errors import MtCliError, UsageError
from mt_cli.evaluation.kept import kept_scores, validation_of
from mt_cli.machine.files import MANIFEST, is_locked
from mt_cli.model.model import num_parameters
from mt_cli.runs.opening import open_run
from mt_cli.runs.run import STATUS, Run

log = logging.getLogger(__name__)
SCORES = ("bleu", "val_bleu", "chrf")
"""What is sorted with the best first."""


@dataclass(frozen=True)
class RunSummary:
    """A run in a line."""

    folder: Path
    state: str
    """That of status.json; `killed` if it says `running` and nobody is at work there."""
    step: int | None
    val_bleu: float | None
    """Of the best checkpoint, when it was validated."""
    bleu: float | None
    """Of the best checkpoint on its first test split, by the best search that was evaluated."""
    chrf: float | None
    """chrF2 of the same translations."""
    evaluation: str | None
    """The folder in `eval/` of both."""
    signatures: list[str]
    num_parameters: int
    minutes: float | None
    """Of training."""
    differs: dict[str, object]
    """Config keys whose value is not the most common one among these runs; None means not set."""


def summarize_runs(folder: Path, *, sort: str = "name") -> list[RunSummary]:
    """A summary of each run in `folder`; damaged ones are left out with a warning.

    Raises:
        UsageError: there is none.
    """
    runs: list[Run] = []
    for path in sorted(folder.glob(f"[!.]*/{MANIFEST}")):
        try:
            runs.append(open_run(path.parent))
        except MtCliError as error:
            log.warning("left out: %s", error)
    if not runs:
        what = "no run in it" if folder.exists() else "no such folder"
        raise UsageError(f"{folder}: {what}; mt-cli train CONFIG makes a run in runs/")
    uncommon = _uncommon_values([run.config for run in runs])
    found: list[RunSummary] = []
    for run, differs in zip(runs, uncommon, strict=True):
        try:
            found.append(_summary(run, differs))
        except MtCliError as error:
            log.warning("left out: %s", error)
    if sort == "name":
        return found
    known = [each for each in found if getattr(each, sort) is not None]
    unknown = [each for each in found if getattr(each, sort) is None]
    known.sort(key=lambda each: getattr(each, sort), reverse=sort in SCORES)
    return known + unknown


def _summary(run: Run, differs: dict[str, object]) -> RunSummary:
    status = run.read_facts(STATUS)
    checkpoint = run.best_checkpoint
    validation = validation_of(run, checkpoint)
    signatures = [str(validation["bleu_signature"])] if "bleu_signature" in validation else []
    tests = [split for split in run.config.data.splits if split not in (TRAIN, VAL)]
    scores = [
        score
        for score in kept_scores(run, checkpoint=checkpoint)
        if tests and score.split == tests[0]
    ]
    bleus = [score for score in scores if score.metric == "bleu"]
    best = max(bleus, key=lambda score: score.score, default=None)
    chrf = None
    if best is not None:
        signatures = [best.signature]
        for score in scores:
            if score.metric == "chrf" and score.evaluation == best.evaluation:
                chrf = score.score
                signatures.append(score.signature)
    state = str(status.get("state") or "unknown")
    if state == "running" and not is_locked(run.folder):
        state = "killed"
    step = status.get("step")
    seconds = _number(status, "elapsed_s")
    return RunSummary(
        folder=run.folder,
        state=state,
        step=step if isinstance(step, int) else None,
        val_bleu=_number(validation, "bleu"),
        bleu=None if best is None else best.score,
        chrf=chrf,
        evaluation=None if best is None else best.evaluation,
        signatures=signatures,
        num_parameters=num_parameters(run.parameter_shapes),
        minutes=None if seconds is None else seconds / 60,
        differs=differs,
    )


def _number(record: Mapping[str, object], key: str) -> float | None:
    """The number under `key`, if there is one."""
    value = record.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # Python reads integers of any size from JSON, and Infinity too.
    return float(value) if abs(value) < sys.float_info.max else None


def _uncommon_values(configs: Sequence[Config]) -> list[dict[str, object]]:
    """For each config, its values that are not the most common ones of their keys."""
    default = Config()
    changed = [differences(default, config) for config in configs]
    uncommon: list[dict[str, object]] = [{} for _ in configs]
    keys = dict.fromkeys(key for each in changed for key in each)
    for key in keys:
        values = []
        for each in changed:
            _, value = each.get(key, (None, None))
            values.append(value if key in each else _default_of(key, changed))
        most_common, _ = Counter(map(repr, values)).most_common(1)[0]
        for found, value in zip(uncommon, values, strict=True):
            if repr(value) != most_common:
                found[key] = value
    return uncommon


def _default_of(key: str, changed: Sequence[Mapping[str, tuple[object, object]]]) -> object:
    for each in changed:
        if key in each:
            return each[key][0]
    return None
