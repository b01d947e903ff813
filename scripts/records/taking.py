"""Takes the record of a run from what training and `evaluate` have written; refuses what is not whole.

Knows run folders and configs, not where records are kept.
"""

import logging
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from mt_cli.artefacts.checkpoint import checkpoint_name, weights_sha256
from mt_cli.artefacts.evaluation import kept_evaluations, open_evaluation
from mt_cli.artefacts.run import Run, open_run
from mt_cli.artefacts.run_facts import ENDED, ENVIRONMENT, STATUS, read_facts
from mt_cli.config import Config, differences, load_config
from mt_cli.errors import DataError, UsageError, command_line
from mt_cli.model.shapes import num_parameters
from mt_cli.stages.kept_scores import test_set_and_decoding
from records.record import Evaluation, Metric, Record, Validation
from records.sentence_statistics import bleu_of, pack, statistics_of
from records.training_changes import full_commit

log = logging.getLogger("mt_cli.records")

SEARCH = re.compile(r"(greedy|beam\d+-alpha[\d.]+)(-norepeat\d+)?(-no-replace-unk)?(-bf16)?", re.ASCII)
"""A search by the best checkpoint of the run; other checkpoints and backends have other names."""
WITH_OTHERS = re.compile(r"-(with|reranked)-.*")
"""What follows the search in the name of a folder, if more than one run made its translations."""
NOT_OF_THE_MODEL = ("runtime.", "decoding.")
"""Keys that say where and how a model is run; the record has the facts."""
ROUNDING = 1e-6


def take_record(
    run_dir: Path, *, root: Path, config_name: str | None = None, commit: str | None = None
) -> Record:
    """The record of the run in `run_dir`.

    `config_name` is that of the nearest config below `root / "configs"` unless given. `commit` is for a run
    whose env.json names none.

    Raises:
        UsageError: the run is unfinished or not evaluated, an evaluation is of another checkpoint than the
            best, or the config or the commit is not known.
        DataError: a file is damaged.
    """
    run = open_run(run_dir)
    status = read_facts(run.folder, STATUS)
    if status.get("state") not in ENDED:
        finish = command_line("train", run.folder / "config.toml", "--run", run.folder, "--resume")
        raise UsageError(f"{run.folder}: its training is not finished ({status.get('state')}); {finish}")
    checkpoint = run.resolve_checkpoint("best")
    evaluations = tuple(_evaluations(run, checkpoint))
    if not evaluations:
        raise UsageError(f"{run.folder}: not evaluated yet; {command_line('evaluate', run.folder)}")
    configs = configs_in(root / "configs")
    if config_name is not None and config_name not in configs:
        raise UsageError(f"--config {config_name}: no such config; there are {', '.join(configs)}")
    environment = read_facts(run.folder, ENVIRONMENT)
    commit, commit_from = _commit(run, environment, commit, root)
    return Record(
        config_name=config_name or nearest_config(run.config, configs),
        config=run.config.model_dump(mode="json", exclude_none=True),
        init_from=run.init_from.folder if run.init_from else None,
        commit=commit,
        commit_from=commit_from,
        parameters=num_parameters(run.parameter_shapes),
        checkpoint=checkpoint,
        weights_sha256=weights_sha256(run.checkpoint_folder(checkpoint), run.parameter_shapes),
        status=status,
        environment=environment,
        validation=_validation(run, checkpoint),
        evaluations=evaluations,
        prepared_sha256=run.prepared.sha256,
    )


def nearest_config(config: Config, published: Mapping[str, Config]) -> str:
    """Name of the one of `published` that differs from `config` in the fewest keys of model and training.

    Raises:
        UsageError: several do, or none is of the same corpus.
    """
    found: dict[int, list[str]] = {}
    for name, other in published.items():
        if other.data.corpus == config.data.corpus:
            found.setdefault(len(model_differences(other, config)), []).append(name)
    nearest = found[min(found)] if found else []
    if len(nearest) != 1:
        several = f"{', '.join(nearest)} are equally near" if nearest else "none is of the same corpus"
        raise UsageError(
            f"it is not clear which config the run was made from: {several}; name it with --config"
        )
    return nearest[0]


def configs_in(folder: Path) -> dict[str, Config]:
    """The configs below `folder`, without the files of sweeps, by path and without `.toml`."""
    paths = sorted(path for path in folder.rglob("*.toml") if path.parent.name != "sweeps")
    return {path.relative_to(folder).with_suffix("").as_posix(): load_config(path) for path in paths}


def model_differences(published: Config, own: Config) -> dict[str, object]:
    """What `own` sets otherwise than `published`, of all that makes a model, by key; None: not set."""
    return of_the_model(differences(published, own))


