"""`evaluate`: test sets translated, scored against untouched references, and kept in the run
folder.
"""

import json
import logging
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from pathlib import Path

from mt_cli.config.schema import DataConfig
from mt_cli.data.corpora import find_corpus, read_pairs
from mt_cli.data.files import read_text
from mt_cli.errors import DataError, MtCliError, ResourceError, UsageError
from mt_cli.evaluation.card import SPLIT, WEIGHTS, write_card
from mt_cli.evaluation.scoring import Scores, score, symptoms
from mt_cli.machine.files import (
    MANIFEST,
    MOST_TEXT_BYTES,
    built_beside,
    locked,
    read_file,
    read_json,
    sha256_bytes,
    write_atomically,
    write_json,
)
from mt_cli.machine.terminal import progress_shown
from mt_cli.runs.checkpoint import weights_sha256
from mt_cli.runs.run import (
    EVALUATIONS,
    EXPORTED_MODEL,
    SCORES,
    Run,
    open_prepared_of,
    open_runs,
)
from mt_cli.text.normalize import decode_line, split_lines
from mt_cli.translation.lines import check_aligned, unk_rate
from mt_cli.translation.translator import DecodingOptions, Translator, search_name

log = logging.getLogger(__name__)

SPEED = "sentences_per_s"
OTHERS_WRITE_S = 60.0
"""Seconds that an evaluation waits for another one that is being kept in the same place."""
LONGEST_NAME = 50
"""Bytes of a file's name, or of other runs' names, in that of a folder, which has 255 at most."""


@dataclass(frozen=True)
class EvalChoice:
    """Which test sets: splits of the run's data, by default every test split, or files of the
    user's own.
    """

    splits: Sequence[str] = ()
    src: Path | None = None
    ref: Path | None = None
    data: Path | None = None
    """The prepared folder, if it has moved."""

    @staticmethod
    def of(splits: str | Sequence[str], *paths: str | PathLike[str] | None) -> "EvalChoice":
        """Of a split or several, and the paths `src`, `ref` and `data`."""
        names = [splits] if isinstance(splits, str) else splits
        return EvalChoice(names, *(None if path is None else Path(path) for path in paths))

    def test_sets(self, system: "System | None", *, may_be_kept: bool = False) -> list["EvalSet"]:
        """The chosen splits of `system`'s data, or the user's files.

        Sources may be missing if there is no `system`. With `may_be_kept`, splits whose data are
        gone are read from `system`'s kept evaluations.

        Raises:
            UsageError: no such split, or not the files that are needed. DataError: the data are
                gone or are not those of the run; the files are empty or not parallel.
        """
        if self.ref is None:
            if self.src is not None:
                raise UsageError("--src needs --ref: the references of its lines")
            if system is None:
                raise UsageError(
                    "files of translations need their references; name them with --ref FILE"
                )
            return system.test_sets(self.splits, data_dir=self.data, may_be_kept=may_be_kept)
        if self.splits:
            raise UsageError("give either --split or --ref, not both")
        if self.src is None and system is not None:
            raise UsageError(
                "runs need something to translate; name the sources of --ref with --src FILE"
            )
        ref = read_text(self.ref)
        refs = split_lines(ref)
        if not refs:
            raise DataError(f"{self.ref}: empty; there is nothing to score")
        if self.src is None:
            return [EvalSet("files", [], refs, kept_as="files")]
        src = read_text(self.src)
        sources = split_lines(src)
        check_aligned(self.ref, refs, str(self.src), sources)
        digest = sha256_bytes(sha256_bytes(src).encode() + sha256_bytes(ref).encode())
        stem = re.sub(r"[^\w.-]+", "_", self.src.stem).lstrip(".")
        return [EvalSet("files", sources, refs, kept_as=f"{_shortened(stem)}-{digest[:8]}")]


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
            SPEED: self.sentences_per_s,
        }


