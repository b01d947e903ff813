"""Corpora: find, fetch and check the files that a config names, and read pairs of raw lines."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Protocol

from mt_cli.config.load import shipped
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
from mt_cli.data import multi30k
from mt_cli.data.files import kind_of, named_kind, text_lines
from mt_cli.data.multi30k import check_hash, check_pin, fetch_missing
from mt_cli.data.readers import cells_of, texts_of, values_of
from mt_cli.errors import ConfigError, DataError, UsageError
from mt_cli.machine.files import sha256_file
from mt_cli.text.normalize import unescaped

log = logging.getLogger(__name__)
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
    unescapes: bool = False

    def __str__(self) -> str:
        names = ", ".join(str(path) for path in self.paths)
        if self.column is None and not any(map(named_kind, self.paths)):
            return names
        return f"{names} ({self.column or self.side})"

    def lines(self) -> Iterator[bytes]:
        r"""The raw lines. Only `\n` ends a line.

        Raises:
            DataError: a file cannot be read, a line is too long, or has no such column.
        """
        for path in self.paths:
            lines = self._lines_of(path)
            yield from map(unescaped, lines) if self.unescapes else lines

    def _lines_of(self, path: Path) -> Iterator[bytes]:
        if self.column is None and named_kind(path) is None:
            return text_lines(path)
        kind = kind_of(path)
        if kind == "tmx":
            return texts_of(path, str(self.column or self.side))
        if kind in RECORDS:
            return values_of(path, str(self.column or self.side))
        return cells_of(path, self.column or SIDES.index(self.side) + 1)


@dataclass(frozen=True)
class ParallelText:
    """The two sides of a split, line by line translations of each other."""

    src: SideFiles
    tgt: SideFiles

    @staticmethod
    def of(files: FilesConfig | MorePairsConfig, *, unescapes: bool = False) -> "ParallelText":
        """What `files` name; both sides have to be there."""
        assert files.src is not None
        assert files.tgt is not None
        kinds = set(map(named_kind, files.src))
        has_rows = files.src == files.tgt and not kinds.intersection(RECORDS)
        if has_rows and isinstance(files.src_column, str) != isinstance(files.tgt_column, str):
            raise ConfigError(
                f"{files.src[0]}: src_column and tgt_column must both be names of its first line, "
                "or neither"
            )
        return ParallelText(
            SideFiles(files.src, files.src_column, "src", unescapes),
            SideFiles(files.tgt, files.tgt_column, "tgt", unescapes),
        )

    def __str__(self) -> str:
        return " and ".join(dict.fromkeys(map(str, (self.src, self.tgt))))

    def pairs(self) -> Iterator[RawPair]:
        """The raw lines of both sides, side by side.

        Raises:
            DataError: the sides differ in length, one has a line that is too long, or cannot be
                read.
        """
        src_lines = self.src.lines()
        tgt_lines = self.tgt.lines()
        for number, (src, tgt) in enumerate(zip_longest(src_lines, tgt_lines)):
            if src is None or tgt is None:
                num_src = number + (src is not None) + sum(1 for _ in src_lines)
                num_tgt = number + (tgt is not None) + sum(1 for _ in tgt_lines)
                raise DataError(
                    f"{self.tgt}: {num_tgt} lines, but {self.src} has {num_src}; "
                    "the files must align line by line"
                )
            yield src, tgt


@dataclass(frozen=True)
class TranslatedPairs:
    """Pairs of which a run has made one side."""

    files: FilesConfig
    held_out: int
    """Lines that were left out because a held-out split has them."""


class PairSource(Protocol):
    """Where raw pairs come from, such as `ParallelText`; its text names it in errors."""

    def pairs(self) -> Iterator[RawPair]:
        """The raw lines of both sides, side by side."""
        ...


Corpus = Mapping[str, ParallelText]
"""Splits by name, in the config's order, then added training pairs as `train+<name>`."""


def tagged(src: bytes, tag: str) -> bytes:
    """The source line `src` with the word `tag` before it, if there is one."""
    return f"{tag} ".encode() + src if tag else src


def is_trained_on(name: str) -> bool:
    """Whether split `name` is for training: the corpus's pairs, or pairs that the config adds."""
    return name == TRAIN or name.startswith(MORE)


def find_corpus(
    config: DataConfig,
    *,
    source: Path | None = None,
    offline: bool = False,
    made: Mapping[str, TranslatedPairs] | None = None,
) -> Corpus:
    """The files of every split that `config` names; where they are pinned, they are verified.

    `source` is a folder that holds them. Without it, Multi30k is read from `DOWNLOADS`, or fetched
    into it. Pairs that a run translates are there only if `made` has their files.

    Raises:
        UsageError: `source` is given for files that the config names.
        ConfigError: the corpus has no such split or language.
        DataError: a file is missing, or is not the pinned one.
        ResourceError: files have to be fetched and cannot be.
    """
    if config.corpus == "files" and source is not None:
        raise UsageError(
            "--from is for the files of corpus 'sample' or 'multi30k'; [data.files] names yours"
        )
    named, more = _named_files(config), _existing(_more_pairs(config, made or {}))
    if config.corpus == "multi30k" and source is None:
        fetch_missing(
            files_of(named).values(), multi30k.BASE_URL, multi30k.GZIPPED_SHA256, offline=offline
        )
    homes = {"files": Path(), "multi30k": multi30k.DOWNLOADS, "sample": shipped("data/sample")}
    folder = source or homes[config.corpus]

    def find(text: SideFiles) -> SideFiles:
        if config.corpus == "files":
            return text
        (name,) = text.paths
        gzipped, plain = folder / f"{name}.gz", folder / name
        path = (
            gzipped if gzipped.is_file() else plain if plain.is_file() else folder / f"{name}[.gz]"
        )
        return replace(text, paths=(path,))

    own = {split: ParallelText(find(pair.src), find(pair.tgt)) for split, pair in named.items()}
    corpus = _existing({**own, **more})
    if config.corpus == "multi30k":
        for path in files_of(own).values():
            check_pin(path)
    return corpus


