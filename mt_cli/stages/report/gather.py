"""Gathers what a report shows: opens runs, translates what is not kept, scores and picks examples.

Knows runs and test sets, nothing of pages.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from mt_cli import __version__
from mt_cli.artefacts.checkpoint import MODEL, weights_sha256
from mt_cli.artefacts.exported_run import ExportedRun
from mt_cli.artefacts.run import Run
from mt_cli.artefacts.run_facts import ENVIRONMENT, read_facts
from mt_cli.config import Backend, Config, Device, differences, dump_config
from mt_cli.errors import DataError, UsageError
from mt_cli.model.shapes import num_parameters
from mt_cli.stages.compare.compare import (
    check_same_direction,
    check_tests_fit,
    compare_translations,
    test_splits_of,
    translations_of,
    unseen_words,
)
from mt_cli.stages.curves import curves_of_run
from mt_cli.stages.inspect.inspect import describe_status
from mt_cli.stages.kept_scores import kept_scores
from mt_cli.stages.plot import labels_of
from mt_cli.stages.report.examples import pick_examples
from mt_cli.stages.report.findings import Findings, RunFacts, Slice, TestSetFindings
from mt_cli.stages.system import EvalSet, System
from mt_cli.translation.changes import places_by_length, places_by_unseen_words
from mt_cli.translation.options import SearchOptions
from mt_cli.translation.scoring import score, score_bleu, score_chrf, sentence_chrf
from mt_cli.translation.symptoms import symptoms
from mt_cli.translation.unknown_words import unk_rate


def gather_findings(
    run_dirs: Sequence[Path],
    *,
    splits: Sequence[str] = (),
    num_examples: int = 30,
    data_dir: Path | None = None,
    checkpoint: str = "best",
    backend: Backend = "scratch",
    device: Device = "auto",
    threads: int = 0,
    search: SearchOptions | None = None,
) -> Findings:
    """All that a report on one run shows, or on two, of which the first is the baseline.

    Runs translate, unless the translations of this very checkpoint and search are kept in their folder. The
    test sets are the `splits` of the first run's data, by default every test split.

    Raises:
        UsageError: no run, more than two, or no such split or checkpoint.
        DataError: a file is damaged, or the data are gone and nothing is kept of them.
    """
    if not 1 <= len(run_dirs) <= 2:
        raise UsageError(f"a report shows one run, or two side by side; found {len(run_dirs)}")
    if len(run_dirs) == 2 and run_dirs[0].resolve() == run_dirs[1].resolve():
        raise UsageError(f"{run_dirs[1]}: named twice; name two runs, or one")
    systems = [
        System(
            [run_dir],
            checkpoint=checkpoint,
            backend=backend,
            device=device,
            threads=threads,
            search=search,
        )
        for run_dir in run_dirs
    ]
    trained = [_trained(system) for system in systems]
    check_same_direction(trained)
    names = labels_of(run_dirs)
    first = systems[0]
    test_sets = test_splits_of(first, splits, data_dir=data_dir)
    if len(systems) == 2:
        check_tests_fit(test_sets)
    unseen = unseen_words(first.run, test_sets, data_dir=data_dir)
    found = tuple(
        _gather_test_set(test_set, systems, names, unseen=unseen, num_examples=num_examples)
        for test_set in test_sets
    )
    return Findings(
        runs=tuple(
            _facts(run, system.checkpoint, name)
            for run, system, name in zip(trained, systems, names, strict=True)
        ),
        test_sets=found,
        search=tuple(system.decoding for system in systems),
        version=__version__,
    )


def _trained(system: System) -> Run:
    """The run of `system`, whose training is known."""
    if isinstance(system.run, ExportedRun):
        raise UsageError(
            f"{system.run.folder}: an exported model says nothing of its training; report on the run that it "
            f"was exported from: {system.run.exported_from.folder}"
        )
    return system.run


def _facts(run: Run, checkpoint: str, name: str) -> RunFacts:
    weights = weights_sha256(run.checkpoint_folder(checkpoint), run.parameter_shapes)
    curves, no_curves = None, ""
    try:
        curves = curves_of_run(run.folder)
    except DataError as error:
        no_curves = error.with_flags()
    return RunFacts(
        name=name,
        folder=str(run.folder),
        checkpoint=checkpoint,
        src_lang=run.config.data.src_lang,
        tgt_lang=run.config.data.tgt_lang,
        corpus=run.config.data.corpus,
        num_parameters=num_parameters(run.parameter_shapes),
        status=describe_status(run),
        settings={path: value for path, (_, value) in differences(Config(), run.config).items()},
        config=dump_config(run.config),
        environment=read_facts(run.folder, ENVIRONMENT),
        sha256={
            f"{checkpoint}/{MODEL}": weights,
            "prepared data": run.prepared.sha256,
            **run.sha256,
        },
        curves=curves,
        no_curves=no_curves,
        kept=kept_scores(run, checkpoint=checkpoint),
    )


def _gather_test_set(
    test_set: EvalSet,
    systems: Sequence[System],
    names: Sequence[str],
    *,
    unseen: frozenset[str] | None,
    num_examples: int,
) -> TestSetFindings:
    lowercase = systems[0].run.config.data.lowercase
    sources, refs = test_set.sources, test_set.refs
    hyps = [translations_of(system.run.folder, system, test_set) for system in systems]
    of_sentences = tuple(tuple(sentence_chrf(each, refs, lowercase=lowercase)) for each in hyps)
    unseen_places = None if unseen is None else places_by_unseen_words(sources, unseen)
    comparison = None
    if len(systems) == 2:
        comparison = compare_translations(test_set, hyps, names, lowercase=lowercase, unseen=unseen)
    return TestSetFindings(
        name=test_set.name,
        scores=tuple(score(each, refs, lowercase=lowercase) for each in hyps),
        unk_rates=tuple(unk_rate(sources, system.run.tokenizers) for system in systems),
        symptoms=tuple(tuple(symptoms(each, refs)) for each in hyps),
        comparison=comparison,
        sentence_chrf=of_sentences,
        by_length=_slices(places_by_length(sources), hyps, refs, lowercase=lowercase),
        by_unseen_words=(
            None if unseen_places is None else _slices(unseen_places, hyps, refs, lowercase=lowercase)
        ),
        groups=pick_examples(
            test_set, hyps, of_sentences, systems, num_examples=num_examples, lowercase=lowercase
        ),
    )


def _slices(
    places_by_label: Mapping[str, Sequence[int]],
    hyps: Sequence[Sequence[str]],
    refs: Sequence[str],
    *,
    lowercase: bool,
) -> tuple[Slice, ...]:
    """The scores of each run on each kind of sentence."""
    slices = []
    for label, places in places_by_label.items():
        of_refs = [refs[place] for place in places]
        of_runs = [[each[place] for place in places] for each in hyps]
        slices.append(
            Slice(
                label,
                n=len(places),
                bleu=tuple(score_bleu(each, of_refs, lowercase=lowercase).score for each in of_runs),
                chrf=tuple(score_chrf(each, of_refs, lowercase=lowercase).score for each in of_runs),
            )
        )
    return tuple(slices)
