"""`runs`: all runs under a folder, one a line, and in what their configs differ."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mt_cli.config.load import differences
from mt_cli.config.schema import TRAIN, VAL, Config
from mt_cli.errors import MtCliError, UsageError
from mt_cli.evaluation.card import kept_scores, validation_of
from mt_cli.machine.files import MANIFEST, is_locked
from mt_cli.runs.run import STATUS, Run, num_parameters, open_run

log = logging.getLogger(__name__)
LARGEST = 1e9
"""No score and no time is as large, but a damaged file may say so."""


@dataclass(frozen=True)
class RunSummary:
    """A run in a line."""

    folder: Path
    state: str
    """As status.json has it; `killed` if it says `running` and nobody is at work there."""
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
    """Config keys whose value differs from the most common one among these runs; None means not
    set.
    """


def summarise_runs(folder: Path, *, sort: str = "name") -> list[RunSummary]:
    """What is known of each run in `folder`, damaged ones left out with a warning; the best score
    first.

    Raises:
        UsageError: there is none.
    """
    runs = list[Run]()
    for path in sorted(folder.glob(f"[!.]*/{MANIFEST}")):
        try:
            runs.append(open_run(path.parent))
        except MtCliError as error:
            log.warning("left out: %s", error)
    if not runs:
        raise UsageError(f"{folder}: no run in it; mt-cli train CONFIG makes one in runs/")
    odd = _odd_keys([run.config for run in runs])
    found = list[RunSummary]()
    for run, differs in zip(runs, odd, strict=True):
        try:
            found.append(_summary(run, differs))
        except MtCliError as error:
            log.warning("left out: %s", error)
    if sort == "name":
        return found
    values = {each.folder: getattr(each, sort) for each in found}
    is_score = sort in ("bleu", "val_bleu", "chrf")
    known = [each for each in found if values[each.folder] is not None]
    known.sort(key=lambda each: values[each.folder], reverse=is_score)
    return known + [each for each in found if values[each.folder] is None]


def _summary(run: Run, differs: dict[str, object]) -> RunSummary:
    status = run.read_facts(STATUS)
    checkpoint = run.resolve_checkpoint("best") if run.pointer("best") else None
    validation = validation_of(run, checkpoint)
    test = next((split for split in run.config.data.splits if split not in (TRAIN, VAL)), None)
    of_test = [each for each in kept_scores(run, checkpoint=checkpoint) if each["split"] == test]
    bleus = [each for each in of_test if each["metric"] == "bleu"]
    bleu = max(bleus, key=lambda each: _number(each, "score") or 0.0, default={})
    evaluation = bleu.get("evaluation")
    chrfs = [
        each for each in of_test if each["metric"] == "chrf" and each["evaluation"] == evaluation
    ]
    signatures = [each["signature"] for each in (bleu, *chrfs) if each] or [
        validation.get("bleu_signature")
    ]
    state, seconds = status.get("state"), _number(status, "elapsed_s")
    return RunSummary(
        folder=run.folder,
        state="killed"
        if state == "running" and not is_locked(run.folder)
        else str(state or "unknown"),
        step=step if isinstance(step := status.get("step"), int) else None,
        val_bleu=_number(validation, "bleu"),
        bleu=_number(bleu, "score"),
        chrf=_number(chrfs[0], "score") if chrfs else None,
        evaluation=None if evaluation is None else str(evaluation),
        signatures=[str(each) for each in signatures if each],
        num_parameters=num_parameters(run.parameter_shapes),
        minutes=None if seconds is None else seconds / 60,
        differs=differs,
    )


def _number(record: Mapping[str, object], key: str) -> float | None:
    """The number under `key`, if there is one that can be true of a run."""
    match record.get(key):
        case bool():
            return None
        case int() | float() as number if 0 <= number < LARGEST:
            return float(number)
    return None


def _odd_keys(configs: Sequence[Config]) -> list[dict[str, object]]:
    """For each config, the keys to which others give another value more often."""
    changed = [
        differences(Config(), each) for each in configs
    ]  # of the default, by path: both values
    defaults = {path: default for each in changed for path, (default, _) in each.items()}
    values = {
        path: [each.get(path, (default, default))[1] for each in changed]
        for path, default in defaults.items()
    }
    usual = {path: max(found, key=found.count) for path, found in values.items()}
    return [
        {path: found[number] for path, found in values.items() if found[number] != usual[path]}
        for number in range(len(configs))
    ]