def monolingual_text(
    config: DataConfig, name: str, *, source: Path | None = None, offline: bool = False
) -> SideFiles:
    """The text of `[data.more.NAME]` of which a run makes the other side.

    Raises:
        DataError: a file is missing, or is not the pinned one.
        ResourceError: captions have to be fetched and cannot be.
    """
    more = config.more[name]
    side = more.given_side
    if more.captions is None:
        paths, column = (
            (more.src, more.src_column) if side == "src" else (more.tgt, more.tgt_column)
        )
        assert paths is not None
        _check_exist(paths)
        return SideFiles(paths, column, side, config.unescape)
    lang = config.src_lang if side == "src" else config.tgt_lang
    files = [Path(f"train.{number}.{lang}") for number in range(1, 6)]
    if str(files[0]) not in multi30k.CAPTIONS_SHA256:
        raise ConfigError(f"data.more.{name}.captions: multi30k has none in '{lang}'")
    if source is None:
        fetch_missing(files, multi30k.CAPTIONS_URL, multi30k.CAPTIONS_SHA256, offline=offline)
    paths = tuple((source or multi30k.DOWNLOADS) / f"{file}.gz" for file in files)
    _check_exist(paths)
    for path in paths:
        check_hash(path, multi30k.CAPTIONS_SHA256[path.stem])
    return SideFiles(paths, None, side)


def pinned_hashes(config: DataConfig, made: Mapping[str, TranslatedPairs]) -> dict[str, str] | None:
    """The known sha256 of each file, by `<split>.<side>`; None if the corpus is not pinned.

    It needs none of the corpus's own files. A plain file has the hash of the gzipped one, so that
    both count as the same.
    """
    if config.corpus != "multi30k":
        return None
    pinned = {
        key: multi30k.GZIPPED_SHA256[str(name)]
        for key, name in files_of(_named_files(config)).items()
    }
    return pinned | corpus_hashes(_existing(_more_pairs(config, made)))


def corpus_hashes(corpus: Corpus) -> dict[str, str]:
    """sha256 of each file, by `<split>.<side>`."""
    return {key: sha256_file(path) for key, path in files_of(corpus).items()}


def changed_files(config: DataConfig, inputs: Mapping[str, str], *, since: float) -> list[Path]:
    """The user's files that are there and do not have the hashes `inputs`, by `<split>.<side>`.

    Only those are read that were written, or put in their place, after the time `since`.
    """
    named = _named_files(config) if config.corpus == "files" else {}
    changed = []
    for key, path in files_of({**named, **_more_pairs(config, {})}).items():
        if path.is_file():
            status = path.stat()
            is_newer = max(status.st_mtime, status.st_ctime) > since
            if is_newer and key in inputs and sha256_file(path) != inputs[key]:
                changed.append(path)
    return changed


def files_of(corpus: Corpus) -> dict[str, Path]:
    """The files of all splits, by `<split>.<side>`; a side's second one has `.2` at the end."""
    files = {}
    for name, pair in corpus.items():
        for side in (pair.src, pair.tgt):
            for number, path in enumerate(side.paths, 1):
                key = f"{name}.{side.side}"
                files[key if number == 1 else f"{key}.{number}"] = path
    return files


def _named_files(config: DataConfig) -> Corpus:
    """The two files of each split, as they are called in the corpus's folder."""
    if config.corpus == "files":
        return {
            split: ParallelText.of(config.files[split], unescapes=config.unescape)
            for split in config.splits
        }
    corpus = {}
    for split in config.splits:
        src = Path(f"{split}.{config.src_lang}")
        tgt = Path(f"{split}.{config.tgt_lang}")
        for path in (src, tgt):
            if config.corpus == "multi30k" and str(path) not in multi30k.GZIPPED_SHA256:
                known = ", ".join(multi30k.GZIPPED_SHA256)
                raise ConfigError(f"data: multi30k has no {path}; known: {known}")
        corpus[split] = ParallelText.of(FilesConfig(src=(src,), tgt=(tgt,)))
    return corpus


def _more_pairs(config: DataConfig, made: Mapping[str, TranslatedPairs]) -> Corpus:
    corpus = {}
    for name, more in config.more.items():
        files = made[name].files if name in made else more
        if files.src is not None and files.tgt is not None:
            corpus[f"{MORE}{name}"] = ParallelText.of(files, unescapes=config.unescape)
    return corpus


def _existing(corpus: Corpus) -> Corpus:
    _check_exist(files_of(corpus).values())
    return corpus


def _check_exist(paths: Iterable[Path]) -> None:
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