def evaluate_runs(
    run_dirs: Sequence[Path], options: DecodingOptions, choice: EvalChoice
) -> dict[str, Assessment]:
    """How the runs do on each of the chosen test sets, by name.

    Sources, references, translations and scores go to `eval/<split>-<decoding>/` in the first run's
    folder, if it can be written; for files of the user's own, a name made of the file's and of a
    digest stands for the split.

    Raises:
        UsageError: no run, no such split or checkpoint, or only one of the two files.
        DataError: the data are gone or are not those of the run; the files are not parallel.
    """
    system = System(run_dirs, options)
    return {test_set.name: system.assess(test_set) for test_set in choice.test_sets(system)}


def evaluate(
    *runs: str | PathLike[str],
    splits: str | Sequence[str] = (),
    src: str | PathLike[str] | None = None,
    ref: str | PathLike[str] | None = None,
    data: str | PathLike[str] | None = None,
    **options: object,
) -> dict[str, Assessment]:
    """`evaluate_runs` for Python; `options` are those of `Translator.load`."""
    choice = EvalChoice.of(splits, src, ref, data)
    return evaluate_runs(list(map(Path, runs)), DecodingOptions.of(options), choice)


# What is kept of a system

TEXTS = ("src.txt", "ref.txt", "hyp.txt")


@dataclass(frozen=True)
class Evaluation:
    """The texts of a kept evaluation, line by line, and its `scores.json`."""

    sources: list[str]
    refs: list[str]
    hyps: list[str]
    record: Mapping[str, object]


def open_evaluation(folder: Path) -> Evaluation | None:
    """The evaluation kept in `folder`; none if there is none, or if its files do not belong
    together.
    """
    try:
        record = read_json(folder / SCORES)
        contents = {name: read_file(folder / name, most=MOST_TEXT_BYTES) for name in TEXTS}
    except DataError:
        return None
    if record.get("sha256") != {name: sha256_bytes(content) for name, content in contents.items()}:
        return None
    sources, refs, hyps = map(split_lines, contents.values())
    return Evaluation(sources, refs, hyps, record)


