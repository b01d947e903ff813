"""Shards: equal shares of the training text, prepared separately and joined by a manifest.

A shard is a folder of prepared data, such as `shard-3-of-16` in the prepared folder. After joining,
the prepared folder also has test sets, tokenizers, and a manifest that lists the shards.
"""

import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import numpy as np

from mt_cli.config.schema import TRAIN, Config
from mt_cli.data.checks import warn_of_known_sources
from mt_cli.data.corpora import Corpus, ParallelText, changed_files, file_key, is_trained_on
from mt_cli.data.encoded import EncodedSplit, TrainingLengths, open_split, tokens_per_word
from mt_cli.data.prepared import (
    HASHES_FOLDER,
    OPEN_FILES,
    REPORT,
    TRAIN_FILES,
    CorpusReport,
    Manifest,
    Prepared,
    SplitReport,
    check_unneeded,
    hashes_path,
    open_prepared,
    shards_in,
)
from mt_cli.data.scan import count_common
from mt_cli.errors import DataError, PreparedDataError, UsageError
from mt_cli.machine.files import (
    MANIFEST,
    MAX_TEXT_BYTES,
    json_bytes,
    read_file,
    remove,
    sha256_bytes,
    sha256_file,
    sha256_json,
    write_atomically,
)
from mt_cli.machine.locks import locked
from mt_cli.machine.workers import raise_file_limit
from mt_cli.text.normalize import Hashes
from mt_cli.text.tokenizers import TOKENIZER_FOLDER, Tokenizers

log = logging.getLogger(__name__)
FILES = ".files"
"""Suffix of the key with the file names of a divided part, which must be equal in all shards."""


@dataclass(frozen=True)
class Shard:
    """One of `of` equal shares of the training text, numbered from 1."""

    number: int
    of: int

    @staticmethod
    def parse(text: str) -> "Shard":
        """Parse a shard such as 3/16.

        Raises:
            UsageError: the text has another form.
        """
        match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text, re.ASCII)
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            raise UsageError(f"--shard {text}: expected I/N, such as 3/16, the third of 16 shards")
        return Shard(int(match[1]), int(match[2]))

    @property
    def name(self) -> str:
        """The name of its folder."""
        return f"shard-{self.number}-of-{self.of}"

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    @property
    def flag(self) -> str:
        """The flag of `prepare` for this shard."""
        return f"--shard {self}"

    def cut(self, corpus: Corpus) -> tuple[Corpus, dict[str, str]]:
        """`corpus` with this share of the training text, and hashes that all shards must share.

        Shards get whole files if there are enough, otherwise lines. They are consecutive, so that
        their concatenation is the corpus.

        Raises:
            UsageError: there are fewer training pairs than shards.
        """
        kept = {}
        common = {}
        for name, text in corpus.items():
            files = text.by_file()
            if not is_trained_on(name):
                kept[name] = text
            elif len(files) >= self.of:
                begin, end = self._range(len(files))
                kept[name] = _with_files(text, files[begin:end], first=begin + 1)
                names = [path.name for path in text.src.paths + text.tgt.paths]
                common[f"{name}{FILES}"] = sha256_json(names)
            else:
                begin, end = self._range(sum(1 for _ in text.pairs()))
                if begin < end:
                    kept[name] = replace(text, lines=(begin, end))
                elif name == TRAIN:
                    raise UsageError(f"{text}: too few lines for {self.of} shards")
        return kept, common

    def _range(self, size: int) -> tuple[int, int]:
        """Begin and end of this shard among `size` items."""
        return size * (self.number - 1) // self.of, size * self.number // self.of


@dataclass(frozen=True)
class AppendedShard:
    """The files that the shards before it do not have."""

    number: int
    others: Mapping[str, str]
    """sha256 of the files of the other shards, from their manifests."""

    @property
    def name(self) -> str:
        """The name of its folder."""
        return f"shard-{self.number}"

    def __str__(self) -> str:
        return str(self.number)

    @property
    def flag(self) -> str:
        """The flag of `prepare` for this shard."""
        return "--append, after removing its folder"

    def cut(self, corpus: Corpus) -> tuple[Corpus, dict[str, str]]:
        """`corpus` with the new files of the training text alone; there are no common hashes.

        Raises:
            DataError: files of other shards have changed, or no file is new.
        """
        kept = {}
        prepared = set(self.others.values())
        for name, text in corpus.items():
            files = text.by_file()
            new = [file for file in files if not prepared.issuperset(_hashes(file))]
            first = len(files) - len(new) + 1
            if not is_trained_on(name):
                kept[name] = text
            elif file_key(name, "src", first) in self.others:
                raise DataError(
                    f"{text}: files of other shards have changed; prepare all shards again"
                )
            elif new:
                kept[name] = _with_files(text, new, first=first)
        if TRAIN not in kept:
            raise DataError(f"{corpus[TRAIN]}: no new files to append")
        return kept, {}


