"""Corpora: find, fetch and check the files that a config names, and read pairs of raw lines.

Multi30k carries no licence file, so it is downloaded and never redistributed.
"""

import http.client
import logging
import re
import time
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from itertools import chain, islice, zip_longest
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
from mt_cli.data.readers import (
    kind_of,
    named_kind,
    record_texts,
    table_cells,
    text_lines,
    tmx_texts,
)
from mt_cli.errors import ConfigError, DataError, ResourceError, UsageError
from mt_cli.machine.files import sha256_bytes, sha256_file, write_atomically

log = logging.getLogger(__name__)

DOWNLOADS = Path("data/raw/multi30k")
COMMIT = "a3d2e0d"
REPOSITORY = f"https://raw.githubusercontent.com/multi30k/dataset/{COMMIT}/data"
BASE_URL = f"{REPOSITORY}/task1/raw"
CAPTIONS_URL = f"{REPOSITORY}/task2/raw"
ATTEMPTS = 3
TIMEOUT_S = 30.0
"""Longest silence of the server."""
BACKOFF_S = 1.0
"""Wait before the second attempt; it doubles before each further one."""
SUMS = resources.files(__package__).joinpath("multi30k.sha256").read_text().splitlines()
SHA256 = {name: digest for digest, name in map(str.split, SUMS)}
"""Of Multi30k's files by name, as served (`.gz`) or unpacked; `train.1` to `train.5` are captions.
"""
MAX_FILE_BYTES = 1 << 20
"""Larger than any of them."""


def fetch_missing(names: Iterable[Path], base_url: str, *, offline: bool) -> None:
    """Download the files `names` that are not there yet."""
    paths = [DOWNLOADS / f"{name}.gz" for name in names]
    missing = [path for path in paths if not path.is_file()]
    if missing and offline:
        raise ResourceError(
            f"--offline, but in {DOWNLOADS} is no {missing[0].name}; or name a folder with --from"
        )
    for path in missing:
        url = f"{base_url}/{path.name}"
        log.info("fetching %s", url)
        download(url, path, sha256=SHA256[path.name], max_bytes=MAX_FILE_BYTES)


def check_pin(path: Path) -> None:
    """Refuse a file of Multi30k, plain or gzipped, that is not as published."""
    if path.name not in SHA256:
        raise DataError(f"{path}: only {path.name}.gz can be verified; put that there instead")
    found = sha256_file(path)
    if found != SHA256[path.name]:
        raise DataError(f"{path}: sha256 {found} found, {SHA256[path.name]} expected; get it anew")