# A system, and what is kept of it


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
        self._runs = open_runs(run_dirs, may_be_exported=True)
        self.run = self._runs[0]
        """The first, in whose folder results are kept."""
        # By name from here on: what `best` means may change while this runs.
        names = options.checkpoints_of(self._runs)
        self.checkpoint = names[0]
        """Name of the first run's checkpoint."""
        others = [_member(run, name) for run, name in zip(self._runs[1:], names[1:], strict=True)]
        made_with: dict[str, object] = {"with": list(others)} if others else {}
        if others:
            log.info(
                "ensemble of %d: %s", len(names), ", ".join(str(run.folder) for run in self._runs)
            )
        if (reranking := options.reranking) is not None:
            reverse = reranking.open_run(of=self.run)
            others.append(by := _member(reverse, reverse.resolve_checkpoint("best")))
            weights = {"reverse": reranking.reverse, "length": reranking.length}
            made_with["reranked_by"] = {**by, "weights": weights}
            options = replace(options, reranking=replace(reranking, checkpoint=by["checkpoint"]))
        sha256 = sha256_of_model(self.run, self.checkpoint)
        self._made_by = {"checkpoint": self.checkpoint, WEIGHTS: sha256, **made_with}
        """Whose translations they are, because a run that goes on makes others later."""
        self._options = replace(options, checkpoint=names)
        decoding = self._options.config_of(self.run)
        name = search_name(
            decoding, self.run.tokenizers, sampling=options.sampling, seed=options.seed
        )
        backend = options.backend or self.run.config.model.backend
        asked = [options.checkpoint] if isinstance(options.checkpoint, str) else options.checkpoint
        usual = ((backend, "scratch"), (_shortened("-".join(dict.fromkeys(asked))), "best"))
        self.decoding = "-".join([name, *(part for part, default in usual if part != default)])
        """How translations are searched for, and by whom, as the folders in `eval/` are named."""
        if others:
            digest = sha256_bytes(json.dumps(made_with).encode())
            how = "with" if options.reranking is None else "reranked"
            self.decoding += (
                f"-{how}-{_shortened('-'.join(each['run'] for each in others))}-{digest[:8]}"
            )

    @cached_property
    def translator(self) -> Translator:
        """The loaded model, or models, with who chooses among their translations."""
        return Translator.of_runs(self._runs, self._options)

    def test_sets(
        self, splits: Sequence[str], *, data_dir: Path | None, may_be_kept: bool
    ) -> list[EvalSet]:
        """The `splits` of the run's data, or else every test split.

        If the data are gone and they `may_be_kept`: as they were kept with this system's
        translations.

        Raises:
            UsageError: there is no such split.
            DataError: the data are gone or are not those of the run, and nothing is kept of them.
        """
        data = self.run.config.data
        known = data.splits
        names = list(dict.fromkeys(splits)) or [
            name for name in known if name not in ("train", "val")
        ]
        if not names:
            raise UsageError(
                f"{self.run.folder} has no test split; name one of {', '.join(known)} with --split"
            )
        if unknown := [name for name in names if name not in known]:
            raise UsageError(f"unknown split '{unknown[0]}'; the run has {', '.join(known)}")
        otherwise = ", or let evaluate score files of your own (--src FILE --ref FILE)"
        if data.corpus == "multi30k":
            otherwise += (
                ". Multi30k's own files do too: prepare fetches them, or --data names their folder"
            )
        try:
            prepared = open_prepared_of(self.run, data_dir, otherwise=otherwise)
        except DataError:
            if pinned := _pinned_splits(data, names, data_dir):
                return pinned
            kept = {name: found for name in names if (found := self.kept(name)) is not None}
            if not may_be_kept or data_dir is not None or len(kept) < len(names):
                raise
            return [
                EvalSet(name, found.sources, found.refs, name, data) for name, found in kept.items()
            ]
        return [
            EvalSet(name, prepared.lines(name, "src"), prepared.lines(name, "tgt"), name, data)
            for name in names
        ]

    def assess(self, test_set: EvalSet) -> Assessment:
        """Translate `test_set`, score the translations, and keep both in the run folder if
        possible.

        What looks wrong with the translations is logged as a warning.
        """
        translate = self.translator.translate  # loads the models, which takes no part in the time
        started_at = time.perf_counter()
        label, total = f"translating {test_set.name}", len(test_set.sources)
        with progress_shown(label, unit="lines", total=total) as update:
            hyps = translate(test_set.sources, on_progress=update)
        elapsed_s = time.perf_counter() - started_at
        data = self.run.config.data
        assessment = Assessment(
            hyps,
            score(hyps, test_set.refs, lang=data.tgt_lang, lowercase=data.lowercase),
            unk_rate=unk_rate(test_set.sources, self.run.tokenizers),
            sentences_per_s=len(hyps) / elapsed_s,
        )
        warnings = [*symptoms(hyps, test_set.refs), self.translator.limit_warning()]
        for warning in filter(None, warnings):
            log.warning("%s: %s", test_set.name, warning)
        self._keep(test_set, assessment)
        return assessment

    def hyps_of(self, test_set: EvalSet) -> list[str]:
        """Translations of `test_set`: those kept of the same weights and search, or else made now."""
        folder, kept = self.run.folder, self.kept(self._name_of(test_set))
        if kept is not None and _is_of(kept, test_set):
            log.info("%s: %s as kept in %s", test_set.name, folder, folder / EVALUATIONS)
            return kept.hyps
        log.info("%s: %s translates", test_set.name, folder)
        return self.assess(test_set).hyps

    def kept(self, kept_as: str) -> Evaluation | None:
        """What this system has kept of the test set `kept_as`, with the same weights and search."""
        found = open_evaluation(self._folder(kept_as))
        return (
            found if found is not None and self._made_by.items() <= found.record.items() else None
        )

    def _name_of(self, test_set: EvalSet) -> str:
        """Its name in `eval/`: another run's split must not take the place of this run's of that
        name.
        """
        if test_set.data is None or test_set.data is self.run.config.data:
            return test_set.kept_as
        own, other = (
            (data.corpus, data.src_lang, data.tgt_lang, data.files.get(test_set.name))
            for data in (self.run.config.data, test_set.data)
        )
        kept = open_evaluation(self._folder(test_set.kept_as))
        if own == other and (kept is None or _is_of(kept, test_set)):
            return test_set.kept_as
        digest = sha256_bytes("\n".join([*test_set.sources, *test_set.refs]).encode())
        return f"{test_set.kept_as}-{digest[:8]}"

    def _folder(self, kept_as: str) -> Path:
        return self.run.folder / EVALUATIONS / f"{kept_as}-{self.decoding}"

    def _keep(self, test_set: EvalSet, assessment: Assessment) -> None:
        kept_as = self._name_of(test_set)
        folder, is_own = (
            self._folder(kept_as),
            test_set.data is not None and kept_as == test_set.name,
        )
        texts = zip(TEXTS, (test_set.sources, test_set.refs, assessment.hyps), strict=True)
        contents = {name: "".join(f"{line}\n" for line in lines).encode() for name, lines in texts}
        hashes = {name: sha256_bytes(content) for name, content in contents.items()}
        try:
            with locked(folder, wait_s=OTHERS_WRITE_S), built_beside(folder) as partial:
                for name, content in contents.items():
                    write_atomically(partial / name, content)
                own = {SPLIT: test_set.name} if is_own else {}
                record = {**assessment.as_json(), **self._made_by, **own, "sha256": hashes}
                before: dict[str, object] = {}
                with suppress(DataError):
                    before = read_json(folder / SCORES)
                if {**before, SPEED: 0} == {**json.loads(json.dumps(record)), SPEED: 0}:
                    record = before  # the same scores: a file under version control stays as it is
                write_json(partial / SCORES, record)
        except (ResourceError, DataError, UsageError) as error:
            log.warning("%s: only printed, not kept: %s", test_set.name, error)
            return
        log.info(
            "%s: %d sentences, %.0f a second, translations in %s",
            test_set.name, len(assessment.hyps), assessment.sentences_per_s, folder,
        )  # fmt: skip
        if is_own:
            write_card(self.run)


