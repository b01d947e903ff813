"""`evaluate`: test sets translated, scored against untouched references, and kept in the run folder."""

import logging
import re
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path

from mt_cli.config.schema import DataConfig
from mt_cli.errors import DataError, ResourceError, UsageError
from mt_cli.evaluation.card import write_card
from mt_cli.evaluation.scoring import Scores, score, symptoms
from mt_cli.machine.files import sha256_bytes
from mt_cli.machine.terminal import ProgressDisplay
from mt_cli.runs.checkpoint import weights_sha256
from mt_cli.runs.run import (
    EVALUATIONS,
    Evaluation,
    Run,
    keep_evaluation,
    open_evaluation,
    open_prepared_of,
    open_runs,
)
from mt_cli.text.normalize import split_lines
from mt_cli.translation.lines import check_aligned, read_bytes, unk_rate
from mt_cli.translation.scorer import Reranker, Reranking
from mt_cli.translation.translator import DecodingOptions, Translator, search_name

log = logging.getLogger(__name__)

LONGEST_NAME = 50
"""Bytes of a file's name, or of other runs' names, in that of a folder, which has 255 at most."""


@dataclass(frozen=True)
class EvalSet:
    """Sources and their references."""

    name: str
    """A split's, or `files`."""
    sources: list[str]
    refs: list[str]
    kept_as: str
    """What the name of its folder in `eval/` begins with; the name of the search follows."""
    data: DataConfig | None = None
    """The data whose split it is; none of files that the user named."""


@dataclass(frozen=True)
class Assessment:
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
            "sentences_per_s": self.sentences_per_s,
        }


def score_splits(
    run_dirs: Sequence[Path],
    options: DecodingOptions,
    *,
    splits: Sequence[str] = (),
    src_path: Path | None = None,
    ref_path: Path | None = None,
    data_dir: Path | None = None,
    reranking: Reranking | None = None,
) -> dict[str, Assessment]:
    """Scores by split; by default, of every test split that the data of the (first) run have.

    `src_path` and `ref_path` name a parallel text of the user's own instead, scored as `files`. Sources,
    references, translations and scores go to `eval/<split>-<decoding>/` in the first run's folder, if it can
    be written; for files of the user's own, a name made of the file's and of a digest stands for the split.
    With `reranking`, a run of the other direction chooses among the translations.

    Raises:
        UsageError: no run, no such split or checkpoint, or only one of the two files.
        DataError: the data are gone or are not those of the run; the files are not parallel.
    """
    if (src_path is None) != (ref_path is None):
        raise UsageError("--src and --ref go together: sources and their references, line by line")
    if src_path is not None and splits:
        raise UsageError("give either --split or --src and --ref, not both")
    system = System(run_dirs, options, reranking=reranking)
    if src_path is not None and ref_path is not None:
        test_sets = [read_test_set(src_path, ref_path)]
    else:
        test_sets = split_test_sets(system.run, splits, data_dir=data_dir)
    return {test_set.name: system.assess(test_set) for test_set in test_sets}


def split_test_sets(run: Run, splits: Sequence[str], *, data_dir: Path | None) -> list[EvalSet]:
    """The test sets that `run`'s data have under the names `splits`, or else all of them.

    Raises:
        UsageError: there is no such split.
        DataError: the data are gone or are not those of the run.
    """
    names = chosen_splits(run, splits)
    otherwise = ", or let evaluate score files of your own (--src FILE --ref FILE)"
    prepared = open_prepared_of(run.folder, run.prepared, data_dir, otherwise=otherwise)
    return [
        EvalSet(name, prepared.lines(name, "src"), prepared.lines(name, "tgt"), name, run.config.data)
        for name in names
    ]


def chosen_splits(run: Run, splits: Sequence[str]) -> Sequence[str]:
    """Those of `splits`, or else every test split of `run`'s data.

    Raises:
        UsageError: there is no such split.
    """
    known = run.config.data.splits
    chosen = splits or [name for name in known if name not in ("train", "val")]
    if not chosen:
        raise UsageError(f"{run.folder} has no test split; name one of {', '.join(known)} with --split")
    unknown = [name for name in chosen if name not in known]
    if unknown:
        raise UsageError(f"unknown split '{unknown[0]}'; the run has {', '.join(known)}")
    return chosen


