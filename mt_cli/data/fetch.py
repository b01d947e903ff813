"""The texts of pinned corpora: find or download them, verify them, and cut them into splits.

Verified texts are cached, uncompressed, in `DOWNLOADS`; nothing else is read from there.
"""

import http.client
import io
import logging
import time
import urllib.request
import zipfile
from collections.abc import Iterable, Sequence
from importlib import resources
from itertools import chain
from pathlib import Path
from typing import NamedTuple, cast
from urllib.parse import urlsplit

from mt_cli.config.pinned_corpora import PINNED_CORPORA, PinnedText
from mt_cli.data.text_files import DAMAGE, unpacked
from mt_cli.errors import ConfigError, DataError, ResourceError
from mt_cli.machine.files import (
    damage_named,
    read_file,
    sha256_bytes,
    sha256_file,
    write_atomically,
)
from mt_cli.text.normalize import key_of, split_lines

log = logging.getLogger(__name__)

DOWNLOADS = Path("data/raw")
ATTEMPTS = 3
TIMEOUT_S = 30.0
"""How long the server may be silent."""
BACKOFF_S = 1.0
"""Delay before the second attempt; doubles for each further one."""
MAX_BYTES = 1 << 22
"""Maximum size of a file, compressed or not: larger than any published one."""


class Pin(NamedTuple):
    """The expected hash and the URL of a text."""

    sha256: str
    """Hash of the uncompressed file; for test_2017_mscoco, of the compressed one."""
    url: str = ""
    """Where it is published; empty for text that is extracted from other files."""


def _read_pins() -> dict[str, Pin]:
    lines = resources.files(__package__).joinpath("pinned.sha256").read_text().splitlines()
    return {name: Pin(sha256, *url) for sha256, name, *url in map(str.split, lines)}


PINS = _read_pins()
"""Pins by path below `DOWNLOADS`, such as multi30k/train.de."""


def pinned_names(text: PinnedText) -> list[str]:
    """The names in `PINS` of the files of `text`, which must have a language.

    Raises:
        ConfigError: the corpus does not have the text in this language.
    """
    split = PINNED_CORPORA[text.corpus].splits[text.split]
    if text.lang not in split.files:
        raise ConfigError(
            f"data: {text.corpus}:{text.split} has no text in '{text.lang}', only in "
            f"{' and '.join(split.files)}"
        )
    names = [f"{text.split}.{text.lang}"] if split.is_cut else split.files[text.lang]
    return [f"{text.corpus}/{name}" for name in names]


def pinned_paths(
    text: PinnedText, *, sources: Sequence[Path] = (), offline: bool = False
) -> list[Path]:
    """The verified files of `text`, downloaded if necessary.

    `sources` are folders with published files, plain or gzipped; if there are any, nothing is
    downloaded.

    Raises:
        ConfigError: the text does not exist.
        DataError: a file is missing in `sources`, or is not the published one.
        ResourceError: a download failed.
    """
    names = pinned_names(text)
    if PINNED_CORPORA[text.corpus].splits[text.split].is_cut:
        _cut(text.corpus, text.split, sources=sources, offline=offline)
    else:
        for name in names:
            _keep(name, sources=sources, offline=offline)
    return [DOWNLOADS / name for name in names]


def found_in(folders: Iterable[Path], name: str) -> Path | None:
    """The file `name`, gzipped or plain, in the first of `folders` that has it."""
    for folder in folders:
        for path in (folder / f"{name}.gz", folder / name):
            if path.is_file():
                return path
    return None


def missing_in(folders: Iterable[Path], name: str) -> str:
    """The error message if `found_in` finds nothing."""
    return f"no such file: {name}, plain or with .gz, in {' and '.join(map(str, folders))}"


def _is_kept(name: str) -> bool:
    path = DOWNLOADS / name
    return path.is_file() and sha256_file(path) == PINS[name].sha256


def _keep(name: str, *, sources: Sequence[Path], offline: bool) -> None:
    """Put the published text `name` into `DOWNLOADS`, verified."""
    pin = PINS[name]
    file_name = Path(name).name
    path = found_in([*sources, (DOWNLOADS / name).parent], file_name)
    if path is not None:
        text = _verified(read_file(path, max_bytes=MAX_BYTES), pin, path)
    else:
        if sources:
            raise DataError(missing_in(sources, file_name))
        if offline:
            raise ResourceError(
                f"--offline, but {(DOWNLOADS / name).parent} has no {file_name}; run without "
                "--offline, or name a folder with --from"
            )
        log.info("downloading %s", pin.url)
        text = _verified(download(pin.url, max_bytes=MAX_BYTES), pin, pin.url)
    if not _is_kept(name):
        write_atomically(DOWNLOADS / name, text)


