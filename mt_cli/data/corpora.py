"""Corpora: the files that a config names are found, fetched, checked, and read as pairs of raw
lines.
"""

import http.client
import logging
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

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
from mt_cli.data.files import column_of, format_of, has_columns, is_named_json, text_lines
from mt_cli.errors import ConfigError, DataError, ResourceError, UsageError
from mt_cli.machine.files import sha256_bytes, sha256_file, write_atomically

log = logging.getLogger(__name__)
DOWNLOADS = Path("data/raw/multi30k")
RawPair = tuple[bytes, bytes]
"""A source line and a target line as they stand in the files, line ends included."""


@dataclass(frozen=True)
class Text:
    """One side of a split: the lines of some files, one after another, or one of their columns."""

    paths: tuple[Path, ...]
    column: Column | None
    """None is the default: in a .tsv the first for `src`, the second for `tgt`; in a .jsonl their
    names.
    """
    side: Side

    def __str__(self) -> str:
        of_table = any(map(has_columns, self.paths)) or self.column is not None
        column = f" ({self.column or self.side})" if of_table else ""
        return f"{', '.join(map(str, self.paths))}{column}"

    def lines(self) -> Iterator[bytes]:
        r"""The raw lines. Only `\n` ends a line.

        Raises:
            DataError: a file cannot be read, a line is too long, or has no such column.
        """
        for path in self.paths:
            if self.column is None and not has_columns(path):
                yield from text_lines(path)
            elif self.column is None and format_of(path) == "json":
                yield from column_of(path, self.side)
            else:
                yield from column_of(path, self.column or SIDES.index(self.side) + 1)


@dataclass(frozen=True)
class ParallelText:
    """The two sides of a split, line by line translations of each other."""

    src: Text
    tgt: Text

    @staticmethod
    def of(files: FilesConfig | MorePairsConfig) -> "ParallelText":
        """What `files` name; both sides have to be there."""
        assert files.src is not None
        assert files.tgt is not None
        columns = (files.src_column, files.tgt_column)
        is_of_rows = files.src == files.tgt and not any(map(is_named_json, files.src))
        if is_of_rows and len({isinstance(column, str) for column in columns}) == 2:
            raise ConfigError(
                f"{files.src[0]}: src_column and tgt_column must both be names of its first line, "
                "or neither"
            )
        return ParallelText(
            Text(files.src, files.src_column, "src"), Text(files.tgt, files.tgt_column, "tgt")
        )

    def __str__(self) -> str:
        return " and ".join(dict.fromkeys(map(str, (self.src, self.tgt))))


@dataclass(frozen=True)
class MadePairs:
    """Pairs of which a run has made one side."""

    files: FilesConfig
    held_out: int
    """Lines that were left out because a held-out split has them."""


Corpus = Mapping[str, ParallelText]
"""Splits by name, in the config's order, then added training pairs as `train+<name>`."""


def is_trained_on(name: str) -> bool:
    """Whether split `name` is for training: the corpus's own pairs, or pairs that the config adds."""
    return name == TRAIN or name.startswith(MORE)


