"""Corpora: find and check the files of a config, and read pairs of raw lines."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import Protocol

from mt_cli.config.load import shipped
from mt_cli.config.pinned_corpora import PINNED_CORPORA, PinnedText, pinned_text
from mt_cli.config.schema import (
    MORE,
    SIDES,
    TRAIN,
    Column,
    DataConfig,
    FilesConfig,
    MorePairsConfig,
    Side,
)
from mt_cli.data.fetch import PINS, found_in, missing_in, pinned_names, pinned_paths
from mt_cli.data.records import record_texts
from mt_cli.data.tables import table_cells
from mt_cli.data.text_files import kind_of, named_kind, text_lines
from mt_cli.data.tmx import tmx_texts
from mt_cli.errors import ConfigError, DataError, UsageError
from mt_cli.machine.files import sha256_file

SAMPLE = Path("sample:")
"""Placeholder for the folder of the sample's files."""
WILDCARD = re.compile(r"\*+|\?|\[[^]]+\]")
SHOWN_FILES = 3
"""Maximum files of a side that a message lists."""
RECORDS = ("json", "parquet")
"""Kinds of files that have texts under keys."""
RawPair = tuple[bytes, bytes]
"""A source line and a target line as in the files, including line ends."""


@dataclass(frozen=True)
class SideFiles:
    """One side of a split: the concatenated lines of some files, or of a column in them."""

    paths: tuple[Path, ...]
    column: Column | None
    """None is the default: the first or second column of a table, the key `src` or `tgt` of
    records, the source language or the first other one of a .tmx file.
    """
    side: Side
    first: int = 1
    """The number of the first of `paths`; files before it are in other shards."""

    def __str__(self) -> str:
        names = ", ".join(str(path) for path in self.paths[:SHOWN_FILES])
        if len(self.paths) > SHOWN_FILES:
            names += f" … ({len(self.paths)} files)"
        if self.column is None and not any(map(named_kind, self.paths)):
            return names
        return f"{names} ({self.column or self.side})"

    def lines(self) -> Iterator[bytes]:
        r"""The raw lines; only `\n` ends a line.

        Raises:
            DataError: a file cannot be read, a line is too long, or the column is missing.
        """
        for path in self.paths:
            kind = kind_of(path) if self.column is not None else named_kind(path)
            if kind is None:
                yield from text_lines(path)
            elif kind == "tmx":
                yield from tmx_texts(path, str(self.column or self.side))
            elif kind in RECORDS:
                yield from record_texts(path, str(self.column or self.side))
            else:
                yield from table_cells(path, self.column or SIDES.index(self.side) + 1)


@dataclass(frozen=True)
class ParallelText:
    """The two sides of a split, aligned line by line."""

    src: SideFiles
    tgt: SideFiles
    lines: tuple[int, int] | None = None
    """Begin and end of the lines to use, from 0; None uses all."""

    @staticmethod
    def of(files: FilesConfig | MorePairsConfig) -> "ParallelText":
        """The text of `files`, which must have both sides."""
        assert files.src is not None
        assert files.tgt is not None
        kinds = set(map(named_kind, files.src))
        has_rows = files.src == files.tgt and not kinds.intersection(RECORDS)
        if has_rows and isinstance(files.src_column, str) != isinstance(files.tgt_column, str):
            raise ConfigError(
                f"{files.src[0]}: src_column and tgt_column must both be names, or neither"
            )
        return ParallelText(
            SideFiles(matching(files.src), files.src_column, "src"),
            SideFiles(matching(files.tgt), files.tgt_column, "tgt"),
        )

    def __str__(self) -> str:
        return " and ".join(dict.fromkeys(map(str, (self.src, self.tgt))))

    def pairs(self) -> Iterator[RawPair]:
        """The raw pairs of lines.

        Raises:
            DataError: the sides differ in length, a line is too long, or a file cannot be read.
        """
        every = chain.from_iterable(_aligned(file.src, file.tgt) for file in self.by_file())
        return every if self.lines is None else islice(every, *self.lines)

    def place_of(self, line: int) -> str:
        """Convert a line's number over all files, from 1, to its number and name of its file."""
        for file in self.by_file() if len(self.src.paths) > 1 else ():
            num_lines = sum(1 for _ in file.src.lines())
            if line <= num_lines:
                return f"{line} of {file}"
            line -= num_lines
        return str(line)

    def by_file(self) -> "list[ParallelText]":
        """The text of each pair of files, if both sides have the same number of files."""
        if len(self.src.paths) != len(self.tgt.paths):
            return [self]
        return [
            ParallelText(replace(self.src, paths=(src,)), replace(self.tgt, paths=(tgt,)))
            for src, tgt in zip(self.src.paths, self.tgt.paths, strict=True)
        ]