def _verified(content: bytes, pin: Pin, origin: Path | str) -> bytes:
    """The uncompressed text in a file's `content`, after checking that it is the published one."""
    packed = cast("io.BufferedReader", io.BufferedReader(cast("io.RawIOBase", io.BytesIO(content))))
    with damage_named(origin, "compressed file", *DAMAGE):
        text = unpacked(packed).read(MAX_BYTES)
    if pin.sha256 not in (sha256_bytes(text), sha256_bytes(content)):
        raise DataError(
            f"{origin}: not the published file: found sha256 {sha256_bytes(text)}, expected "
            f"{pin.sha256}"
        )
    return text


def download(url: str, *, max_bytes: int) -> bytes:
    """Download `url`.

    Raises:
        ResourceError: the network or the server failed, `ATTEMPTS` times.
        DataError: there are more than `max_bytes` bytes.
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT_S) as response:
                data: bytes = response.read(max_bytes + 1)
                if len(data) > max_bytes:
                    raise DataError(f"{url}: larger than the expected {max_bytes:,} bytes")
                if response.length:  # fewer bytes arrived than announced
                    raise http.client.IncompleteRead(data, response.length)
                return data
        except (http.client.HTTPException, OSError, ValueError) as error:  # URLError is an OSError
            reason = str(getattr(error, "reason", None) or error or type(error).__name__)[:200]
        log.warning("attempt %d of %d: %s: %s", attempt, ATTEMPTS, url, reason)
        if attempt < ATTEMPTS:
            time.sleep(BACKOFF_S * 2 ** (attempt - 1))
    raise ResourceError(
        f"{url}: download failed{_proxy_named(url)}: {reason}; try again, or name a folder with "
        "the files with --from"
    )


def _proxy_named(url: str) -> str:
    """A phrase that names the environment's proxy for `url`; empty without one."""
    address = urlsplit(url)
    proxy = urllib.request.getproxies().get(address.scheme)
    if not proxy or urllib.request.proxy_bypass(address.netloc):
        return ""
    return f" through the proxy {proxy.rpartition('@')[2]}"  # without user and password


# Splits that are extracted from published files

Lines = tuple[str, ...]
"""One line in each language of a corpus, in the order of the row."""


def _cut(corpus: str, split: str, *, sources: Sequence[Path], offline: bool) -> None:
    """Extract the texts of a split, one per language, unless they exist.

    Files in `sources` are verified in any case.
    """
    row = PINNED_CORPORA[corpus].splits[split]
    names = [f"{corpus}/{split}.{lang}" for lang in row.files]
    if all(map(_is_kept, names)):
        for file in chain(*row.files.values()) if sources else ():
            name, _, _ = _parts(file)
            _keep(f"{corpus}/{name}", sources=sources, offline=offline)
        return
    pairs = _lines(corpus, split, sources=sources, offline=offline)
    for name, side in zip(names, zip(*pairs, strict=True), strict=True):
        text = "".join(f"{line}\n" for line in side).encode()
        assert sha256_bytes(text) == PINS[name].sha256, name
        if not _is_kept(name):
            write_atomically(DOWNLOADS / name, text)


def _lines(corpus: str, split: str, *, sources: Sequence[Path], offline: bool) -> list[Lines]:
    """The lines of a split of parallel text, published or extracted."""
    row = PINNED_CORPORA[corpus].splits[split]
    sides: list[list[str]] = []
    for files in row.files.values():
        sides.append([])
        for file in files:
            name, member, column = _parts(file)
            _keep(f"{corpus}/{name}", sources=sources, offline=offline)
            content = read_file(DOWNLOADS / corpus / name)
            if member:
                with zipfile.ZipFile(io.BytesIO(content)) as archive:
                    content = archive.read(member)
            lines = split_lines(content)
            if column:
                lines = [line.split("\t")[int(column) - 1] for line in lines[1:]]
            sides[-1] += lines
    pairs = list(zip(*sides, strict=True))
    if not row.without:
        return pairs
    held_out: set[tuple[int, str]] = set()
    for other in row.without:
        for pair in _lines(*other.split(":"), sources=sources, offline=offline):
            held_out.update(_keys(pair))
    free = [pair for pair in dict.fromkeys(pairs) if held_out.isdisjoint(_keys(pair))]
    return free[:: row.every][: row.most]


def _parts(file: str) -> tuple[str, str, str]:
    """Split `deu-eng.zip/deu.txt 2` into file, member and column; the latter may be empty."""
    path, _, column = file.partition(" ")
    name, _, member = path.partition("/")
    return name, member, column


def _keys(pair: Lines) -> list[tuple[int, str]]:
    return [(side, key_of(line)) for side, line in enumerate(pair)]
