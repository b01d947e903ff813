"""Corpora: finding, fetching and checking the files that a config names, and reading them as pairs.

Knows files and lines of bytes, nothing of what `prepare` makes of them.
"""

import gzip
import logging
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import BinaryIO

from mt_cli.artefacts import multi30k
from mt_cli.artefacts.download import download
from mt_cli.artefacts.files import sha256_file
from mt_cli.config import DataConfig
from mt_cli.errors import ConfigError, DataError, ResourceError

log = logging.getLogger(__name__)

GZIP_MAGIC = b"\x1f\x8b"
TRAIN = "train"
MORE = "train+"
"""Prefix of the names of pairs that a config adds for training."""
RawPair = tuple[bytes, bytes]
"""A source line and a target line as they stand in the files, line ends included."""


@dataclass(frozen=True)
class CorpusFile:
    """One side of one split."""

    path: Path
    sha256: str


@dataclass(frozen=True)
class CorpusSplit:
    """Two files, line by line translations of each other."""

    src: CorpusFile
    tgt: CorpusFile
    tag: str = ""
    """A word to put before each source."""


Corpus = dict[str, CorpusSplit]
"""Splits by name, in the config's order, then added training pairs as `train+<name>`."""


def is_trained_on(name: str) -> bool:
    """Whether split `name` is for training: the corpus's own pairs, or pairs that the config adds."""
    return name == TRAIN or name.startswith(MORE)


def find_corpus(
    config: DataConfig,
    *,
    source: Path | None = None,
    raw_dir: Path = Path("data/raw"),
    offline: bool = False,
    base_url: str = multi30k.BASE_URL,
) -> Corpus:
    """The files of every split that `config` names, hashed and, where they are pinned, verified.

    `source` is a folder that holds them. Without it, Multi30k is read from `raw_dir`, or fetched into it.

    Raises:
        ConfigError: the corpus has no such split or language.
        DataError: a file is missing, or is not the pinned one.
        ResourceError: files have to be fetched and cannot be.
    """
    more = _find_more(config)
    if config.corpus == "files":
        return _hashed(_named_files(config, source)) | more
    names = _file_names(config)
    if config.corpus == "sample":
        return _hashed(_find_in_folder(names, source or _sample_folder())) | more
    if source is not None:
        paths = _find_in_folder(names, source)
    else:
        paths = _fetch_missing(names, raw_dir / "multi30k", offline=offline, base_url=base_url)
    return _verified(paths) | more


def pinned_hashes(config: DataConfig) -> dict[str, str] | None:
    """As `corpus_hashes`, but without reading the corpus's own files; None if they are not pinned."""
    if config.corpus != "multi30k":
        return None
    pinned = {
        f"{split}.{side}": multi30k.GZIPPED_SHA256[name]
        for split, sides in _file_names(config).items()
        for side, name in sides.items()
    }
    return pinned | corpus_hashes(_find_more(config))


def corpus_hashes(corpus: Corpus) -> dict[str, str]:
    """sha256 of each file, by `<split>.<side>`."""
    files = {f"{name}.{side}": file for name, split in corpus.items() for side, file in _sides(split)}
    return {name: file.sha256 for name, file in files.items()}


def read_pairs(split: CorpusSplit) -> Iterator[RawPair]:
    r"""The raw lines of both files, side by side. Only `\n` ends a line.

    Raises:
        DataError: the files differ in length, or one is a damaged gzip file.
    """
    with _open(split.src.path) as src_file, _open(split.tgt.path) as tgt_file:
        src_lines, tgt_lines = _lines(src_file, split.src.path), _lines(tgt_file, split.tgt.path)
        for number, (src, tgt) in enumerate(zip_longest(src_lines, tgt_lines)):
            if src is None or tgt is None:
                num_src = number + (src is not None) + sum(1 for _ in src_lines)
                num_tgt = number + (tgt is not None) + sum(1 for _ in tgt_lines)
                raise DataError(
                    f"{split.tgt.path}: {num_tgt} lines, but {split.src.path} has {num_src}; "
                    "the files must align line by line"
                )
            yield src, tgt


SidePaths = dict[str, dict[str, Path]]
"""Path by split and side ("src", "tgt")."""
SideNames = dict[str, dict[str, str]]
"""File name by split and side, such as "train.de"."""


def _file_names(config: DataConfig) -> SideNames:
    if config.corpus == "multi30k":
        _check_is_pinned(config)
    return {
        split: {"src": f"{split}.{config.src_lang}", "tgt": f"{split}.{config.tgt_lang}"}
        for split in config.splits
    }


def _check_is_pinned(config: DataConfig) -> None:
    for lang in (config.src_lang, config.tgt_lang):
        if lang not in multi30k.LANGUAGES:
            raise ConfigError(
                f"data: no pinned multi30k files in language '{lang}'; known: {', '.join(multi30k.LANGUAGES)}"
            )
    for split in config.splits:
        if split not in multi30k.SPLITS:
            raise ConfigError(f"data.splits: multi30k has no '{split}'; known: {', '.join(multi30k.SPLITS)}")


