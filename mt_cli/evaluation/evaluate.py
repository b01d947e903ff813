"""`evaluate`: test sets translated, scored against untouched references, and kept in the run."""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from pathlib import Path

from mt_cli.errors import DataError, ResourceError, UsageError
from mt_cli.evaluation.kept import (
    SPLIT,
    WEIGHTS,
    Evaluation,
    write_card,
    write_evaluation,
)
from mt_cli.evaluation.scoring import Scores, score, symptoms
from mt_cli.evaluation.test_sets import EvalChoice, EvalSet, pinned_splits
from mt_cli.machine.files import built_beside, locked, sha256_json
from mt_cli.machine.terminal import progress_shown
from mt_cli.runs.checkpoint import weights_sha256
from mt_cli.runs.opening import open_models, open_prepared_of
from mt_cli.runs.run import EVALUATIONS, EXPORTED_MODEL, ExportedModel, Run
from mt_cli.translation.lines import unk_rate
from mt_cli.translation.options import DecodingOptions, search_facts, search_name
from mt_cli.translation.translator import Translator

log = logging.getLogger(__name__)

SPEED = "sentences_per_s"
LOCK_WAIT_S = 60.0
"""Seconds that an evaluation waits for another one that is being kept in the same place."""


@dataclass(frozen=True)
class TestSetResult:
    """How a system did on a test set."""

    hyps: list[str]
    scores: Scores
    unk_rate: float
    """Share of the source tokens that the vocabulary lacks; 0 for subwords."""
    sentences_per_s: float
    """From text to text; loading the model does not count."""

    def as_json(self) -> dict[str, object]:
        """The form that `evaluate --json` prints for each test set."""
        return {
            **self.scores.as_json(),
            "unk_rate": self.unk_rate,
            SPEED: self.sentences_per_s,
        }


def evaluate_runs(
    run_dirs: Sequence[Path], options: DecodingOptions, choice: EvalChoice
) -> dict[str, TestSetResult]:
    """How the runs do on each of the chosen test sets, by name.

    Sources, references, translations and scores go to `eval/<split>-<decoding>/` in the first run's
    folder, if it can be written; for the user's own files, a name made of the file's and of a
    digest stands for the split.

    Raises:
        UsageError: no run, no such split or checkpoint, or only one of the two files.
        DataError: the data are gone or are not those of the run; the files are not parallel.
    """
    if choice.ref is not None and choice.data is not None:
        raise UsageError("--data names the data of a split; with --ref, leave it out")
    system = System(run_dirs, options)
    return {test_set.name: system.evaluate(test_set) for test_set in system.test_sets(choice)}


def evaluate(
    *runs: str | PathLike[str],
    splits: str | Sequence[str] = (),
    src: str | PathLike[str] | None = None,
    ref: str | PathLike[str] | None = None,
    data: str | PathLike[str] | None = None,
    noise: str | Sequence[str] = (),
    **options: object,
) -> dict[str, TestSetResult]:
    """`evaluate_runs` for Python; `options` are those of `Translator.load`."""
    choice = EvalChoice.of(splits, src, ref, data, noise)
    return evaluate_runs([Path(run) for run in runs], DecodingOptions.of(options), choice)