def of_the_model(differing: Mapping[str, tuple[object, object]]) -> dict[str, object]:
    """The second values of those `differing` keys that make a model."""
    return {key: value for key, (_, value) in differing.items() if not key.startswith(NOT_OF_THE_MODEL)}


def _commit(run: Run, environment: Mapping[str, object], given: str | None, root: Path) -> tuple[str, str]:
    """The commit that the run was trained at, and who says so."""
    known = environment.get("commit")
    if isinstance(known, str):
        if given is not None:
            raise UsageError(f"{run.folder}: env.json names its commit, {known}; leave --commit out")
        return known, "env.json"
    if given is None:
        raise UsageError(
            f"{run.folder}: env.json names no commit; name the one that it was trained at: --commit"
        )
    full = full_commit(given, root)
    if full is None:
        raise UsageError(f"--commit {given}: no such commit in this repository")
    return full, "--commit"


def _validation(run: Run, checkpoint: str) -> Validation:
    """The last validation of `checkpoint` in metrics.jsonl."""
    found = [
        Validation(each.step, each.number("bleu"), each.text("bleu_signature"), each.number("nll"))
        for each in run.metrics()
        if each.kind == "validation" and checkpoint_name(each.step) == checkpoint
    ]
    if not found:
        raise DataError(f"{run.metrics_path}: holds no validation of {checkpoint}, the best checkpoint")
    return found[-1]


def _evaluations(run: Run, checkpoint: str) -> Iterator[Evaluation]:
    """Each kept evaluation of a split by the best checkpoint; the log names those left out.

    Raises:
        UsageError: two systems have the same name, as after another run was trained anew.
    """
    taken: dict[tuple[str, str], Path] = {}
    for folder in kept_evaluations(run.folder):
        split, search = test_set_and_decoding(folder.name, run.config.data.splits)
        search = WITH_OTHERS.sub("", search)
        if SEARCH.fullmatch(search):
            found = _evaluation(run, folder, split, search, checkpoint)
            if (other := taken.setdefault((found.split, found.search), folder)) != folder:
                raise UsageError(f"{other} and {folder.name} are both {found.search}; remove the older one")
            yield found
        else:
            log.info("%s: left out; a record has the splits that the best checkpoint translated", folder)


def _evaluation(run: Run, folder: Path, split: str, search: str, checkpoint: str) -> Evaluation:
    kept = open_evaluation(folder, run=run.folder)
    again = f"remove it, and evaluate again: {command_line('evaluate', run.folder, '--split', split)}"
    if kept is None:
        raise DataError(f"{folder}: altered or damaged: its files do not belong together; {again}")
    if kept.record.get("checkpoint") != checkpoint:
        raise UsageError(
            f"{folder}: made by {kept.record.get('checkpoint')}, but {checkpoint} is best; {again}"
        )
    counts = statistics_of(kept.hyps, kept.refs, lowercase=run.config.data.lowercase)
    bleu = _metric(kept.record, "bleu", folder)
    if abs(bleu_of(counts) - bleu.score) > ROUNDING:
        raise DataError(
            f"{folder}: BLEU is {bleu_of(counts):.4f}, but scores.json says {bleu.score:.4f}; {again}"
        )
    speed, digests = kept.record.get("sentences_per_s"), kept.record["sha256"]
    assert isinstance(digests, dict)  # it is that of the files
    return Evaluation(
        split,
        search + other_runs(kept.record),
        n=len(kept.hyps),
        bleu=bleu,
        chrf=_metric(kept.record, "chrf", folder),
        ter=_metric(kept.record, "ter", folder),
        sentences_per_s=speed if isinstance(speed, float) else None,
        sha256=digests,
        statistics=pack(counts),
    )


def other_runs(record: Mapping[str, object]) -> str:
    """The other runs that a system is made of, in words; nothing of a model alone."""
    members = record.get("with")
    words = ""
    if isinstance(members, list):
        words = f", with {' and '.join(str(member['run']) for member in members)}"
    match record.get("reranked_by"):
        case {"run": str(run), "weights": {"reverse": int(reverse) | float(reverse), "length": length}}:
            words += f", reranked by {run} ({reverse:g}, {length:g})"
    return words


def _metric(record: Mapping[str, object], name: str, folder: Path) -> Metric:
    match record.get(name):
        case {"score": int(score) | float(score), "signature": str(signature), **others}:
            width = others.get("confidence_var")
            return Metric(float(score), float(width) if isinstance(width, float) else None, signature)
    raise DataError(f"{folder}: scores.json has no {name}; evaluate again")