def _aligned(src: SideFiles, tgt: SideFiles) -> Iterator[RawPair]:
    """Zip the lines of both sides, after checking that they have the same number."""
    src_lines = src.lines()
    tgt_lines = tgt.lines()
    for number, (src_line, tgt_line) in enumerate(zip_longest(src_lines, tgt_lines)):
        if src_line is None or tgt_line is None:
            num_src = number + (src_line is not None) + sum(1 for _ in src_lines)
            num_tgt = number + (tgt_line is not None) + sum(1 for _ in tgt_lines)
            raise DataError(
                f"{tgt}: {num_tgt} lines, but {src} has {num_src}; they must align line by line"
            )
        yield src_line, tgt_line


def matching(paths: Sequence[Path]) -> tuple[Path, ...]:
    """Expand patterns such as `*.de.zst` in `paths` to the matching files, sorted.

    A pattern without matches stays, like a missing file.
    """
    return tuple(path for _, path in _matches(paths))


def _matches(paths: Sequence[Path]) -> list[tuple[str, Path]]:
    """Like `matching`, but each file comes with the part of its name that the wildcards match."""
    found: list[tuple[str, Path]] = []
    for path in paths:
        matches: list[Path] = []
        literal = WILDCARD.split(str(path))
        if len(literal) > 1 and not path.exists():
            matches = sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))))
        for match in matches:
            stands_for = str(match)[len(literal[0]) : len(str(match)) - len(literal[-1])]
            found.append((stands_for, match))
        if not matches:
            found.append(("", path))
    return found


def check_match(src: Sequence[Path], tgt: Sequence[Path]) -> None:
    """Check that the wildcards of both sides match the same parts of file names.

    Raises:
        DataError: they do not; names the first files that differ.
    """
    none = None, "no file"
    both = zip_longest(_matches(src), _matches(tgt), fillvalue=none)
    for (src_part, src_path), (tgt_part, tgt_path) in both:
        if src_part != tgt_part and "" not in (src_part, tgt_part):
            raise DataError(
                f"{src_path} is paired with {tgt_path}; src and tgt must match file by file"
            )


class PairSource(Protocol):
    """A source of raw pairs, such as `ParallelText`; errors show its `str`."""

    def pairs(self) -> Iterator[RawPair]:
        """The raw pairs of lines."""
        ...


Corpus = Mapping[str, ParallelText]
"""Splits by name, in the config's order, then additional training pairs as `train+<name>`."""
MadeFiles = Mapping[str, FilesConfig]
"""The files of each `[data.more.<name>]` of which a run has translated one side, by name."""


def is_trained_on(name: str) -> bool:
    """Whether split `name` is for training: the corpus's pairs, or additional pairs."""
    return name == TRAIN or name.startswith(MORE)


def find_corpus(
    config: DataConfig,
    *,
    sources: Sequence[Path] = (),
    offline: bool = False,
    made: MadeFiles | None = None,
) -> Corpus:
    """Find the files of every split in `config`, and verify pinned ones.

    `sources` are folders with the files of the sample or of pinned corpora, which are otherwise
    bundled or downloaded. Pairs that a run translates are included only if they are in `made`.

    Raises:
        UsageError: there are `sources`, but the config only has the user's own files.
        ConfigError: a corpus does not have a split or language.
        DataError: a file is missing, or is not the pinned one.
        ResourceError: a download failed.
    """
    named = {**_named_files(config), **_more_pairs(config, made or {})}
    if sources and config.is_files and not any(map(pinned_text, files_of(named).values())):
        raise UsageError("--from works only with published corpora; [data.files] names your files")
    corpus = {}
    for split, text in named.items():
        src = _found(text.src, config, sources, offline=offline)
        tgt = _found(text.tgt, config, sources, offline=offline)
        corpus[split] = ParallelText(src, tgt)
    check_exist(files_of(corpus).values())
    named_by_user: list[FilesConfig | MorePairsConfig] = list(config.files.values())
    for files in (*named_by_user, *config.more.values()):
        if files.src is not None and files.tgt is not None:
            check_match(files.src, files.tgt)
    return corpus


def _found(
    text: SideFiles, config: DataConfig, sources: Sequence[Path], *, offline: bool
) -> SideFiles:
    """`text` with the names of sample and pinned texts replaced by files."""
    paths: list[Path] = []
    for path in text.paths:
        pinned = pinned_of(path, config.lang(text.side))
        if pinned is not None:
            paths += pinned_paths(pinned, sources=sources, offline=offline)
        elif config.corpus == ("sample",) and path.parent == SAMPLE:
            folders = sources or [shipped("data/sample")]
            place = found_in(folders, path.name)
            if place is None:
                raise DataError(missing_in(folders, path.name))
            paths.append(place)
        else:
            paths.append(path)
    return replace(text, paths=tuple(paths))


def monolingual_text(
    config: DataConfig, name: str, *, sources: Sequence[Path] = (), offline: bool = False
) -> SideFiles:
    """The text of `[data.more.NAME]` that a run translates.

    Raises:
        ConfigError: a pinned corpus does not have this text.
        DataError: a file is missing, or is not the pinned one.
        ResourceError: a download failed.
    """
    more = config.more[name]
    side = more.given_side
    given = more.src if side == "src" else more.tgt
    column = more.src_column if side == "src" else more.tgt_column
    assert given is not None
    text = _found(SideFiles(matching(given), column, side), config, sources, offline=offline)
    check_exist(text.paths)
    return text


