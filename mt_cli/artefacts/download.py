"""Downloads of files whose size and sha256 are known; nothing else is ever fetched.

Knows URLs, sizes and hashes, not what the files are for. A server can neither send more than was asked for,
nor take for ever, nor send us to another kind of place.
"""

import http.client
import logging
import queue
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from http.client import HTTPResponse
from pathlib import Path
from typing import IO, Any

from mt_cli.artefacts.files import sha256_bytes, write_atomically
from mt_cli.artefacts.write_errors import write_error
from mt_cli.errors import DataError, ResourceError

log = logging.getLogger(__name__)

ATTEMPTS = 3
TIMEOUT_S = 30.0
"""Longest silence of the server."""
DEADLINE_S = 300.0
"""Longest time that one attempt may take in all."""
BACKOFF_S = 1.0
"""Wait before the second attempt; it doubles before each further one."""
READ_BYTES = 1 << 16
LONGEST_REASON = 200
"""Characters of what a server says that an error repeats."""
_PASSING_STATUS = (408, 425, 429)
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def download(
    url: str,
    path: Path,
    *,
    sha256: str,
    most: int,
    backoff_s: float = BACKOFF_S,
    deadline_s: float = DEADLINE_S,
) -> None:
    """Fetch `url`, of at most `most` bytes, into `path`, which appears only once the hash is right.

    Raises:
        ResourceError: the network, the server or the disk fails.
        DataError: the server sends a file with another hash, or a larger one.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(path.parent, error) from error
    for attempt in range(1, ATTEMPTS + 1):
        try:
            data = _fetch(url, sha256=sha256, most=most, deadline_s=deadline_s)
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


def _fetch(url: str, *, sha256: str, most: int, deadline_s: float) -> bytes:
    """The content of `url`, which has to fit into memory."""
    try:
        data = _within(deadline_s, lambda stop: _read(url, most=most, stop=stop))
    except (http.client.HTTPException, OSError, ValueError) as error:  # URLError and timeouts are OSErrors
        reason = getattr(error, "reason", None) or error or type(error).__name__
        raise ResourceError(
            f"{url}: cannot be fetched: {_printable(str(reason))}; "
            "try again later, or get the files by hand and name their folder with --from DIR"
        ) from error
    if len(data) > most:
        raise DataError(f"{url}: more than {most:,} bytes sent; the file there is not the right one")
    if (found := sha256_bytes(data)) != sha256:
        raise DataError(
            f"{url}: sha256 {found} found, {sha256} expected; the file there is not the right one"
        )
    return data


def _read(url: str, *, most: int, stop: threading.Event) -> bytes:
    """What the server sends: all of it, or the first `most` bytes and one more."""
    _check_place(url, origin=url)
    opener = urllib.request.build_opener(_SafeRedirects(url))
    data = bytearray()
    with _opened(opener, url) as response:
        while len(data) <= most and not stop.is_set():
            chunk = response.read1(min(READ_BYTES, most + 1 - len(data)))
            if not chunk:
                _check_complete(response, data)
                break
            data += chunk
    return bytes(data)


def _opened(opener: urllib.request.OpenerDirector, url: str) -> HTTPResponse:
    try:
        response: HTTPResponse = opener.open(url, timeout=TIMEOUT_S)
    except urllib.error.HTTPError as error:
        error.close()  # it is a response, too
        raise
    return response


def _check_complete(response: HTTPResponse, data: bytearray) -> None:
    """Complain about a connection that ended before all was sent that was announced."""
    missing = response.length
    if missing:
        raise http.client.IncompleteRead(bytes(data), missing)


def _within(deadline_s: float, work: Callable[[threading.Event], bytes]) -> bytes:
    """The result of `work`, which is left alone and told to stop after `deadline_s` seconds.

    A timeout of the socket would not do: it begins anew with every byte.
    """
    stop = threading.Event()
    results: queue.SimpleQueue[bytes | BaseException] = queue.SimpleQueue()

    def run() -> None:
        try:
            results.put(work(stop))
        except BaseException as error:
            results.put(error)

    threading.Thread(target=run, daemon=True).start()
    try:
        result = results.get(timeout=deadline_s)
    except queue.Empty:
        raise TimeoutError(f"not done after {deadline_s:g} s") from None
    finally:
        stop.set()
    if isinstance(result, BaseException):
        raise result
    return result


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    def __init__(self, origin: str) -> None:
        self._origin = origin

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> Any:  # noqa: ANN401 — as in the class above
        try:
            _check_place(newurl, origin=self._origin)
        except OSError:
            fp.close()
            raise
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _check_place(url: str, *, origin: str) -> None:
    """Make sure that `url` is on the web, and encrypted; a server of this machine may send us to itself.

    Raises:
        OSError: it is something else.
    """
    begin, place = urllib.parse.urlsplit(origin), urllib.parse.urlsplit(url)
    is_local = place.scheme == "http" and {begin.hostname, place.hostname} <= set(_LOOPBACK)
    if place.scheme != "https" and not is_local:
        raise OSError(f"the server sends us to {url}, but only https is followed")


def _printable(text: str) -> str:
    """`text` of a server, without anything that a terminal would obey, and not at any length."""
    shown = "".join(letter if letter.isprintable() else "?" for letter in text)
    return shown if len(shown) <= LONGEST_REASON else f"{shown[:LONGEST_REASON]}…"


def _is_worth_retrying(error: Exception) -> bool:
    """Whether another attempt may help; not after a clear answer, such as 404."""
    cause = error.__cause__
    return not isinstance(cause, urllib.error.HTTPError) or cause.code in _PASSING_STATUS or cause.code >= 500
