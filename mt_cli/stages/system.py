"""`System`: runs that translate test sets together with one search, and what is kept of it in the run folder.

Knows a run's `eval/` folder and scores; never which test sets are wanted.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

from mt_cli.artefacts.checkpoint import weights_sha256
from mt_cli.artefacts.evaluation import Evaluation, keep_evaluation, open_evaluation
from mt_cli.artefacts.exported_run import open_any_runs
from mt_cli.artefacts.files import sha256_bytes
from mt_cli.artefacts.run import Run
from mt_cli.config import Backend, DataConfig, Device
from mt_cli.errors import DataError, ResourceError
from mt_cli.machine.progress import ProgressDisplay
from mt_cli.translation.options import SearchOptions, check_options, search_name
from mt_cli.translation.reranker import Reranker, Reranking
from mt_cli.translation.scoring import Scores, score
from mt_cli.translation.symptoms import symptoms
from mt_cli.translation.translator import Translator
from mt_cli.translation.unknown_words import unk_rate

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

    @property
    def digest(self) -> str:
        """Eight letters that stand for its text."""
        return sha256_bytes("\n".join([*self.sources, *self.refs]).encode())[:8]


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
        folder = run.checkpoint_folder(checkpoint)
        sha256 = weights_sha256(folder, run.parameter_shapes)
        return Member(run.folder.resolve().name, folder.name, sha256)


class System:
    """One run, or several as an ensemble; the model is loaded when something has to be translated."""

    def __init__(
        self,
        run_dirs: Sequence[Path],
        *,
        checkpoint: str = "best",
        backend: Backend = "scratch",
        device: Device = "auto",
        threads: int = 0,
        search: SearchOptions | None = None,
        reranking: Reranking | None = None,
    ) -> None:
        """`checkpoint` applies to each run; the search is the first run's, but for what `search` says.

        With `reranking`, another run chooses among the translations.

        Raises:
            UsageError: no run, no such checkpoint, an option out of range, vocabularies that differ, or a
                reranking run of the wrong direction.
        """
        self._runs = open_any_runs(run_dirs)
        self.run = self._runs[0]
        """The first, in whose folder results are kept."""
        # By name from here on: what `best` means may change while this runs.
        self._checkpoints = [each.resolve_checkpoint(checkpoint) for each in self._runs]
        self._backend, self._device, self._threads = backend, device, threads
        self._search: SearchOptions = search or {}
        self._reranking = reranking
        if reranking is not None:
            self._search = {**self._search, "beam_size": reranking.num_candidates}
        self._members = [
            Member.of(each, name)
            for each, name in zip(self._runs[1:], self._checkpoints[1:], strict=True)
            if isinstance(each, Run)
        ]
        self._reverse = None
        if reranking is not None:
            reverse = reranking.open_run(of=self.run)
            self._reverse = Member.of(reverse, reverse.resolve_checkpoint("best"))
        decoding = check_options(
            self.run.config.decoding, self._search, backend=backend, device=device, threads=threads
        )
        variant = [part for part, usual in ((backend, "scratch"), (checkpoint, "best")) if part != usual]
        name = search_name(decoding, knows_all_words=self.run.tokenizers.kind != "spacy")
        self._decoding = "-".join([name, *variant]) + _ensemble_name(self._members) + self._reranked_name()
        if self._members:
            names = ", ".join(str(each.folder) for each in self._runs)
            log.info("ensemble of %d: %s", len(self._runs), names)

    @property
    def checkpoint(self) -> str:
        """Name of the first run's checkpoint."""
        return self._checkpoints[0]

    @property
    def decoding(self) -> str:
        """How translations are searched for, and by whom, as the folders in `eval/` are named."""
        return self._decoding

    def assess(self, test_set: EvalSet) -> Assessment:
        """Translate `test_set`, score the translations, and keep both in the run folder if possible.

        What looks wrong with the translations is logged as a warning.
        """
        translator = self._reranker or self.translator
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
        found = open_evaluation(self._folder(kept_as), run=self.run.folder)
        is_ours = found is not None and self._made_by.items() <= found.record.items()
        return found if is_ours else None

    @cached_property
    def translator(self) -> Translator:
        """The loaded model, or models."""
        return Translator.of_runs(
            self._runs,
            checkpoints=self._checkpoints,
            backend=self._backend,
            device=self._device,
            threads=self._threads,
            search=self._search,
        )

    @cached_property
    def _reranker(self) -> Reranker | None:
        """Who chooses among the translations of `translator`, if anyone does."""
        if self._reranking is None or self._reverse is None:
            return None
        return Reranker.load(
            self.translator,
            self._reranking,
            checkpoint=self._reverse.checkpoint,
            device=self._device,
            threads=self._threads,
            search=self._search,
        )

    @property
    def _made_by(self) -> dict[str, object]:
        """Whose translations they are, because a run that goes on makes others later."""
        made_by: dict[str, object] = {"checkpoint": self._checkpoints[0]}
        if self._members:
            made_by["with"] = [asdict(each) for each in self._members]
        if self._reranking is not None and self._reverse is not None:
            made_by["reranked_by"] = {**asdict(self._reverse), "weights": asdict(self._reranking.weights)}
        return made_by

    def _reranked_name(self) -> str:
        """What tells the folder of reranked translations from others; nothing of those that are not."""
        if self._reranking is None or self._reverse is None:
            return ""
        weights = self._reranking.weights
        digest = sha256_bytes(f"{self._reverse.sha256} {weights.reverse} {weights.length}".encode())
        return f"-reranked-{shortened_name(self._reverse.run)}-{digest[:8]}"

    def _name_of(self, test_set: EvalSet) -> str:
        """Its name in `eval/`: another run's split must not take the place of this run's of that name."""
        own, other = self.run.config.data, test_set.data
        if other is None or other is own:
            return test_set.kept_as
        if not _has_same_split(own, other, test_set.name) or self._keeps_other_text(test_set):
            return f"{test_set.kept_as}-{test_set.digest}"
        return test_set.kept_as

    def _keeps_other_text(self, test_set: EvalSet) -> bool:
        """Whether the name of `test_set` is that of other text in `eval/`."""
        kept = open_evaluation(self._folder(test_set.kept_as), run=self.run.folder)
        return kept is not None and (kept.sources, kept.refs) != (test_set.sources, test_set.refs)

    def _folder(self, kept_as: str) -> Path:
        return self.run.folder / "eval" / f"{kept_as}-{self._decoding}"

    def _keep(self, test_set: EvalSet, assessment: Assessment) -> None:
        folder = self._folder(self._name_of(test_set))
        record = {**assessment.as_json(), **self._made_by}
        speed = f"{len(assessment.hyps)} sentences, {assessment.sentences_per_s:.0f} a second"
        try:
            evaluation = Evaluation(test_set.sources, test_set.refs, assessment.hyps, record)
            keep_evaluation(folder, evaluation, below=self.run.folder)
        except (ResourceError, DataError) as error:
            log.warning("%s: only printed, not kept: %s", test_set.name, error)
        else:
            log.info("%s: %s, translations in %s", test_set.name, speed, folder)


def shortened_name(name: str) -> str:
    """As many letters of `name` as have room in the name of a folder."""
    return name.encode()[:LONGEST_NAME].decode(errors="ignore")


def _has_same_split(one: DataConfig, other: DataConfig, split: str) -> bool:
    """Whether `split` is made of the same files in both."""
    where = [(data.corpus, data.src_lang, data.tgt_lang, data.files.get(split)) for data in (one, other)]
    return where[0] == where[1]


def _ensemble_name(others: Sequence[Member]) -> str:
    """What tells the folder of an ensemble's scores from those of other ensembles; nothing of one model."""
    if not others:
        return ""
    digest = sha256_bytes("".join(member.sha256 for member in others).encode())
    return f"-with-{shortened_name('-'.join(member.run for member in others))}-{digest[:8]}"