def _with_files(text: ParallelText, files: Sequence[ParallelText], *, first: int) -> ParallelText:
    """The pairs of some of the `files` of `text`, whose first one has the number `first`."""
    src_paths = tuple(chain.from_iterable(file.src.paths for file in files))
    tgt_paths = tuple(chain.from_iterable(file.tgt.paths for file in files))
    src = replace(text.src, paths=src_paths, first=first)
    return ParallelText(src, replace(text.tgt, paths=tgt_paths, first=first))


def _hashes(file: ParallelText) -> list[str]:
    return list(map(sha256_file, file.src.paths + file.tgt.paths))


def first_tokenizers(config: Config, out: Path, shard: Shard | AppendedShard) -> Tokenizers | None:
    """The tokenizers of the first shard in `out`, for the other shards; None for the first one.

    Raises:
        DataError: the first shard is missing or from another config.
    """
    if shard.number == 1:
        return None
    folder = out / (Shard(1, shard.of).name if isinstance(shard, Shard) else shards_in(out)[0])
    try:
        return open_prepared(folder, config, verify=False).tokenizers
    except PreparedDataError as error:
        raise DataError(
            f"{error}; the first shard learns the tokenizers, so prepare it before the others, or "
            "copy its folder here"
        ) from error


def appended_shard(config: Config, out: Path) -> AppendedShard | None:
    """The next shard to append to those in `out`; None if no file is new.

    Raises:
        UsageError: there are no shards.
    """
    names = shards_in(out)
    if not names:
        raise UsageError(f"{out}: no shards to append to; create them with --shard and --join")
    prepared_inputs: dict[str, str] = {}
    for name in names:
        prepared_inputs |= Prepared.of(out / name).manifest.inputs
    if not changed_files(config.data, prepared_inputs, since=0):
        return None
    return AppendedShard(len(names) + 1, prepared_inputs)


def unprepared_files(prepared: Prepared, config: Config) -> list[Path]:
    """The user's files that are new or have changed since they were prepared."""
    prepared_at = min((each.folder / MANIFEST).stat().st_mtime for each in prepared.shards)
    return changed_files(config.data, prepared.manifest.inputs, since=prepared_at)


def warn_of_unprepared(prepared: Prepared, config: Config) -> None:
    """Warn about the user's files that are not in any shard of `prepared`."""
    files = unprepared_files(prepared, config)
    if files:
        log.warning("not in any shard: %s; add new files with --append", ", ".join(map(str, files)))


def join_shards(
    config: Config, out: Path, *, force: bool = False, needed_by: Sequence[Path] = ()
) -> tuple[CorpusReport, bool]:
    """Join the shards in `out` into prepared data; their files are not moved.

    Without `force`, data that runs need (`needed_by`) is not replaced. Memory does not grow with
    the corpus. Returns the report, and whether the data is new.

    Raises:
        DataError: a shard is missing, damaged, or from another config or other files.
    """
    with locked(out):
        shards = _open_all(config, out)
        report = _joined_report(shards)
        report_content = json_bytes(report.model_dump())
        contents = {}
        outputs = {REPORT: sha256_bytes(report_content)}
        for name, digest in shards[0].manifest.outputs.items():
            if not name.startswith((*TRAIN_FILES, f"{HASHES_FOLDER}/", REPORT)):
                contents[name] = read_file(shards[0].folder / name, max_bytes=MAX_TEXT_BYTES)
                outputs[name] = digest
        num_sentences: Counter[int] = Counter()
        for shard in shards:
            outputs[f"{shard.folder.name}/{MANIFEST}"] = sha256_file(shard.folder / MANIFEST)
            for number, lines in shard.manifest.num_sentences.items():
                num_sentences[int(number)] += lines
        training = EncodedSplit.joined([open_split(shard.folder, TRAIN) for shard in shards])
        if not len(training):
            raise DataError(
                f"{out}: every training pair was dropped: {report.splits[TRAIN].dropped}"
            )
        manifest = Manifest(
            data=config.data,
            tokenizer=config.tokenizer,
            inputs=_joined_inputs(shards),
            outputs=outputs,
            pairs={name: split.pairs for name, split in report.splits.items()},
            lengths=TrainingLengths.of(
                training, num_sentences, tokens_per_word=tokens_per_word(shards[0].folder)
            ),
            shards=[shard.folder.name for shard in shards],
        )
        content = json_bytes(manifest.model_dump(mode="json"))
        had_data = (out / MANIFEST).exists()
        is_new = not had_data or read_file(out / MANIFEST) != content
        joined = Prepared(out, manifest)
        is_needed = had_data and is_new and needed_by and not force
        if is_needed and not joined.continues(Prepared.of(out).sha256):
            check_unneeded(out, needed_by)
        for name, of_first in contents.items():
            write_atomically(out / name, of_first)
        write_atomically(out / REPORT, report_content)
        write_atomically(out / MANIFEST, content)
        for path in out.glob(f"{TRAIN}.*"):  # from data prepared without shards
            if path.name not in outputs:
                remove(path)
    warn_of_unprepared(joined, config)
    log.info("joined %s from %d shards\n%s", out, len(shards), report.as_text())
    return report, is_new