class System:
    """One run, or several as an ensemble, that translate test sets with one search.

    The model is loaded when something has to be translated.
    """

    def __init__(self, run_dirs: Sequence[Path], options: DecodingOptions) -> None:
        """Open the runs.

        Raises:
            UsageError: no run, no such checkpoint, an option out of range, vocabularies that
                differ, or a reranking run of the wrong direction.
        """
        self._models: list[Run | ExportedModel] = [*open_models(run_dirs)]
        self.run: Run | ExportedModel = self._models[0]
        """The first, in whose folder results are kept."""
        # By name from here on: what `best` means may change while this runs.
        names = options.checkpoints_of(self._models)
        self.checkpoint = names[0]
        """Name of the first run's checkpoint."""
        made_with: dict[str, object] = {}
        if len(names) > 1:
            others = zip(self._models[1:], names[1:], strict=True)
            made_with["with"] = [_member(other, name) for other, name in others]
            folders = ", ".join(str(model.folder) for model in self._models)
            log.info("ensemble of %d: %s", len(names), folders)
        reranking = options.reranking
        if reranking is not None:
            reverse = reranking.open_run(of=self.run)
            name = reverse.resolve_checkpoint("best")
            weights = {"reverse": reranking.reverse, "length": reranking.length}
            made_with["reranked_by"] = {**_member(reverse, name), "weights": weights}
            options = replace(options, reranking=replace(reranking, checkpoint=name))
        config = options.config_of(self.run)
        facts = search_facts(
            config, self.run.tokenizers, sampling=options.sampling, seed=options.seed
        )
        if options.backend not in (None, self.run.config.model.backend):
            facts["backend"] = options.backend
        self._made_by = {
            "checkpoint": self.checkpoint,
            WEIGHTS: sha256_of_model(self.run, self.checkpoint),
            "search": {"beam_size": config.beam_size, **facts},
            **made_with,
        }
        """Whose translations they are, because a run that goes on makes others later."""
        asked = options.checkpoint
        if set([asked] if isinstance(asked, str) else asked) != {"best"}:
            facts["checkpoint"] = options.checkpoint
        self.decoding = search_name(config, {**facts, **made_with}, sampling=options.sampling)
        """How translations are searched for, and by whom, as the folders in `eval/` are named."""
        self._options = replace(options, checkpoint=names)

    @cached_property
    def translator(self) -> Translator:
        """The loaded model, or models, with the reranker that chooses among their translations."""
        return Translator.of_models(self._models, self._options)

    def test_sets(self, choice: EvalChoice) -> list[EvalSet]:
        """The user's files, or the chosen splits of the run's data; by default every test split.

        Noisy variants follow each, if they are chosen.

        Raises:
            UsageError: no such split, or not the files that are needed.
            DataError: the data are gone or are not those of the run.
        """
        data = self.run.config.data
        files = choice.files(needs_sources=True)
        if files is not None:
            return choice.with_noise([files], data)
        names = self._split_names(choice.splits)
        otherwise = ", or let evaluate score files of your own (--src FILE --ref FILE)"
        if data.corpus == "multi30k":
            otherwise += (
                ". Multi30k's own files do too: prepare fetches them, or --data names their folder"
            )
        found = []
        try:
            prepared = open_prepared_of(self.run, choice.data, otherwise=otherwise)
            for name in names:
                sources = prepared.lines(name, "src")
                found.append(EvalSet(name, sources, prepared.lines(name, "tgt"), name, data))
        except DataError:
            found = pinned_splits(data, names, choice.data)
            if not found:
                raise
        return choice.with_noise(found, data)

    def _split_names(self, wanted: Sequence[str]) -> list[str]:
        known = self.run.config.data.splits
        for name in wanted:
            if name not in known:
                raise UsageError(f"unknown split '{name}'; the run has {', '.join(known)}")
        names = list(dict.fromkeys(wanted))
        if not names:
            names = [name for name in known if name not in ("train", "val")]
        if not names:
            raise UsageError(
                f"{self.run.folder} has no test split; name one of {', '.join(known)} with --split"
            )
        return names

    def evaluate(self, test_set: EvalSet) -> TestSetResult:
        """Translate `test_set`, score the translations, and keep both in the run if possible.

        What looks wrong with the translations is logged as a warning.
        """
        translator = self.translator  # loading the models does not count
        began_at = time.perf_counter()
        label = f"translating {test_set.name}"
        total = len(test_set.sources)
        with progress_shown(label, unit="lines", total=total) as on_progress:
            hyps = translator.translate(test_set.sources, on_progress=on_progress)
        elapsed_s = time.perf_counter() - began_at
        data = self.run.config.data
        result = TestSetResult(
            hyps,
            score(hyps, test_set.refs, lang=data.tgt_lang, lowercase=data.lowercase),
            unk_rate=unk_rate(test_set.sources, self.run.tokenizers),
            sentences_per_s=len(hyps) / elapsed_s,
        )
        for warning in [*symptoms(hyps, test_set.refs), *translator.take_warnings()]:
            log.warning("%s: %s", test_set.name, warning)
        self._keep(test_set, result)
        return result

    # Keeping

    def _folder(self, kept_as: str) -> Path:
        return self.run.folder / EVALUATIONS / f"{kept_as}-{self.decoding}"

    def _kept_as(self, test_set: EvalSet) -> str:
        """Its name in `eval/`, where no other run's split may replace this run's of that name."""
        own = self.run.config.data
        other = test_set.data
        if other is None or other is own:
            return test_set.kept_as
        has_same_corpus = (
            own.corpus == other.corpus
            and own.src_lang == other.src_lang
            and own.tgt_lang == other.tgt_lang
            and own.files.get(test_set.name) == other.files.get(test_set.name)
        )
        if has_same_corpus:
            return test_set.kept_as
        return f"{test_set.kept_as}-{sha256_json([test_set.sources, test_set.refs])[:8]}"

    def _keep(self, test_set: EvalSet, result: TestSetResult) -> None:
        kept_as = self._kept_as(test_set)
        folder = self._folder(kept_as)
        is_own_split = test_set.data is not None and kept_as == test_set.name
        record = {**result.as_json(), **self._made_by}
        if is_own_split:
            record[SPLIT] = test_set.name
        evaluation = Evaluation(test_set.sources, test_set.refs, result.hyps, record)
        try:
            with locked(folder, wait_s=LOCK_WAIT_S), built_beside(folder) as partial:
                write_evaluation(partial, evaluation)
        except (ResourceError, DataError, UsageError) as error:
            log.warning("%s: only printed, not kept: %s", test_set.name, error)
            return
        log.info(
            "%s: %d sentences, %.0f a second, translations in %s",
            test_set.name,
            len(result.hyps),
            result.sentences_per_s,
            folder,
        )
        if is_own_split and isinstance(self.run, Run):
            write_card(self.run)


def _member(model: Run | ExportedModel, checkpoint: str) -> dict[str, str]:
    """A model that translates, or chooses, together with the run's own."""
    return {
        "run": model.folder.resolve().name,
        "checkpoint": checkpoint,
        "sha256": sha256_of_model(model, checkpoint),
    }


def sha256_of_model(model: Run | ExportedModel, checkpoint: str) -> str:
    """sha256 of the weights of a run's `checkpoint`, or of an exported model."""
    if isinstance(model, Run):
        return weights_sha256(model.checkpoint_folder(checkpoint))
    return model.sha256[EXPORTED_MODEL]