def _sample_folder() -> Path:
    package = Path(__file__).parents[1]
    in_repository, installed = package.parent / "data" / "sample", package / "data" / "sample"
    return installed if installed.is_dir() else in_repository


def _named_files(config: DataConfig, source: Path | None) -> SidePaths:
    """The config's own paths, relative to `source` or else to the working directory."""
    base = source or Path()
    paths = {
        split: {"src": base / config.files[split].src, "tgt": base / config.files[split].tgt}
        for split in config.splits
    }
    _check_are_files(paths, table="data.files")
    return paths


def _find_more(config: DataConfig) -> Corpus:
    """The pairs that the config adds for training, each with its tag."""
    paths = {f"{MORE}{name}": {"src": more.src, "tgt": more.tgt} for name, more in config.more.items()}
    _check_are_files(paths, table="data.more")
    tags = {f"{MORE}{name}": more.tag for name, more in config.more.items()}
    return {name: replace(split, tag=tags[name]) for name, split in _hashed(paths).items()}


def _check_are_files(paths: SidePaths, *, table: str) -> None:
    missing = [path for sides in paths.values() for path in sides.values() if not path.is_file()]
    if missing:
        raise DataError(f"{missing[0]}: no such file; [{table}] names it{_among(missing)}")


def _find_in_folder(names: SideNames, folder: Path) -> SidePaths:
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder")
    found: SidePaths = {}
    missing: list[Path] = []
    for split, sides in names.items():
        found[split] = {}
        for side, name in sides.items():
            candidates = (folder / f"{name}.gz", folder / name)
            existing = [path for path in candidates if path.is_file()]
            if existing:
                found[split][side] = existing[0]
            else:
                missing.append(candidates[1])
    if missing:
        looked_for = ", ".join(f"{path.name}[.gz]" for path in missing)
        raise DataError(f"{folder}: {len(missing)} corpus files are missing: looked for {looked_for}")
    return found


def _among(missing: list[Path]) -> str:
    return f", and {len(missing) - 1} more that are missing" if len(missing) > 1 else ""


def _fetch_missing(names: SideNames, folder: Path, *, offline: bool, base_url: str) -> SidePaths:
    paths = {
        split: {side: folder / f"{name}.gz" for side, name in sides.items()} for split, sides in names.items()
    }
    missing = [path for sides in paths.values() for path in sides.values() if not path.is_file()]
    if missing and offline:
        raise ResourceError(
            f"{folder}: {len(missing)} corpus files are missing and --offline forbids fetching them: "
            f"{', '.join(path.name for path in missing)}; put them into a folder and name it with --from DIR"
        )
    for path in missing:
        url = f"{base_url}/{path.name}"
        log.info("fetching %s", url)
        download(url, path, sha256=multi30k.GZIPPED_SHA256[path.stem])
    return paths


def _verified(paths: SidePaths) -> Corpus:
    return {
        split: CorpusSplit(_check_pin(files.src), _check_pin(files.tgt))
        for split, files in _hashed(paths).items()
    }


def _check_pin(file: CorpusFile) -> CorpusFile:
    """Check `file`; the result has the gzipped file's hash, so that plain and gzipped count as the same."""
    is_gzipped = file.path.suffix == ".gz"
    name = file.path.stem if is_gzipped else file.path.name
    expected = (multi30k.GZIPPED_SHA256 if is_gzipped else multi30k.PLAIN_SHA256).get(name)
    if expected is None:
        raise DataError(f"{file.path}: only {name}.gz can be verified; put that there instead")
    if file.sha256 != expected:
        raise DataError(
            f"{file.path}: sha256 {file.sha256} found, {expected} expected; "
            "the file is altered or damaged: remove it and get it anew"
        )
    return CorpusFile(file.path, multi30k.GZIPPED_SHA256[name])


def _hashed(paths: SidePaths) -> Corpus:
    return {split: CorpusSplit(_hash(sides["src"]), _hash(sides["tgt"])) for split, sides in paths.items()}


def _hash(path: Path) -> CorpusFile:
    try:
        return CorpusFile(path, sha256_file(path))
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error


def _sides(split: CorpusSplit) -> tuple[tuple[str, CorpusFile], tuple[str, CorpusFile]]:
    return ("src", split.src), ("tgt", split.tgt)


@contextmanager
def _open(path: Path) -> Iterator[BinaryIO]:
    """Open the text in `path`, unpacked if it begins like a gzip file."""
    with path.open("rb") as file:
        is_gzipped = file.peek(2)[:2] == GZIP_MAGIC
        if not is_gzipped:
            yield file
            return
        with gzip.GzipFile(fileobj=file) as unpacked:
            yield unpacked  # type: ignore[misc]  # a BinaryIO in all but name


def _lines(file: BinaryIO, path: Path) -> Iterator[bytes]:
    try:
        yield from file
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path}: damaged gzip file ({error}); get it anew") from error