def find_corpus(
    config: DataConfig,
    *,
    source: Path | None = None,
    offline: bool = False,
    made: Mapping[str, MadePairs] | None = None,
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
        _fetch_missing(files_of(named).values(), BASE_URL, GZIPPED_SHA256, offline=offline)
    homes = {"files": Path(), "multi30k": DOWNLOADS, "sample": shipped("data/sample")}
    folder = source or homes[config.corpus]

    def find(text: Text) -> Text:
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
            _check_pin(path)
    return corpus


def given_text(
    config: DataConfig, name: str, *, source: Path | None = None, offline: bool = False
) -> Text:
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
        return Text(paths, column, side)
    lang = config.src_lang if side == "src" else config.tgt_lang
    files = [Path(f"train.{number}.{lang}") for number in range(1, 6)]
    if str(files[0]) not in CAPTIONS_SHA256:
        raise ConfigError(f"data.more.{name}.captions: multi30k has none in '{lang}'")
    if source is None:
        _fetch_missing(files, CAPTIONS_URL, CAPTIONS_SHA256, offline=offline)
    paths = tuple((source or DOWNLOADS) / f"{file}.gz" for file in files)
    _check_exist(paths)
    for path in paths:
        _check_hash(path, CAPTIONS_SHA256[path.stem])
    return Text(paths, None, side)


def pinned_hashes(config: DataConfig, made: Mapping[str, MadePairs]) -> dict[str, str] | None:
    """sha256 of each file, by `<split>.<side>`, known without the corpus's own files; None if not
    pinned.

    A pinned file has that of the gzipped one, so that plain and gzipped count as the same.
    """
    if config.corpus != "multi30k":
        return None
    pinned = {
        key: GZIPPED_SHA256[str(name)] for key, name in files_of(_named_files(config)).items()
    }
    return pinned | corpus_hashes(_existing(_more_pairs(config, made)))


def corpus_hashes(corpus: Corpus) -> dict[str, str]:
    """sha256 of each file, by `<split>.<side>`."""
    return {key: sha256_file(path) for key, path in files_of(corpus).items()}


def files_of(corpus: Corpus) -> dict[str, Path]:
    """The files of all splits, by `<split>.<side>`, and `<split>.<side>.2` where a side has
    several.
    """
    return {
        f"{name}.{text.side}{f'.{number}' if number > 1 else ''}": path
        for name, pair in corpus.items()
        for text in (pair.src, pair.tgt)
        for number, path in enumerate(text.paths, 1)
    }


def read_pairs(split: ParallelText) -> Iterator[RawPair]:
    """The raw lines of both sides, side by side.

    Raises:
        DataError: the sides differ in length, one has a line that is too long, or cannot be read.
    """
    src_lines, tgt_lines = split.src.lines(), split.tgt.lines()
    for number, (src, tgt) in enumerate(zip_longest(src_lines, tgt_lines)):
        if src is None or tgt is None:
            num_src = number + (src is not None) + sum(1 for _ in src_lines)
            num_tgt = number + (tgt is not None) + sum(1 for _ in tgt_lines)
            raise DataError(
                f"{split.tgt}: {num_tgt} lines, but {split.src} has {num_src}; "
                "the files must align line by line"
            )
        yield src, tgt


def _named_files(config: DataConfig) -> Corpus:
    """The two files of each split, as they are called in the corpus's folder."""
    if config.corpus == "files":
        return {split: ParallelText.of(config.files[split]) for split in config.splits}
    sides = (config.src_lang, config.tgt_lang)
    names = {split: [Path(f"{split}.{lang}") for lang in sides] for split in config.splits}
    unknown = [name for pair in names.values() for name in pair if str(name) not in GZIPPED_SHA256]
    if config.corpus == "multi30k" and unknown:
        raise ConfigError(f"data: multi30k has no {unknown[0]}; known: {', '.join(GZIPPED_SHA256)}")
    return {
        split: ParallelText.of(FilesConfig(src=(src,), tgt=(tgt,)))
        for split, (src, tgt) in names.items()
    }


def _more_pairs(config: DataConfig, made: Mapping[str, MadePairs]) -> Corpus:
    pairs = {name: made[name].files if name in made else more for name, more in config.more.items()}
    return {
        f"{MORE}{name}": ParallelText.of(each)
        for name, each in pairs.items()
        if each.src is not None and each.tgt is not None
    }


def _existing(corpus: Corpus) -> Corpus:
    _check_exist(files_of(corpus).values())
    return corpus


def _check_exist(paths: Iterable[Path]) -> None:
    if missing := dict.fromkeys(str(path) for path in paths if not path.is_file()):
        raise DataError(f"no such file: {', '.join(missing)} (paths are relative to {Path.cwd()})")


def _fetch_missing(
    names: Iterable[Path], base_url: str, hashes: Mapping[str, str], *, offline: bool
) -> None:
    paths = [DOWNLOADS / f"{name}.gz" for name in names]
    missing = [path for path in paths if not path.is_file()]
    if missing and offline:
        raise ResourceError(
            f"{DOWNLOADS}: {len(missing)} corpus files are missing and --offline forbids fetching "
            f"them: {', '.join(path.name for path in missing)}; put them into a folder and name it "
            "with --from DIR"
        )
    for path in missing:
        url = f"{base_url}/{path.name}"
        log.info("fetching %s", url)
        download(url, path, sha256=hashes[path.stem], most=MOST_BYTES)


def _check_pin(path: Path) -> None:
    is_gzipped = path.suffix == ".gz"
    name = path.stem if is_gzipped else path.name
    expected = (GZIPPED_SHA256 if is_gzipped else PLAIN_SHA256).get(name)
    if expected is None:
        raise DataError(f"{path}: only {name}.gz can be verified; put that there instead")
    _check_hash(path, expected)


def _check_hash(path: Path, expected: str) -> None:
    if (found := sha256_file(path)) != expected:
        raise DataError(
            f"{path}: sha256 {found} found, {expected} expected; "
            "the file is altered or damaged: remove it and get it anew"
        )


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
            data = _fetch(url, sha256=sha256, most=most)
        except (ResourceError, DataError) as error:
            if attempt == ATTEMPTS:
                raise
            wait_s = backoff_s * 2 ** (attempt - 1)
            log.warning(
                "attempt %d of %d failed, the next is in %.0f s: %s",
                attempt,
                ATTEMPTS,
                wait_s,
                error,
            )
            time.sleep(wait_s)
        else:
            write_atomically(path, data)
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
    except (
        http.client.HTTPException,
        OSError,
        ValueError,
    ) as error:  # URLError and timeouts are OSErrors
        if isinstance(error, urllib.error.HTTPError):
            error.close()  # it is a response, too
        reason = str(getattr(error, "reason", None) or error or type(error).__name__)
        raise ResourceError(
            f"{url}: cannot be fetched: {reason[:200]}; "
            "try again later, or get the files by hand and name their folder with --from DIR"
        ) from error
    if len(data) > most:
        raise DataError(
            f"{url}: more than {most:,} bytes sent; the file there is not the right one"
        )
    if (found := sha256_bytes(bytes(data))) != sha256:
        raise DataError(
            f"{url}: sha256 {found} found, {sha256} expected; the file there is not the right one"
        )
    return bytes(data)


# Multi30k: where its files come from and what they must hash to. They have no licence file, so they
# are downloaded and never redistributed.

COMMIT = "a3d2e0d"
BASE_URL, CAPTIONS_URL = (
    f"https://raw.githubusercontent.com/multi30k/dataset/{COMMIT}/data/{task}/raw"
    for task in ("task1", "task2")
)
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
CAPTIONS_SHA256 = {
    "train.1.de": "0002241b52aba5160c08d644ea0d64a9bf46a2dfffcf619c9e3cdaa55b357004",
    "train.1.en": "a0e057f07a9733199c0d755d77f6d583dc6f40a3180734b1130a216e2fdf3a3b",
    "train.2.de": "ac7c29258b90aec0b64d677c5bfc831fc402e6296d0aa9cc7a3433ddbff85c37",
    "train.2.en": "d79dd70a9eafb2d1fe40151621278c4ae69b3c148c5052a53d7c7a41bf3ba023",
    "train.3.de": "ec5e6508813814aa31311b34e26e24f903dd7701f8d0668313259b7f975d7aa0",
    "train.3.en": "86e16fdcc699bcb6bca0f87c3cf1051f7de5ee3674dd588cedc5200194282749",
    "train.4.de": "bcee8ac6eb47d8a7dc8cff47d9a0fbd80b4363cfda22021bacd297f9604221a4",
    "train.4.en": "3771b84e010ad6197806d2a1188cb07c12149e3e0d178dd5966dee5763733686",
    "train.5.de": "dccb0ca6ff25e0b1f0d385f59fb809184e0db89622d88371725e3ec46d43bfc0",
    "train.5.en": "73988689307fe836994eae59735dc840c15da9775455fa76e6ed22606a042a91",
}
"""The same of task 2: five captions of each training image in both languages, which nobody
translated.
"""
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
