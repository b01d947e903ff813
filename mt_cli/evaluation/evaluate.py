"""`evaluate`: translate test sets, score them against untouched references, save the results."""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from os import PathLike
from pathlib import Path

from mt_cli.config.schema import TRAIN, VAL
from mt_cli.errors import DataError, MtCliError, UsageError
from mt_cli.evaluation.kept import SPLIT, WEIGHTS, write_evaluation
from mt_cli.evaluation.model_card import write_card
from mt_cli.evaluation.scoring import Scores, score, symptoms
from mt_cli.evaluation.test_sets import EvalChoice, EvalSet, pinned_splits
from mt_cli.machine.files import built_beside, sha256_file, sha256_json
from mt_cli.machine.locks import locked
from mt_cli.machine.terminal import progress_shown
from mt_cli.runs.opening import open_models, open_prepared_of
from mt_cli.runs.run import EVALUATIONS, Run
from mt_cli.text.tokenizers import Tokenizers
from mt_cli.translation.options import DecodingOptions, search_facts, search_name
from mt_cli.translation.result import warnings_of
from mt_cli.translation.scorer import reverse_run
from mt_cli.translation.translator import Translator

log = logging.getLogger(__name__)

SPEED = "sentences_per_s"
LOCK_WAIT_S = 60.0
"""How long to wait for another evaluation that is being saved in the same place."""


# Scores


@dataclass(frozen=True)
class EvalResult:
    """The results of a system on a test set."""

    hyps: list[str]
    scores: Scores
    unk_rate: float
    """Share of source tokens that are `<unk>` or a single byte."""
    sentences_per_s: float
    """From text to text, without loading the model."""

    def as_json(self) -> dict[str, object]:
        """The form that `evaluate --json` prints for each test set."""
        return {
            **self.scores.as_json(),
            "unk_rate": self.unk_rate,
            SPEED: self.sentences_per_s,
        }


def evaluate_runs(
    run_dirs: Sequence[Path], options: DecodingOptions, choice: EvalChoice
) -> dict[str, EvalResult]:
    """The results of the runs (one, or an ensemble) on each chosen test set, by name.

    Sources, references, translations and scores are saved in `eval/<split>-<decoding>/` in the
    first run's folder, unless that is the bundled model or cannot be written. For the user's own
    files, the file's name and a hash replace the split.

    Raises:
        UsageError: no run, an unknown split or checkpoint, or only one of the two files.
        DataError: the data is missing or not the run's, or the files are not parallel.
    """
    if choice.ref and choice.data is not None:
        raise UsageError("--data works only with splits; leave it out with --ref")
    system = System(run_dirs, options)
    return {test_set.name: system.evaluate(test_set) for test_set in system.test_sets(choice)}


def evaluate(
    *runs: str | PathLike[str],
    splits: str | Sequence[str] = (),
    src: str | PathLike[str] | None = None,
    ref: str | PathLike[str] | Sequence[str | PathLike[str]] | None = None,
    data: str | PathLike[str] | None = None,
    noise: str | Sequence[str] = (),
    **options: object,
) -> dict[str, EvalResult]:
    """`evaluate_runs` for Python; `options` are those of `Translator.load`."""
    choice = EvalChoice.of(splits, src, ref, data, noise)
    return evaluate_runs([Path(run) for run in runs], DecodingOptions.of(options), choice)


