"""Multi30k: where its files come from, what they must hash to, and how they are downloaded.

The data carry no licence file, so they are downloaded and never redistributed.
"""

import http.client
import logging
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from pathlib import Path

from mt_cli.errors import DataError, ResourceError
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
DEADLINE_S = 300.0
"""Longest time that one attempt may take in all."""
BACKOFF_S = 1.0
"""Wait before the second attempt; it doubles before each further one."""
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
"""The same for task 2: five captions of each training image in both languages, untranslated."""


MAX_FILE_BYTES = 1 << 20
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
    "test_2018_flickr.de": "39fcc8b3331d76fb42d648d019c6898b0d5e58baac87bc2a0bb93f44ec8db207",
    "test_2018_flickr.en": "4e585c2dd525911a6ea7730e9d0b516239af3f1b1ffae6a2130223cfb639f25e",
}
"""sha256 of the same files unpacked, for `--from`; the others are accepted only gzipped."""


def fetch_missing(
    names: Iterable[Path], base_url: str, hashes: Mapping[str, str], *, offline: bool
) -> None:
    """Download the files `names` that are not there yet."""
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
        download(url, path, sha256=hashes[path.stem], max_bytes=MAX_FILE_BYTES)


def check_pin(path: Path) -> None:
    """Refuse a file of Multi30k, plain or gzipped, that is not as published."""
    is_gzipped = path.suffix == ".gz"
    name = path.stem if is_gzipped else path.name
    expected = (GZIPPED_SHA256 if is_gzipped else PLAIN_SHA256).get(name)
    if expected is None:
        raise DataError(f"{path}: only {name}.gz can be verified; put that there instead")
    check_hash(path, expected)


def check_hash(path: Path, expected: str) -> None:
    """Refuse a file with another hash."""
    found = sha256_file(path)
    if found != expected:
        raise DataError(
            f"{path}: sha256 {found} found, {expected} expected; "
            "the file is altered or damaged: remove it and get it anew"
        )


def download(
    url: str, path: Path, *, sha256: str, max_bytes: int, backoff_s: float = BACKOFF_S
) -> None:
    """Fetch `url` into `path`, which appears only when the hash is right.

    Raises:
        ResourceError: the network, the server or the disk fails.
        DataError: the server sends a file with another hash, or of more than `max_bytes` bytes.
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            data = _fetch(url, sha256=sha256, max_bytes=max_bytes)
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


def _fetch(url: str, *, sha256: str, max_bytes: int) -> bytes:
    """The content of `url`, which has to fit into memory."""
    try:
        data = _receive(url, max_bytes=max_bytes)
    except (http.client.HTTPException, OSError, ValueError) as error:  # URLError is an OSError
        if isinstance(error, urllib.error.HTTPError):
            error.close()  # it is a response, too
        reason = str(getattr(error, "reason", None) or error or type(error).__name__)
        raise ResourceError(
            f"{url}: cannot be fetched: {reason[:200]}; "
            "try again later, or get the files by hand and name their folder with --from DIR"
        ) from error
    if len(data) > max_bytes:
        raise DataError(
            f"{url}: more than {max_bytes:,} bytes sent; the file there is not the right one"
        )
    found = sha256_bytes(data)
    if found != sha256:
        raise DataError(
            f"{url}: sha256 {found} found, {sha256} expected; the file there is not the right one"
        )
    return data


def _receive(url: str, *, max_bytes: int) -> bytes:
    """The bytes that a server sends, or a few more than `max_bytes` of them."""
    data = bytearray()
    deadline = time.monotonic() + DEADLINE_S
    with urllib.request.urlopen(url, timeout=TIMEOUT_S) as response:
        while len(data) <= max_bytes:
            chunk = response.read1(1 << 16)
            if not chunk:
                break
            data += chunk
            if time.monotonic() > deadline:
                raise TimeoutError(f"not done after {DEADLINE_S:g} s")
        if len(data) <= max_bytes and response.length:  # fewer bytes came than were announced
            raise http.client.IncompleteRead(bytes(data), response.length)
    return bytes(data)
