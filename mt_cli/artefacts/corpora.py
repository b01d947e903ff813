"""Corpora: finding, fetching and checking the files that a config names, and reading them as pairs.

Knows files and lines of bytes, nothing of what `prepare` makes of them.
"""

import functools
import gzip
import logging
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import BufferedReader
from itertools import zip_longest
from pathlib import Path
from typing import Literal

from mt_cli.artefacts import multi30k
from mt_cli.artefacts.download import download
from mt_cli.artefacts.files import sha256_file
from mt_cli.config import DataConfig, FilesConfig
from mt_cli.errors import ConfigError, DataError, ResourceError

log = logging.getLogger(__name__)

DOWNLOADS = Path("data/raw/multi30k")
GZIP_MAGIC = b"\x1f\x8b"
TRAIN = "train"
LONGEST_LINE = 1 << 20
"""Bytes of a line."""
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
    offline: bool = False,
) -> Corpus:
    """The files of every split that `config` names, hashed and, where they are pinned, verified.

    `source` is a folder that holds them. Without it, Multi30k is read from `DOWNLOADS`, or fetched into it.

    Raises:
        ConfigError: the corpus has no such split or language.
        DataError: a file is missing, or is not the pinned one.
        ResourceError: files have to be fetched and cannot be.
    """
    more = _find_more(config)
    if config.corpus == "files":
        named = {split: config.files[split] for split in config.splits}
        return _hashed(_named_files(named, table="data.files", base=source or Path())) | more
    names = _file_names(config)
    if config.corpus == "sample":
        return _hashed(_find_in_folder(names, source or _sample_folder())) | more
    paths = _find_in_folder(names, source) if source else _fetch_missing(names, offline=offline)
    pinned = {
        split: CorpusSplit(_check_pin(files.src), _check_pin(files.tgt))
        for split, files in _hashed(paths).items()
    }
    return pinned | more


def pinned_hashes(config: DataConfig) -> dict[str, str] | None:
    """As `corpus_hashes`, but without reading the corpus's own files; None if they are not pinned."""
    if config.corpus != "multi30k":
        return None
    pinned = {
        f"{split}.{side}": multi30k.GZIPPED_SHA256[name]
        for (split, side), name in _file_names(config).items()
    }
    return pinned | corpus_hashes(_find_more(config))


def corpus_hashes(corpus: Corpus) -> dict[str, str]:
    """sha256 of each file, by `<split>.<side>`."""
    return {
        f"{name}.{side}": file.sha256
        for name, split in corpus.items()
        for side, file in (("src", split.src), ("tgt", split.tgt))
    }


def paths_of(corpus: Corpus) -> list[Path]:
    """The files of all splits, both sides."""
    return [path for split in corpus.values() for path in (split.src.path, split.tgt.path)]


def read_pairs(split: CorpusSplit) -> Iterator[RawPair]:
    r"""The raw lines of both files, side by side. Only `\n` ends a line.

    Raises:
        DataError: the files differ in length, or one is a damaged gzip file.
    """
    with _open(split.src.path) as src_lines, _open(split.tgt.path) as tgt_lines:
        for number, (src, tgt) in enumerate(zip_longest(src_lines, tgt_lines)):
            if src is None or tgt is None:
                num_src = number + (src is not None) + sum(1 for _ in src_lines)
                num_tgt = number + (tgt is not None) + sum(1 for _ in tgt_lines)
                raise DataError(
                    f"{split.tgt.path}: {num_tgt} lines, but {split.src.path} has {num_src}; "
                    "the files must align line by line"
                )
            yield src, tgt


Paths = dict[tuple[str, Literal["src", "tgt"]], Path]
"""Path of each split's sides."""
Names = dict[tuple[str, Literal["src", "tgt"]], str]
"""Name of each split's sides, such as "train.de"."""


