"""Corpora: the files that a config names are found, fetched, checked, and read as pairs of raw lines."""

import functools
import gzip
import http.client
import logging
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import BufferedReader
from itertools import zip_longest
from pathlib import Path

from mt_cli.config.schema import MORE, TRAIN, DataConfig, FilesConfig
from mt_cli.errors import ConfigError, DataError, ResourceError
from mt_cli.machine.files import WriteError, sha256_bytes, sha256_file, write_atomically

log = logging.getLogger(__name__)
DOWNLOADS = Path("data/raw/multi30k")
GZIP_MAGIC = b"\x1f\x8b"
LONGEST_LINE = 1 << 20
"""Bytes of a line."""
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
Paths = dict[str, tuple[Path, Path]]
"""Source and target file of each split."""


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
        return (
            _hashed({name: _named(config.files[name], base=source or Path()) for name in config.splits})
            | more
        )
    if config.corpus == "sample":
        return _hashed(_found_in(source or _sample_folder(), config)) | more
    _check_is_pinned(config)
    pinned = _hashed(_found_in(source, config) if source else _fetched(config, offline=offline))
    return {
        name: CorpusSplit(_check_pin(each.src), _check_pin(each.tgt)) for name, each in pinned.items()
    } | more


def pinned_hashes(config: DataConfig) -> dict[str, str] | None:
    """As `corpus_hashes`, but without reading the corpus's own files; None if they are not pinned."""
    if config.corpus != "multi30k":
        return None
    _check_is_pinned(config)
    sides = {"src": config.src_lang, "tgt": config.tgt_lang}
    pinned = {
        f"{split}.{side}": GZIPPED_SHA256[f"{split}.{lang}"]
        for split in config.splits
        for side, lang in sides.items()
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


def _check_is_pinned(config: DataConfig) -> None:
    """Make sure that Multi30k has the languages and splits of `config`."""
    for lang in (config.src_lang, config.tgt_lang):
        if lang not in LANGUAGES:
            raise ConfigError(
                f"data: no pinned multi30k files in language '{lang}'; known: {', '.join(LANGUAGES)}"
            )
    for split in config.splits:
        if split not in SPLITS:
            raise ConfigError(f"data.splits: multi30k has no '{split}'; known: {', '.join(SPLITS)}")


def _sample_folder() -> Path:
    package = Path(__file__).parents[1]
    in_repository, installed = package.parent / "data" / "sample", package / "data" / "sample"
    return installed if installed.is_dir() else in_repository


def _find_more(config: DataConfig) -> Corpus:
    """The pairs that the config adds for training, each with its tag."""
    found = _hashed({name: _named(more) for name, more in config.more.items()})
    return {f"{MORE}{name}": replace(each, tag=config.more[name].tag) for name, each in found.items()}


def _named(files: FilesConfig, *, base: Path = Path()) -> tuple[Path, Path]:
    """The files that a table of the config names, relative to `base`."""
    return base / files.src, base / files.tgt


def _found_in(folder: Path, config: DataConfig) -> Paths:
    """The files that `folder` has of each split, gzipped or plain."""
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder")

    def plain_or_gzipped(path: Path) -> Path:
        return path if path.is_file() else path.with_suffix("")

    paths = _gzipped(folder, config)
    found = {name: (plain_or_gzipped(src), plain_or_gzipped(tgt)) for name, (src, tgt) in paths.items()}
    if missing := [path for pair in found.values() for path in pair if not path.is_file()]:
        looked_for = ", ".join(f"{path.name}[.gz]" for path in missing)
        raise DataError(f"{folder}: {len(missing)} corpus files are missing: looked for {looked_for}")
    return found


def _fetched(config: DataConfig, *, offline: bool) -> Paths:
    """The files of each split in `DOWNLOADS`; those that are missing there are fetched."""
    paths = _gzipped(DOWNLOADS, config)
    missing = [path for pair in paths.values() for path in pair if not path.is_file()]
    if missing and offline:
        raise ResourceError(
            f"{DOWNLOADS}: {len(missing)} corpus files are missing and --offline forbids fetching them: "
            f"{', '.join(path.name for path in missing)}; put them into a folder and name it with --from DIR"
        )
    for path in missing:
        url = f"{BASE_URL}/{path.name}"
        log.info("fetching %s", url)
        download(url, path, sha256=GZIPPED_SHA256[path.stem], most=MOST_BYTES)
    return paths


def _gzipped(folder: Path, config: DataConfig) -> Paths:
    src, tgt = config.src_lang, config.tgt_lang
    return {split: (folder / f"{split}.{src}.gz", folder / f"{split}.{tgt}.gz") for split in config.splits}


def _check_pin(file: CorpusFile) -> CorpusFile:
    """Check `file`; the result has the gzipped file's hash, so that plain and gzipped count as the same."""
    is_gzipped = file.path.suffix == ".gz"
    name = file.path.stem if is_gzipped else file.path.name
    expected = (GZIPPED_SHA256 if is_gzipped else PLAIN_SHA256).get(name)
    if expected is None:
        raise DataError(f"{file.path}: only {name}.gz can be verified; put that there instead")
    if file.sha256 != expected:
        raise DataError(
            f"{file.path}: sha256 {file.sha256} found, {expected} expected; "
            "the file is altered or damaged: remove it and get it anew"
        )
    return CorpusFile(file.path, GZIPPED_SHA256[name])


def _hashed(paths: Paths) -> Corpus:
    if missing := dict.fromkeys(str(path) for pair in paths.values() for path in pair if not path.is_file()):
        raise DataError(f"no such file: {', '.join(missing)}")

    def hashed(path: Path) -> CorpusFile:
        return CorpusFile(path, sha256_file(path))

    return {name: CorpusSplit(hashed(src), hashed(tgt)) for name, (src, tgt) in paths.items()}


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


# Downloads: files whose size and sha256 are known, and nothing else

ATTEMPTS = 3
TIMEOUT_S = 30.0
"""Longest silence of the server."""
DEADLINE_S = 300.0
"""Longest time that one attempt may take in all."""
BACKOFF_S = 1.0
"""Wait before the second attempt; it doubles before each further one."""


def download(url: str, path: Path, *, sha256: str, most: int, backoff_s: float = BACKOFF_S) -> None:
    """Fetch `url`, of at most `most` bytes, into `path`, which appears only once the hash is right.

    Raises:
        ResourceError: the network, the server or the disk fails.
        DataError: the server sends a file with another hash, or a larger one.
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            write_atomically(path, _fetch(url, sha256=sha256, most=most))
        except (ResourceError, DataError) as error:
            if attempt == ATTEMPTS or isinstance(error, WriteError):
                raise
            wait_s = backoff_s * 2 ** (attempt - 1)
            log.warning(
                "attempt %d of %d failed, the next is in %.0f s: %s", attempt, ATTEMPTS, wait_s, error
            )
            time.sleep(wait_s)
        else:
            return


def _fetch(url: str, *, sha256: str, most: int) -> bytes:
    """The content of `url`, which has to fit into memory."""
    data, deadline = bytearray(), time.monotonic() + DEADLINE_S
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as response:
            while len(data) <= most and (chunk := response.read1(1 << 16)):
                data += chunk
                if time.monotonic() > deadline:
                    raise TimeoutError(f"not done after {DEADLINE_S:g} s")
            if len(data) <= most and response.length:  # fewer bytes came than were announced
                raise http.client.IncompleteRead(bytes(data), response.length)
    except (http.client.HTTPException, OSError, ValueError) as error:  # URLError and timeouts are OSErrors
        if isinstance(error, urllib.error.HTTPError):
            error.close()  # it is a response, too
        reason = str(getattr(error, "reason", None) or error or type(error).__name__)
        raise ResourceError(
            f"{url}: cannot be fetched: {reason[:200]}; "
            "try again later, or get the files by hand and name their folder with --from DIR"
        ) from error
    if len(data) > most:
        raise DataError(f"{url}: more than {most:,} bytes sent; the file there is not the right one")
    if (found := sha256_bytes(bytes(data))) != sha256:
        raise DataError(
            f"{url}: sha256 {found} found, {sha256} expected; the file there is not the right one"
        )
    return bytes(data)


# Multi30k: where its files come from and what they must hash to. They have no licence file, so they are
# downloaded and never redistributed.

COMMIT = "a3d2e0d"
BASE_URL = f"https://raw.githubusercontent.com/multi30k/dataset/{COMMIT}/data/task1/raw"
GZIPPED_SHA256 = {
    "train.de": "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
    "train.en": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
    "val.de": "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
    "val.en": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
    "test_2016_flickr.de": "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
    "test_2016_flickr.en": "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
    "test_2017_flickr.de": "a2c89666db00c495cd8513b9d708d5a3acc205d7de312ef2bf5fb7ebc1540aee",
    "test_2017_flickr.en": "76a444ee25172e72695cddb13ae4a3bda59430617be88e0bb46b60504f054074",
    "test_2017_mscoco.de": "799e4854c25d601cb6cb6be29eabe5667734c61ace2f495e03e429031a0bc338",
    "test_2017_mscoco.en": "aab300bfb4427697987e02cd0aacd44bfe8aa50456231b6474c08038bbed2b58",
    "test_2018_flickr.de": "ddd0130c7d97482dc5197a02141dae8dd79f20f03586c480d675c09a32daf608",
    "test_2018_flickr.en": "ef4f4844037d4c5dea75c9a8ed5fd78905967a26f67c255e230cc9780032654d",
}
"""sha256 of the files as served, `<name>.gz`."""
MOST_BYTES = 1 << 20
"""Larger than any of them."""
PLAIN_SHA256 = {
    "train.de": "2c2b73fd2b548fbcde3a875e0a78d6ee94d498bfdee6bd3eae3945779e9ddf72",
    "train.en": "460a15fbd157e34a7a9957ee388c1ca247fe47af3ef25fb50442af6c274e0fc6",
    "val.de": "660e09eb7e1da2f856ea13ee5ad3cf6d36b3d5b0b733c857e94c5747a3dfc660",
    "val.en": "1f2a23d992769b5b3d209b0a10dd0b77c08cceb1f20dfb97ed0aafa49d107227",
    "test_2016_flickr.de": "4be6b5b3236b79c25475c6bb829800a7ce559e9ba7a1f6c2394fe4d40be46d16",
    "test_2016_flickr.en": "399a4382932c1aadd3ceb9bef1008d388a64c76d4ae4e9d4728c6f4301cac182",
    "test_2017_flickr.de": "c3078bc3b36808bf9d20eb2347ed6137016179ef59ec0d2b9b8ecc3fb2880081",
    "test_2017_flickr.en": "ce1450ddc5ab0834502579d77a170849952e15a2938b34cc503bdc25ebb4fb98",
}
"""sha256 of the same files unpacked, for `--from`; the others are accepted only gzipped."""
LANGUAGES = ("de", "en")
SPLITS = ("train", "val", "test_2016_flickr", "test_2017_flickr", "test_2017_mscoco", "test_2018_flickr")