def _pinned_splits(data: DataConfig, names: Sequence[str], folder: Path | None) -> list[EvalSet]:
    """Splits of a pinned corpus, if its own files are in `folder` or where `prepare` puts them."""
    if data.corpus != "multi30k":
        return []
    try:
        corpus = find_corpus(
            data.model_copy(update={"splits": names, "more": {}}), source=folder, offline=True
        )
    except MtCliError:
        if folder is None or (folder / MANIFEST).exists():  # the other error says more
            return []
        raise
    found = []
    for name, pair in corpus.items():
        sources, refs = (
            list(map(decode_line, side)) for side in zip(*read_pairs(pair), strict=True)
        )
        found.append(EvalSet(name, sources, refs, name, data))
    return found


def _member(run: Run, checkpoint: str) -> dict[str, str]:
    """A model that translates, or chooses, together with the run's own."""
    sha256 = weights_sha256(run.checkpoint_folder(checkpoint))
    return {"run": run.folder.resolve().name, "checkpoint": checkpoint, "sha256": sha256}


def sha256_of_model(run: Run, checkpoint: str) -> str:
    """sha256 of the weights that translate: a checkpoint's, or those of an exported model."""
    if run.exported_from is not None:
        return run.sha256[EXPORTED_MODEL]
    return weights_sha256(run.checkpoint_folder(checkpoint))


def _is_of(kept: Evaluation, test_set: EvalSet) -> bool:
    return (kept.sources, kept.refs) == (test_set.sources, test_set.refs)


def _shortened(name: str) -> str:
    """As many letters of `name` as have room in the name of a folder."""
    return name.encode()[:LONGEST_NAME].decode(errors="ignore")