def _open_all(config: Config, out: Path) -> list[Prepared]:
    """Open all shards in `out`, in order."""
    names = shards_in(out)
    if not names:
        raise DataError(f"{out}: no shards; prepare them with --shard 1/N, --shard 2/N …")
    numbers = {int(name.rpartition("-")[2]) for name in names if "-of-" in name}
    if len(numbers) != 1:
        several = " and ".join(map(str, sorted(numbers))) or "no division"
        raise DataError(f"{out}: mixes shards of {several}; keep only those of one division")
    of = max(numbers)
    raise_file_limit(OPEN_FILES * len(names))
    shards = []
    for number in range(1, max(of, len(names)) + 1):
        shard = Shard(number, of) if number <= of else AppendedShard(number, {})
        folder = out / shard.name
        if shard.name not in names:
            raise DataError(f"{folder}: missing; prepare it with {shard.flag}")
        if folder.is_symlink():
            raise DataError(f"{folder}: is a symlink; shards must be in the folder itself")
        try:
            opened = open_prepared(folder, config)
        except PreparedDataError as error:
            raise DataError(f"{error}; prepare it with {shard.flag}") from error
        if opened.manifest.shard != str(shard):
            raise DataError(
                f"{folder}: contains shard {opened.manifest.shard}, which would be used twice; "
                f"prepare it with {shard.flag}"
            )
        shards.append(opened)
    return shards


def _joined_inputs(shards: Sequence[Prepared]) -> dict[str, str]:
    """The inputs of all shards, as for a corpus prepared without shards.

    Raises:
        DataError: shards have different tokenizers or files.
    """
    inputs: dict[str, str] = {}
    for shard in shards:
        outputs = shard.manifest.outputs
        tokenizers = {name: outputs[name] for name in outputs if name.startswith(TOKENIZER_FOLDER)}
        for key, digest in {**shard.manifest.inputs, **tokenizers}.items():
            if inputs.setdefault(key, digest) != digest:
                raise DataError(
                    f"{shard.folder}: has a different {key} than the shards before it; prepare all "
                    "shards again that are older than your files or the first shard"
                )
    first = shards[0].manifest.inputs
    return {
        key: digest
        for key, digest in inputs.items()
        if not key.endswith(FILES) and (key in first or not key.startswith(TOKENIZER_FOLDER))
    }


def _joined_report(shards: Sequence[Prepared]) -> CorpusReport:
    """The report on all shards; percentiles of lengths are the maximum of the shards."""
    reports = [shard.report() for shard in shards]
    names = dict.fromkeys(chain.from_iterable(report.splits for report in reports))
    splits = {}
    for name in names:
        parts = [report.splits[name] for report in reports if name in report.splits]
        if is_trained_on(name):
            splits[name] = SplitReport.total(parts)
            continue
        sources, pairs = next(_hashes_of(shards, name))
        trained_on = [part for part in names if is_trained_on(part)]
        repeats = {
            "src_in_train": count_common(sources, _rows(shards, trained_on, 0)),
            "pairs_in_train": count_common(pairs, _rows(shards, trained_on, 1)),
        }
        splits[name] = parts[0].model_copy(update=repeats)
        warn_of_known_sources(name, repeats["src_in_train"], of=parts[0].lines)
    return reports[0].model_copy(update={"splits": splits})


def _rows(shards: Sequence[Prepared], parts: Sequence[str], row: int) -> Iterator[Hashes]:
    """One row of each array of hashes of `parts` in `shards`."""
    for part in parts:
        for hashes in _hashes_of(shards, part):
            yield hashes[row]


def _hashes_of(shards: Sequence[Prepared], part: str) -> Iterator[Hashes]:
    """The sorted hashes of sources and of pairs, (2, N), of each shard that has the `part`.

    They are memory-mapped; pages that have been read count as memory until the array is freed.
    """
    for shard in shards:
        path = hashes_path(shard.folder, part)
        if path.exists():
            yield np.load(path, mmap_mode="r")