def pinned_hashes(config: DataConfig, made: MadeFiles) -> dict[str, str] | None:
    """The sha256 of each file, by `<split>.<side>`; None if a split's files are not pinned.

    Pinned files need not exist for this; other files of additional pairs are read.
    """
    named = _named_files(config)
    if not all(map(pinned_text, files_of(named).values())):
        return None
    more = _more_pairs(config, made)
    check_exist(path for path in files_of(more).values() if pinned_text(path) is None)
    hashes = {}
    for split, text in {**named, **more}.items():
        for side in (text.src, text.tgt):
            lang = config.lang(side.side)
            known = chain.from_iterable(_hashes(path, lang) for path in side.paths)
            for number, digest in enumerate(known, side.first):
                hashes[file_key(split, side.side, number)] = digest
    return hashes


def _hashes(path: Path, lang: str) -> list[str]:
    """The sha256 of each file that `path` stands for, on the side with language `lang`."""
    pinned = pinned_of(path, lang)
    return [sha256_file(path)] if pinned is None else [PINS[n].sha256 for n in pinned_names(pinned)]


def pinned_of(path: Path, lang: str) -> PinnedText | None:
    """The pinned text that `path` stands for on the side with language `lang`; None for a path."""
    text = pinned_text(path)
    return text if text is None or text.lang else text._replace(lang=lang)


def corpus_hashes(corpus: Corpus) -> dict[str, str]:
    """sha256 of each file, by `<split>.<side>`."""
    return {key: sha256_file(path) for key, path in files_of(corpus).items()}


def changed_files(config: DataConfig, inputs: Mapping[str, str], *, since: float) -> list[Path]:
    """The user's existing files whose hash is not in `inputs`, which is by `<split>.<side>`.

    Only files that are new or newer than the time `since` are read. A file whose number changed,
    because a pattern matches more files now, does not count as changed.
    """
    named = _named_files(config) if config.is_files else {}
    changed = []
    for key, path in files_of({**named, **_more_pairs(config, {})}).items():
        if path.is_file():
            status = path.stat()
            is_newer = max(status.st_mtime, status.st_ctime) > since
            if not is_newer and key in inputs:
                continue
            of_side = [
                hashed for name, hashed in inputs.items() if (".src" in name) == (".src" in key)
            ]
            if sha256_file(path) not in of_side:
                changed.append(path)
    return changed


def files_of(corpus: Corpus) -> dict[str, Path]:
    """The files of all splits, by `<split>.<side>`; a side's second file has the suffix `.2`."""
    files = {}
    for name, pair in corpus.items():
        for side in (pair.src, pair.tgt):
            for number, path in enumerate(side.paths, side.first):
                files[file_key(name, side.side, number)] = path
    return files


def file_key(split: str, side: Side, number: int) -> str:
    """The name of a side's file, numbered from 1, among hashes: `train.src`, `train.src.2`."""
    return f"{split}.{side}" if number == 1 else f"{split}.{side}.{number}"


def _named_files(config: DataConfig) -> Corpus:
    """The text of each split, from the config's files or from the corpora that have it."""
    if config.is_files:
        return {split: ParallelText.of(config.files[split]) for split in config.splits}
    corpus = {}
    for split in config.splits:
        src: tuple[Path, ...] = (SAMPLE / f"{split}.{config.src_lang}",)
        tgt: tuple[Path, ...] = (SAMPLE / f"{split}.{config.tgt_lang}",)
        if config.corpus != ("sample",):
            src = tgt = tuple(
                Path(f"{name}:{split}")
                for name in config.corpus
                if split in PINNED_CORPORA[name].splits
            )
        corpus[split] = ParallelText.of(FilesConfig(src=src, tgt=tgt))
    return corpus


def _more_pairs(config: DataConfig, made: MadeFiles) -> Corpus:
    corpus = {}
    for name, more in config.more.items():
        files = made.get(name, more)
        if files.src is not None and files.tgt is not None:
            corpus[f"{MORE}{name}"] = ParallelText.of(files)
    return corpus


def check_exist(paths: Iterable[Path]) -> None:
    """Check that all `paths` are regular files, which can be read several times.

    Raises:
        DataError: some are not.
    """
    missing: dict[str, None] = {}  # an ordered set
    for path in paths:
        if path.is_dir():
            raise DataError(f"{path}: is a folder, not a file")
        if path.exists() and not path.is_file():
            raise DataError(f"{path}: must be read several times; write it to a regular file first")
        if not path.exists():
            missing[str(path)] = None
    if missing:
        raise DataError(f"no such file: {', '.join(missing)} (paths are relative to {Path.cwd()})")
