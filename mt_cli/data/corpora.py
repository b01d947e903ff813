"""Corpora: find and check the files that a config names, and read pairs of raw lines."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import Protocol

from mt_cli.config.load import shipped
from mt_cli.config.pinned_corpora import PINNED, PinnedText, pinned_text
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
"""Stands for the folder of the sample's files."""
WILDCARD = re.compile(r"\*+|\?|\[[^]]+\]")
SHOWN_FILES = 3
"""Of a side, in messages."""
RECORDS = ("json", "parquet")
"""Kinds of files with texts under keys."""
RawPair = tuple[bytes, bytes]
"""A source line and a target line as they stand in the files, line ends included."""


@dataclass(frozen=True)
class SideFiles:
    """One side of a split: the lines of some files one after the other, or one of their columns."""

    paths: tuple[Path, ...]
    column: Column | None
    """None is the default: of a table the first or the second column, of records the key `src` or
    `tgt`, of a .tmx the source's language or the first other.
    """
    side: Side
    first: int = 1
    """The number of the first of `paths`, where those before it are in other shards."""

    def __str__(self) -> str:
        names = ", ".join(str(path) for path in self.paths[:SHOWN_FILES])
        if len(self.paths) > SHOWN_FILES:
            names += f" … ({len(self.paths)} files)"
        if self.column is None and not any(map(named_kind, self.paths)):
            return names
        return f"{names} ({self.column or self.side})"

    def lines(self) -> Iterator[bytes]:
        r"""The raw lines. Only `\n` ends a line.

        Raises:
            DataError: a file cannot be read, a line is too long, or has no such column.
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
    """The two sides of a split, line by line translations of each other."""

    src: SideFiles
    tgt: SideFiles
    lines: tuple[int, int] | None = None
    """Begin and end of those that count, from 0; None is all."""

    @staticmethod
    def of(files: FilesConfig | MorePairsConfig) -> "ParallelText":
        """What `files` name; both sides have to be there."""
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
        """The raw lines of both sides, side by side.

        Raises:
            DataError: the sides differ in length, one has a line that is too long, or cannot be
                read.
        """
        every = chain.from_iterable(_aligned(file.src, file.tgt) for file in self.by_file())
        return every if self.lines is None else islice(every, *self.lines)

    def place_of(self, line: int) -> str:
        """The number of a line, which counts through all files from 1; of several, in its file."""
        for file in self.by_file() if len(self.src.paths) > 1 else ():
            num_lines = sum(1 for _ in file.src.lines())
            if line <= num_lines:
                return f"{line} of {file}"
            line -= num_lines
        return str(line)

    def by_file(self) -> "list[ParallelText]":
        """The text of each file alone, if both sides have as many."""
        if len(self.src.paths) != len(self.tgt.paths):
            return [self]
        return [
            ParallelText(replace(self.src, paths=(src,)), replace(self.tgt, paths=(tgt,)))
            for src, tgt in zip(self.src.paths, self.tgt.paths, strict=True)
        ]


def _aligned(src: SideFiles, tgt: SideFiles) -> Iterator[RawPair]:
    """The lines of both, side by side."""
    src_lines = src.lines()
    tgt_lines = tgt.lines()
    for number, (src_line, tgt_line) in enumerate(zip_longest(src_lines, tgt_lines)):
        if src_line is None or tgt_line is None:
            num_src = number + (src_line is not None) + sum(1 for _ in src_lines)
            num_tgt = number + (tgt_line is not None) + sum(1 for _ in tgt_lines)
            raise DataError(f"{tgt}: {num_tgt} lines, but {src} has {num_src}; they must align")
        yield src_line, tgt_line


def matching(paths: Sequence[Path]) -> tuple[Path, ...]:
    """`paths`, with the files that match it, sorted, in place of each pattern such as `*.de.zst`.

    A pattern that nothing matches stays, as a file that is not there.
    """
    return tuple(path for _, path in _matches(paths))


def _matches(paths: Sequence[Path]) -> list[tuple[str, Path]]:
    """See `matching`; before each file, what stands for its pattern's wildcards, if it has one."""
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
    """Make sure that where both sides are patterns, the same stands for their wildcards.

    Raises:
        DataError: naming the first files of which that is not so.
    """
    none = None, "no file"
    both = zip_longest(_matches(src), _matches(tgt), fillvalue=none)
    for (src_part, src_path), (tgt_part, tgt_path) in both:
        if src_part != tgt_part and "" not in (src_part, tgt_part):
            raise DataError(f"{src_path} stands beside {tgt_path}; they must match file by file")


class PairSource(Protocol):
    """Where raw pairs come from, such as `ParallelText`; its text names it in errors."""

    def pairs(self) -> Iterator[RawPair]:
        """The raw lines of both sides, side by side."""
        ...