def download(
    url: str, path: Path, *, sha256: str, max_bytes: int, backoff_s: float = BACKOFF_S
) -> None:
    """Fetch `url` into `path`, which appears only when the hash is right.

    Raises:
        ResourceError: the network or the server fails, `ATTEMPTS` times.
        DataError: the server sends a file with another hash, or of more than `max_bytes` bytes.
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT_S) as response:
                data = response.read(max_bytes + 1)
                if len(data) <= max_bytes and response.length:  # fewer came than were announced
                    raise http.client.IncompleteRead(data, response.length)
        except (http.client.HTTPException, OSError, ValueError) as error:  # URLError is an OSError
            reason = str(getattr(error, "reason", None) or error or type(error).__name__)[:200]
        else:
            break
        log.warning("attempt %d of %d: %s: %s", attempt, ATTEMPTS, url, reason)
        if attempt == ATTEMPTS:
            raise ResourceError(
                f"{url}: cannot be fetched: {reason}; or name a folder of the files with --from"
            )
        time.sleep(backoff_s * 2 ** (attempt - 1))
    found = sha256_bytes(data)
    if found != sha256:
        raise DataError(f"{url}: sha256 {found} found, {sha256} expected")
    write_atomically(path, data)


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
    source: Path | None = None,
    offline: bool = False,
    made: MadeFiles | None = None,
) -> Corpus:
    """The files of every split that `config` names; where they are pinned, they are verified.

    `source` is a folder that holds them. Without it, Multi30k is read from `DOWNLOADS`, or fetched
    into it. Pairs that a run translates are there only if they are `made`.

    Raises:
        UsageError: `source` is given for files that the config names.
        ConfigError: the corpus has no such split or language.
        DataError: a file is missing, or is not the pinned one.
        ResourceError: files have to be fetched and cannot be.
    """
    if config.corpus == "files" and source is not None:
        raise UsageError("--from is for corpus sample or multi30k; [data.files] names your files")
    named = _named_files(config)
    more = _more_pairs(config, made or {})
    check_exist(files_of(more).values())
    if config.corpus == "multi30k" and source is None:
        fetch_missing(files_of(named).values(), BASE_URL, offline=offline)
    homes = {"files": Path(), "multi30k": DOWNLOADS, "sample": shipped("data/sample")}
    folder = source or homes[config.corpus]

    def find(text: SideFiles) -> SideFiles:
        if config.corpus == "files":
            return text
        (name,) = text.paths
        for path in (folder / f"{name}.gz", folder / name):
            if path.is_file():
                return replace(text, paths=(path,))
        return replace(text, paths=(folder / f"{name}[.gz]",))

    own = {split: ParallelText(find(pair.src), find(pair.tgt)) for split, pair in named.items()}
    check_exist(files_of(own).values())
    for files in config.files.values():
        check_match(files.src, files.tgt)
    for each in config.more.values():
        if each.src is not None and each.tgt is not None:
            check_match(each.src, each.tgt)
    if config.corpus == "multi30k":
        for path in files_of(own).values():
            check_pin(path)
    return {**own, **more}


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
        paths = more.src if side == "src" else more.tgt
        column = more.src_column if side == "src" else more.tgt_column
        assert paths is not None
        paths = matching(paths)
        check_exist(paths)
        return SideFiles(paths, column, side)
    lang = config.src_lang if side == "src" else config.tgt_lang
    names = [Path(f"train.{number}.{lang}") for number in range(1, 6)]
    if f"{names[0]}.gz" not in SHA256:
        raise ConfigError(f"data.more.{name}.captions: multi30k has none in '{lang}'")
    if source is None:
        fetch_missing(names, CAPTIONS_URL, offline=offline)
    paths = tuple((source or DOWNLOADS) / f"{name}.gz" for name in names)
    check_exist(paths)
    for path in paths:
        check_pin(path)
    return SideFiles(paths, None, side)


def pinned_hashes(config: DataConfig, made: MadeFiles) -> dict[str, str] | None:
    """The known sha256 of each file, by `<split>.<side>`; None if the corpus is not pinned.

    It needs none of the corpus's own files. A plain file has the hash of the gzipped one, so that
    both count as the same.
    """
    if config.corpus != "multi30k":
        return None
    more = _more_pairs(config, made)
    check_exist(files_of(more).values())
    pinned = {}
    for key, name in files_of(_named_files(config)).items():
        pinned[key] = SHA256[f"{name}.gz"]
    return pinned | corpus_hashes(more)


def corpus_hashes(corpus: Corpus) -> dict[str, str]:
    """sha256 of each file, by `<split>.<side>`."""
    return {key: sha256_file(path) for key, path in files_of(corpus).items()}


def changed_files(config: DataConfig, inputs: Mapping[str, str], *, since: float) -> list[Path]:
    """The user's files that are there and of which `inputs`, by `<split>.<side>`, has no hash.

    Only those are read that were written, or put in their place, after the time `since`, or are
    more than there were. A file that others have moved on, as a pattern's do, is not changed.
    """
    named = _named_files(config) if config.corpus == "files" else {}
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
                key = f"{name}.{side.side}"
                files[key if number == 1 else f"{key}.{number}"] = path
    return files


def _named_files(config: DataConfig) -> Corpus:
    """The two files of each split, as they are called in the corpus's folder."""
    if config.corpus == "files":
        return {split: ParallelText.of(config.files[split]) for split in config.splits}
    corpus = {}
    for split in config.splits:
        src = Path(f"{split}.{config.src_lang}")
        tgt = Path(f"{split}.{config.tgt_lang}")
        for path in (src, tgt):
            if config.corpus == "multi30k" and f"{path}.gz" not in SHA256:
                known = ", ".join(name for name in SHA256 if name.endswith(".gz"))
                raise ConfigError(f"data: multi30k has no {path}.gz; known: {known}")
        corpus[split] = ParallelText.of(FilesConfig(src=(src,), tgt=(tgt,)))
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
