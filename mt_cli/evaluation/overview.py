"""`runs`: all runs under a folder, one a line, and in what their configs differ."""

import logging
from collections import Counter
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
    """Keys of the config with another value than most runs here have; None is not set."""


def summarise_runs(folder: Path, *, sort: str = "name") -> list[RunSummary]:
    """What is known of each run in `folder`, damaged ones left out with a warning; the best score first.

    Raises:
        UsageError: there is none.
    """
    runs = list[Run]()
    for path in sorted(folder.glob(f"*/{MANIFEST}")):
        try:
            runs.append(open_run(path.parent))
        except MtCliError as error:
            log.warning("%s", error)
    if not runs:
        raise UsageError(f"{folder}: no run in it; mt-cli train CONFIG makes one in runs/")
    odd = _odd_keys([run.config for run in runs])
    found = list[RunSummary]()
    for run, differs in zip(runs, odd, strict=True):
        try:
            found.append(_summary(run, differs))
        except MtCliError as error:
            log.warning("%s", error)
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
    kept = kept_scores(run, checkpoint=checkpoint)
    tests = [split for split in run.config.data.splits if split not in (TRAIN, VAL)]
    of_test = [each for each in kept if tests and str(each["evaluation"]).startswith(f"{tests[0]}-")]
    by_search: dict[str, dict[str, dict[str, object]]] = {}
    for each in of_test:
        by_search.setdefault(str(each["evaluation"]), {})[str(each["metric"])] = each
    name, best = max(
        by_search.items(),
        key=lambda item: _number(item[1].get("bleu", {}), "score") or 0.0,
        default=(None, {}),
    )
    signed = [best[metric] for metric in ("bleu", "chrf") if metric in best]
    signatures = [each["signature"] for each in signed] or [validation.get("bleu_signature")]
    state, step, seconds = (status.get(key) for key in ("state", "step", "elapsed_s"))
    return RunSummary(
        folder=run.folder,
        state="killed" if state == "running" and not is_locked(run.folder) else str(state),
        step=step if isinstance(step, int) else None,
        val_bleu=_number(validation, "bleu"),
        bleu=_number(best.get("bleu", {}), "score"),
        chrf=_number(best.get("chrf", {}), "score"),
        evaluation=name,
        signatures=[str(each) for each in signatures if each],
        num_parameters=num_parameters(run.parameter_shapes),
        minutes=seconds / 60 if isinstance(seconds, int | float) else None,
        differs=differs,
    )


def _number(record: Mapping[str, object], key: str) -> float | None:
    value = record.get(key)
    return float(value) if isinstance(value, int | float) else None


def _odd_keys(configs: Sequence[Config]) -> list[dict[str, object]]:
    """Of each config, the keys to which most of the others give another value."""
    changed = [{path: value for path, (_, value) in differences(Config(), each).items()} for each in configs]
    paths = dict.fromkeys(path for each in changed for path in each)
    defaults = {path: before for each in configs for path, (before, _) in differences(Config(), each).items()}
    usual = {}
    for path in paths:
        values = [each.get(path, defaults[path]) for each in changed]
        most = Counter(map(repr, values)).most_common(1)[0][0]
        usual[path] = next(value for value in values if repr(value) == most)
    return [
        {path: value for path in paths if (value := each.get(path, defaults[path])) != usual[path]}
        for each in changed
    ]