Corpus = Mapping[str, ParallelText]
"""Splits by name, in the config's order, then added training pairs as `train+<name>`."""
MadeFiles = Mapping[str, FilesConfig]
"""By name, the files of those `[data.more]` of which a run has made one side."""


def is_trained_on(name: str) -> bool:
    """Whether split `name` is for training: the corpus's pairs, or pairs that the config adds."""
    return name == TRAIN or name.startswith(MORE)


def find_corpus(
    config: DataConfig,
    *,
    sources: Sequence[Path] = (),
    offline: bool = False,
    made: MadeFiles | None = None,
) -> Corpus:
    """The files of every split that `config` names; where they are pinned, they are verified.

    `sources` are folders that hold the files of the sample or of pinned corpora, which otherwise
    come with the program or are downloaded. Pairs that a run translates are there only if they are
    `made`.

    Raises:
        UsageError: there are `sources`, but only files that the config names.
        ConfigError: a corpus has no such split or language.
        DataError: a file is missing, or is not the pinned one.
        ResourceError: files have to be fetched and cannot be.
    """
    named = {**_named_files(config), **_more_pairs(config, made or {})}
    if sources and config.is_files and not any(map(pinned_text, files_of(named).values())):
        raise UsageError("--from is for corpora that are not yours; [data.files] names your files")
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
    """`text` with files in place of names of the sample's and of pinned texts."""
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
    """The text of `[data.more.NAME]` of which a run makes the other side.

    Raises:
        ConfigError: a pinned corpus has no such text.
        DataError: a file is missing, or is not the pinned one.
        ResourceError: files have to be fetched and cannot be.
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
    """The known sha256 of each file, by `<split>.<side>`; None if a split's files are not pinned.

    Pinned files need not be there for it; of pairs that the config adds, the others are read.
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
                hashes[_file_key(split, side.side, number)] = digest
    return hashes


def _hashes(path: Path, lang: str) -> list[str]:
    """The sha256 of each file that `path` stands for, on a side of the language `lang`."""
    pinned = pinned_of(path, lang)
    return [sha256_file(path)] if pinned is None else [PINS[n].sha256 for n in pinned_names(pinned)]


def pinned_of(path: Path, lang: str) -> PinnedText | None:
    """The pinned text that `path` stands for on a side of the language `lang`, if it is none."""
    text = pinned_text(path)
    return text if text is None or text.lang else text._replace(lang=lang)


def corpus_hashes(corpus: Corpus) -> dict[str, str]:
    """sha256 of each file, by `<split>.<side>`."""
    return {key: sha256_file(path) for key, path in files_of(corpus).items()}


def changed_files(config: DataConfig, inputs: Mapping[str, str], *, since: float) -> list[Path]:
    """The user's files that are there and of which `inputs`, by `<split>.<side>`, has no hash.

    Only those are read that were written, or put in their place, after the time `since`, or are
    more than there were. A file that others have moved on, as a pattern's do, is not changed.
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
    """The files of all splits, by `<split>.<side>`; a side's second one has `.2` at the end."""
    files = {}
    for name, pair in corpus.items():
        for side in (pair.src, pair.tgt):
            for number, path in enumerate(side.paths, side.first):
                files[_file_key(name, side.side, number)] = path
    return files


def _file_key(split: str, side: Side, number: int) -> str:
    return f"{split}.{side}" if number == 1 else f"{split}.{side}.{number}"


def _named_files(config: DataConfig) -> Corpus:
    """The text of each split, as the config names it or as the corpora that have it do."""
    if config.is_files:
        return {split: ParallelText.of(config.files[split]) for split in config.splits}
    corpus = {}
    for split in config.splits:
        src: tuple[Path, ...] = (SAMPLE / f"{split}.{config.src_lang}",)
        tgt: tuple[Path, ...] = (SAMPLE / f"{split}.{config.tgt_lang}",)
        if config.corpus != ("sample",):
            src = tgt = tuple(
                Path(f"{name}:{split}") for name in config.corpus if split in PINNED[name].splits
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
    """Make sure that all `paths` are files, which are read several times.

    Raises:
        DataError: some are not.
    """
    missing: dict[str, None] = {}  # a set in the order of what is asked
    for path in paths:
        if path.is_dir():
            raise DataError(f"{path}: is a folder, not a file")
        if path.exists() and not path.is_file():
            raise DataError(f"{path}: is read several times; write what it gives to a file first")
        if not path.exists():
            missing[str(path)] = None
    if missing:
        raise DataError(f"no such file: {', '.join(missing)} (paths are relative to {Path.cwd()})")
