"""Downloads of files whose sha256 is known; nothing else is ever fetched.

Knows URLs and hashes, not what the files are for.
"""

import http.client
import logging
import time
import urllib.error
import urllib.request
from pathlib import Path

from mt_cli.artefacts.files import sha256_bytes, write_atomically, write_error
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
            data = _fetch(url, sha256=sha256)
            break
        except (ResourceError, DataError) as error:
            if attempt == ATTEMPTS or not _is_worth_retrying(error):
                raise
            wait_s = backoff_s * 2 ** (attempt - 1)
            log.warning(
                "attempt %d of %d failed, the next is in %.0f s: %s", attempt, ATTEMPTS, wait_s, error
            )
            time.sleep(wait_s)
    write_atomically(path, data)


def _fetch(url: str, *, sha256: str) -> bytes:
    """The content of `url`, which has to fit into memory."""
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as response:
            data: bytes = response.read()
    except (http.client.HTTPException, OSError) as error:  # URLError and timeouts are OSErrors
        raise ResourceError(
            f"{url}: cannot be fetched: {getattr(error, 'reason', None) or error or type(error).__name__}; "
            "try again later, or get the files by hand and name their folder with --from DIR"
        ) from error
    if (found := sha256_bytes(data)) != sha256:
        raise DataError(
            f"{url}: sha256 {found} found, {sha256} expected; the file there is not the right one"
        )
    return data


def _is_worth_retrying(error: Exception) -> bool:
    """Whether another attempt may help; not after a clear answer, such as 404."""
    cause = error.__cause__
    return not isinstance(cause, urllib.error.HTTPError) or cause.code in _PASSING_STATUS or cause.code >= 500