def _file_names(config: DataConfig) -> Names:
    if config.corpus == "multi30k":
        _check_is_pinned(config)
    names: Names = {}
    for split in config.splits:
        names[split, "src"] = f"{split}.{config.src_lang}"
        names[split, "tgt"] = f"{split}.{config.tgt_lang}"
    return names


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


def _find_more(config: DataConfig) -> Corpus:
    """The pairs that the config adds for training, each with its tag."""
    named = {f"{MORE}{name}": more for name, more in config.more.items()}
    corpus = _hashed(_named_files(named, table="data.more"))
    return {name: replace(split, tag=named[name].tag) for name, split in corpus.items()}


def _named_files(named: Mapping[str, FilesConfig], *, table: str, base: Path = Path()) -> Paths:
    """The files that `table` of the config names, relative to `base`."""
    paths: Paths = {}
    for split, files in named.items():
        paths[split, "src"], paths[split, "tgt"] = base / files.src, base / files.tgt
    missing = [path for path in paths.values() if not path.is_file()]
    if missing:
        others = f", and {len(missing) - 1} more that are missing" if len(missing) > 1 else ""
        raise DataError(f"{missing[0]}: no such file; [{table}] names it{others}")
    return paths


def _find_in_folder(names: Names, folder: Path) -> Paths:
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder")
    gzipped = {key: folder / f"{name}.gz" for key, name in names.items()}
    paths = {key: path if path.is_file() else path.with_suffix("") for key, path in gzipped.items()}
    missing = [path for path in paths.values() if not path.is_file()]
    if missing:
        looked_for = ", ".join(f"{path.name}[.gz]" for path in missing)
        raise DataError(f"{folder}: {len(missing)} corpus files are missing: looked for {looked_for}")
    return paths


def _fetch_missing(names: Names, *, offline: bool) -> Paths:
    paths = {key: DOWNLOADS / f"{name}.gz" for key, name in names.items()}
    missing = [path for path in paths.values() if not path.is_file()]
    if missing and offline:
        raise ResourceError(
            f"{DOWNLOADS}: {len(missing)} corpus files are missing and --offline forbids fetching them: "
            f"{', '.join(path.name for path in missing)}; put them into a folder and name it with --from DIR"
        )
    for path in missing:
        url = f"{multi30k.BASE_URL}/{path.name}"
        log.info("fetching %s", url)
        most = multi30k.GZIPPED_BYTES.get(path.stem, multi30k.MOST_BYTES)
        download(url, path, sha256=multi30k.GZIPPED_SHA256[path.stem], most=most)
    return paths


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


def _hashed(paths: Paths) -> Corpus:
    files = {key: _hash(path) for key, path in paths.items()}
    return {split: CorpusSplit(files[split, "src"], files[split, "tgt"]) for split, _ in paths}


def _hash(path: Path) -> CorpusFile:
    # The user has named it, so it may be a link; `is_file` has told that it is no pipe.
    return CorpusFile(path, sha256_file(path.resolve()))


@contextmanager
def _open(path: Path) -> Iterator[Iterator[bytes]]:
    """The lines of `path`, unpacked if it begins like a gzip file."""
    with path.open("rb") as file:
        if file.peek(2)[:2] != GZIP_MAGIC:
            yield _lines(file, path)
            return
        with gzip.GzipFile(fileobj=file) as unpacked:
            yield _lines(unpacked, path)


def _lines(file: BufferedReader | gzip.GzipFile, path: Path) -> Iterator[bytes]:
    """The lines of `file`, none of which has to fit into memory before it is known to be short enough.

    Raises:
        DataError: a line is too long, or the gzip file is damaged.
    """
    pieces = iter(functools.partial(file.readline, LONGEST_LINE + 1), b"")
    try:
        for number, line in enumerate(pieces, start=1):
            if len(line) > LONGEST_LINE:
                raise DataError(
                    f"{path}: line {number}: longer than {LONGEST_LINE:,} bytes; expected a sentence a line"
                )
            yield line
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path}: damaged gzip file ({error}); get it anew") from error
