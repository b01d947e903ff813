"""Downloads of files whose sha256 is known; nothing else is ever fetched.

Knows URLs and hashes, not what the files are for.
"""

import errno
import hashlib
import http.client
import logging
import os
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from mt_cli.artefacts.files import CHUNK, write_error
from mt_cli.errors import DataError, ResourceError

log = logging.getLogger(__name__)

ATTEMPTS = 3
TIMEOUT_S = 30.0
BACKOFF_S = 1.0
"""Wait before the second attempt; it doubles before each further one."""
_PASSING_STATUS = (408, 425, 429)


def download(url: str, path: Path, *, sha256: str, backoff_s: float = BACKOFF_S) -> None:
    """Fetch `url` into `path`, which appears only once its content has the right hash.

    Raises:
        ResourceError: the network, the server or the disk fails.
        DataError: the server sends a file with another hash.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(path.parent, error) from error
    for attempt in range(1, ATTEMPTS + 1):
        try:
            _fetch(url, path, sha256=sha256)
        except (ResourceError, DataError) as error:
            if attempt == ATTEMPTS or not _is_worth_retrying(error):
                raise
            wait_s = backoff_s * 2 ** (attempt - 1)
            log.warning(
                "attempt %d of %d failed, the next is in %.0f s: %s", attempt, ATTEMPTS, wait_s, error
            )
            time.sleep(wait_s)
        else:
            return


def _fetch(url: str, path: Path, *, sha256: str) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        found = _stream(url, partial)
        if found != sha256:
            raise DataError(
                f"{url}: sha256 {found} found, {sha256} expected; the file there is not the right one"
            )
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _stream(url: str, partial: Path) -> str:
    """Write the content of `url` to `partial` and return its sha256."""
    digest = hashlib.sha256()
    try:
        file = partial.open("wb")
    except OSError as error:
        raise write_error(partial, error) from error
    with file:
        for chunk in _read(url):
            digest.update(chunk)
            try:
                file.write(chunk)
            except OSError as error:
                raise write_error(partial, error) from error
    return digest.hexdigest()


def _read(url: str) -> Iterator[bytes]:
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as response:
            while chunk := response.read(CHUNK):
                yield chunk
            if response.length:  # read(n) does not raise if the connection ends early
                raise http.client.IncompleteRead(b"", response.length)
    except (http.client.HTTPException, OSError) as error:  # URLError and timeouts are OSErrors
        raise ResourceError(
            f"{url}: cannot be fetched: {getattr(error, 'reason', None) or error or type(error).__name__}; "
            "try again later, or get the files by hand and name their folder with --from DIR"
        ) from error


def _is_worth_retrying(error: Exception) -> bool:
    """Whether another attempt may help; not after a clear answer, such as 404, or if the disk is full."""
    cause = error.__cause__
    if isinstance(cause, urllib.error.HTTPError):
        return cause.code in _PASSING_STATUS or cause.code >= 500
    return not (isinstance(cause, OSError) and cause.errno == errno.ENOSPC)