class System:
    """A run or an ensemble, with its search settings, that translates test sets.

    The model is loaded on first use.
    """

    def __init__(self, run_dirs: Sequence[Path], options: DecodingOptions) -> None:
        """Open the runs.

        Raises:
            UsageError: no run, an unknown checkpoint, an option out of range, different
                vocabularies, or a reranking run of the wrong direction.
        """
        self._runs = open_models(run_dirs)
        self.run = self._runs[0]
        """The first run; results are saved in its folder."""
        self._is_kept = self.run.folder == run_dirs[0]  # not in the bundled model's folder
        # Resolve `best` now: it may point to another checkpoint later.
        names = options.checkpoints_of(self._runs)
        self._options = replace(options, checkpoint=names)
        config = options.config_of(self.run)
        facts = search_facts(config, self.run.tokenizers)
        if config.glossary is not None:
            facts["glossary"] = sha256_file(Path(config.glossary))
        if options.backend not in (None, self.run.config.model.backend):
            facts["backend"] = options.backend
        made_by: dict[str, object] = {
            "checkpoint": names[0],
            WEIGHTS: self.run.weights_sha256(names[0]),
            "search": {"beam_size": config.beam_size, **facts},
        }
        if len(names) > 1:
            others = zip(self._runs[1:], names[1:], strict=True)
            facts["with"] = made_by["with"] = [_member(run, name) for run, name in others]
            log.info("ensemble of %d: %s", len(names), ", ".join(map(str, run_dirs)))
        if config.rerank_with is not None:
            reverse = reverse_run(config, of=self.run)
            facts["reranked_by"] = _member(reverse, reverse.resolve_checkpoint("best"))
            made_by["reranked_by"] = facts["reranked_by"]
        wanted = options.checkpoint
        if set([wanted] if isinstance(wanted, str) else wanted) != {"best"}:
            facts["checkpoint"] = names
        self._made_by = made_by
        """Checkpoint, weights and search of these translations: a later checkpoint has others."""
        self.decoding = search_name(config, facts)
        """The name of models and search in the folder names in `eval/`."""

    @cached_property
    def translator(self) -> Translator:
        """The loaded model or ensemble, with its reranker if any."""
        return Translator.of_models(self._runs, self._options)

    def test_sets(self, choice: EvalChoice) -> list[EvalSet]:
        """The user's files, or the chosen splits of the run's data; by default every test split.

        Each test set is followed by its noisy variants, if any are chosen.

        Raises:
            UsageError: a split is unknown, or a required file is not given.
            DataError: the data is missing or not the run's.
        """
        data = self.run.config.data
        files = choice.files(needs_sources=True)
        if files is not None:
            return choice.with_noise([files], data)
        names = self._split_names(choice.splits)
        otherwise = ", or score files of your own (--src FILE --ref FILE)"
        if data.is_pinned:
            otherwise += (
                ". The corpus's original files work too: fetch them with prepare, or name their "
                "folder with --data"
            )
        found = []
        try:
            prepared = open_prepared_of(
                self.run, choice.data, verify=TRAIN in names, otherwise=otherwise
            )
            for name in names:
                sources = prepared.lines(name, "src")
                found.append(EvalSet(name, sources, [prepared.lines(name, "tgt")], name, data))
        except (DataError, OSError):
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
            names = [name for name in known if name not in (TRAIN, VAL)]
        if not names:
            raise UsageError(
                f"{self.run.folder}: has no test split; choose one with --split: {', '.join(known)}"
            )
        return names

    def evaluate(self, test_set: EvalSet) -> EvalResult:
        """Translate `test_set`, score the translations, and save both in the run if possible.

        Suspicious translations are logged as warnings.
        """
        translator = self.translator  # load the models before the clock starts
        began_at = time.perf_counter()
        label = f"translating {test_set.name}"
        total = len(test_set.sources)
        with progress_shown(label, unit="lines", total=total) as on_progress:
            found = translator.translate_n_best(
                test_set.sources, is_scored=False, on_progress=on_progress
            )
        elapsed_s = time.perf_counter() - began_at
        results = [of_line[0] for of_line in found]
        hyps = [result.text for result in results]
        data = self.run.config.data
        result = EvalResult(
            hyps,
            score(hyps, *test_set.refs, lang=data.tgt_lang, lowercase=data.lowercase),
            unk_rate=unk_rate(test_set.sources, self.run.tokenizers),
            sentences_per_s=len(hyps) / elapsed_s,
        )
        warnings = symptoms(hyps, test_set.refs[0]) + warnings_of(results, translator.glossary)
        for warning in warnings:
            log.warning("%s: %s", test_set.name, warning)
        try:
            if self._is_kept:
                self._keep(test_set, result)
        except (MtCliError, OSError) as error:
            log.warning(
                "%s: could not save the results, only printing them: %s", test_set.name, error
            )
        return result

    # Saving

    def _keep(self, test_set: EvalSet, result: EvalResult) -> None:
        kept_as = test_set.kept_as
        is_own_split = test_set.data == self.run.config.data and not test_set.noise
        if test_set.data not in (None, self.run.config.data):  # another run's split
            kept_as += f"-{sha256_json([test_set.sources, *test_set.refs])[:8]}"
        folder = self.run.folder / EVALUATIONS / f"{kept_as}-{self.decoding}"
        record: Mapping[str, object] = {**result.as_json(), **self._made_by}
        if is_own_split:
            record = {**record, SPLIT: test_set.name}
        with locked(folder, wait_s=LOCK_WAIT_S), built_beside(folder) as partial:
            write_evaluation(partial, test_set.sources, test_set.refs, result.hyps, record)
        log.info(
            "%s: %d sentences, %.0f per second, translations in %s",
            test_set.name,
            len(result.hyps),
            result.sentences_per_s,
            folder,
        )
        if is_own_split and not self.run.is_exported:
            write_card(self.run)


def unk_rate(lines: Sequence[str], tokenizers: Tokenizers) -> float:
    """Share of tokens of the source `lines` that are unknown to the vocabulary or single bytes."""
    unknown = set(tokenizers.src.unknown_ids)
    ids = list(chain.from_iterable(tokenizers.encode(lines, "src")))
    return sum(each in unknown for each in ids) / max(1, len(ids))


def _member(run: Run, checkpoint: str) -> dict[str, str]:
    """Facts about another model in the ensemble, or the reranking model."""
    name = run.folder.resolve().name
    return {"run": name, "checkpoint": checkpoint, "sha256": run.weights_sha256(checkpoint)}