def read_test_set(src_path: Path, ref_path: Path) -> EvalSet:
    """The test set `files` in two files that align line by line.

    Raises:
        DataError: one cannot be read, they differ in length, or they are empty.
    """
    src, ref = read_bytes(src_path), read_bytes(ref_path)
    sources, refs = split_lines(src), split_lines(ref)
    check_aligned(ref_path, refs, str(src_path), sources)
    if not sources:
        raise DataError(f"{src_path}: empty; there is nothing to score")
    digest = sha256_bytes(sha256_bytes(src).encode() + sha256_bytes(ref).encode())
    stem = re.sub(r"[^\w.-]+", "_", src_path.stem).lstrip(".")
    return EvalSet("files", sources, refs, kept_as=f"{_shortened(stem)}-{digest[:8]}")


# A system, and what is kept of it


@dataclass(frozen=True)
class Member:
    """A model that translated together with the run's own."""

    run: str
    """Its folder's name."""
    checkpoint: str
    sha256: str
    """Of its weights."""

    @staticmethod
    def of(run: Run, checkpoint: str) -> "Member":
        """`checkpoint` of `run`."""
        sha256 = weights_sha256(run.checkpoint_folder(checkpoint))
        return Member(run.folder.resolve().name, checkpoint, sha256)


class System:
    """One run, or several as an ensemble, that translate test sets with one search.

    The model is loaded when something has to be translated.
    """

    def __init__(
        self, run_dirs: Sequence[Path], options: DecodingOptions, *, reranking: Reranking | None = None
    ) -> None:
        """With `reranking`, another run chooses among the translations.

        Raises:
            UsageError: no run, no such checkpoint, an option out of range, vocabularies that differ, or a
                reranking run of the wrong direction.
        """
        self._runs = open_runs(run_dirs, may_be_exported=True)
        self.run = self._runs[0]
        """The first, in whose folder results are kept."""
        # By name from here on: what `best` means may change while this runs.
        names = options.checkpoints_of(self._runs)
        self.checkpoint = names[0]
        """Name of the first run's checkpoint."""
        self._members = [Member.of(run, name) for run, name in zip(self._runs[1:], names[1:], strict=True)]
        self._reverse, self._reranking = None, reranking
        search = dict(options.search)
        if reranking is not None:
            reverse = reranking.open_run(of=self.run)
            self._reverse = Member.of(reverse, reverse.resolve_checkpoint("best"))
            self._reranking = replace(reranking, checkpoint=self._reverse.checkpoint)
            search["beam_size"] = reranking.num_candidates
        self._options = replace(options, checkpoint=names, search=search)
        decoding = self._options.config_of(self.run)
        name = search_name(decoding, knows_all_words=self.run.tokenizers.kind != "spacy")
        usual = ((str(options.backend), "scratch"), (str(options.checkpoint), "best"))
        variant = [part for part, default in usual if part != default]
        self.decoding = "-".join([name, *variant]) + self._of_several()
        """How translations are searched for, and by whom, as the folders in `eval/` are named."""
        if self._members:
            folders = ", ".join(str(run.folder) for run in self._runs)
            log.info("ensemble of %d: %s", len(self._runs), folders)

    @cached_property
    def translator(self) -> Translator:
        """The loaded model, or models."""
        return Translator.of_runs(self._runs, self._options)

    @cached_property
    def _chooser(self) -> "Reranker | Translator":
        """What translates: the models alone, or with who chooses among their translations."""
        if self._reranking is None:
            return self.translator
        return Reranker.load(self.translator, self._reranking, self._options)

    def assess(self, test_set: EvalSet) -> Assessment:
        """Translate `test_set`, score the translations, and keep both in the run folder if possible.

        What looks wrong with the translations is logged as a warning.
        """
        translator = self._chooser
        started_at = time.perf_counter()
        label, total = f"translating {test_set.name}", len(test_set.sources)
        with ProgressDisplay(label, unit="lines", total=total) as progress:
            hyps = translator.translate(test_set.sources, on_progress=progress.update)
        elapsed_s = time.perf_counter() - started_at
        assessment = Assessment(
            hyps,
            score(hyps, test_set.refs, lowercase=self.run.config.data.lowercase),
            unk_rate=unk_rate(test_set.sources, self.run.tokenizers),
            sentences_per_s=len(hyps) / elapsed_s,
        )
        for symptom in symptoms(hyps, test_set.refs):
            log.warning("%s: %s", test_set.name, symptom)
        self._keep(test_set, assessment)
        return assessment

    def kept_hyps(self, test_set: EvalSet) -> list[str] | None:
        """Translations of `test_set` that this system has made earlier, with the same weights and search."""
        kept = self.kept(self._name_of(test_set))
        if kept is None or kept.sources != test_set.sources or kept.refs != test_set.refs:
            return None
        return kept.hyps

    def kept(self, kept_as: str) -> Evaluation | None:
        """What this system has kept of the test set `kept_as`, with the same weights and search."""
        found = open_evaluation(self._folder(kept_as))
        return found if found is not None and self._made_by.items() <= found.record.items() else None

    @property
    def _made_by(self) -> dict[str, object]:
        """Whose translations they are, because a run that goes on makes others later."""
        made_by: dict[str, object] = {"checkpoint": self.checkpoint}
        if self._members:
            made_by["with"] = [asdict(each) for each in self._members]
        if self._reranking is not None and self._reverse is not None:
            made_by["reranked_by"] = {**asdict(self._reverse), "weights": asdict(self._reranking.weights)}
        return made_by

    def _of_several(self) -> str:
        """What tells the folder of an ensemble's scores, or of reranked translations, from others."""
        name = ""
        if self._members:
            digest = sha256_bytes("".join(member.sha256 for member in self._members).encode())
            name = f"-with-{_shortened('-'.join(member.run for member in self._members))}-{digest[:8]}"
        if self._reranking is not None and self._reverse is not None:
            weights = self._reranking.weights
            digest = sha256_bytes(f"{self._reverse.sha256} {weights.reverse} {weights.length}".encode())
            name += f"-reranked-{_shortened(self._reverse.run)}-{digest[:8]}"
        return name

    def _name_of(self, test_set: EvalSet) -> str:
        """Its name in `eval/`: another run's split must not take the place of this run's of that name."""
        if test_set.data is None or test_set.data is self.run.config.data:
            return test_set.kept_as
        own, other = (
            (data.corpus, data.src_lang, data.tgt_lang, data.files.get(test_set.name))
            for data in (self.run.config.data, test_set.data)
        )
        kept = open_evaluation(self._folder(test_set.kept_as))
        has_other_text = kept is not None and (kept.sources, kept.refs) != (test_set.sources, test_set.refs)
        if own != other or has_other_text:
            digest = sha256_bytes("\n".join([*test_set.sources, *test_set.refs]).encode())
            return f"{test_set.kept_as}-{digest[:8]}"
        return test_set.kept_as

    def _folder(self, kept_as: str) -> Path:
        return self.run.folder / EVALUATIONS / f"{kept_as}-{self.decoding}"

    def _keep(self, test_set: EvalSet, assessment: Assessment) -> None:
        folder = self._folder(self._name_of(test_set))
        record = {**assessment.as_json(), **self._made_by}
        try:
            keep_evaluation(folder, Evaluation(test_set.sources, test_set.refs, assessment.hyps, record))
        except (ResourceError, DataError) as error:
            log.warning("%s: only printed, not kept: %s", test_set.name, error)
            return
        log.info(
            "%s: %d sentences, %.0f a second, translations in %s",
            test_set.name, len(assessment.hyps), assessment.sentences_per_s, folder,
        )  # fmt: skip
        write_card(self.run)


def _shortened(name: str) -> str:
    """As many letters of `name` as have room in the name of a folder."""
    return name.encode()[:LONGEST_NAME].decode(errors="ignore")
