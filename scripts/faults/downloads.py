"""Servers that mean no good: a download from each ends in time, with few bytes kept and the old file whole.

The server runs in the case's own process, and the download in a child of it.
"""

import contextlib
import gzip
import hashlib
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from faults.case import Case, Site, check_manners, clipped, expect, tree_of
from faults.trial import Fault

PROMISE, FAMILY = 7, "downloads"
CONTENT = b"zwei Hunde\n" * 1000
SHA256 = hashlib.sha256(CONTENT).hexdigest()
DEADLINE_S = 1.0
"""Of an attempt; users wait longer."""
ATTEMPTS = 3
GRACE_S = 6.0
"""A slow machine's."""
NETWORK, DATA = 5, 3
QUICK_STRIDE = 6
MOST_MB = 100.0
ESCAPE = b"\x1b[2J\x1b]0;owned\x07"


@dataclass(frozen=True)
class Hostility:
    """What a server does to whoever asks it for a file."""

    serve: Callable[[socket.socket, int], None]
    """Answers on a connection, after the request has been read; the number is the server's own port."""
    code: int = NETWORK
    """What the download exits with."""


def downloads(site: Site) -> Iterator[Fault]:
    """A fault for each hostile server; half of the cases begin with a good file, which has to be kept."""
    for nth, (name, hostility) in enumerate(HOSTILITIES.items()):
        if not site.is_quick or nth % QUICK_STRIDE == 0:
            work = partial(_fetch, hostility=hostility, deadline_s=DEADLINE_S)
            yield Fault(PROMISE, FAMILY, name, work)


def _fetch(case: Case, *, hostility: Hostility, deadline_s: float) -> None:
    """Download from a hostile server, into a folder where an earlier file lies, and into an empty one."""
    kept = case.folder / "raw" / "old.gz"
    kept.parent.mkdir()
    kept.write_bytes(CONTENT)
    before = tree_of(case.folder)
    with _listening(hostility) as port:
        for name in ("old.gz", "new.gz"):
            work = partial(_download, port, kept.with_name(name), deadline_s)
            ended = case.run(work, time_limit_s=ATTEMPTS * deadline_s + GRACE_S)
            check_manners(ended, name)
            said = f"exit {ended.code}: {clipped(ended.err)}"
            expect(ended.code == hostility.code, f"expected exit {hostility.code}, found {said}")
            expect(ended.err.replace("\n", "").isprintable(), f"control characters: {ended.err[:300]!a}")
            expect(len(ended.err) < 3_000, f"a message of {len(ended.err):,} letters")
            expect(ended.peak_mb <= MOST_MB, f"{ended.peak_mb:,.0f} MB; {said}")
            expect(tree_of(case.folder) == before, "files are left, or the old one was changed")


def _download(port: int, path: Path, deadline_s: float) -> int:
    """Download as `prepare` does; what users are told goes to stderr."""

    from mt_cli.artefacts.download import download
    from mt_cli.commands.terminal import exit_codes, set_up_logging

    os.environ["no_proxy"] = "127.0.0.1"
    set_up_logging(is_quiet=False, is_verbose=False)
    url = f"http://127.0.0.1:{port}/train.de.gz"
    guarded = exit_codes(download)
    try:
        guarded(url, path, sha256=SHA256, most=len(CONTENT), backoff_s=0.0, deadline_s=deadline_s)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    return 0


@contextlib.contextmanager
def _listening(hostility: Hostility) -> Iterator[int]:
    """The port of a server that is hostile to each who connects."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = int(server.getsockname()[1])
        is_over = threading.Event()

        def answer() -> None:
            while not is_over.is_set():
                with contextlib.suppress(OSError):
                    connection, _ = server.accept()
                    threading.Thread(target=_serve, args=(hostility, connection, port), daemon=True).start()

        threading.Thread(target=answer, daemon=True).start()
        yield port
        is_over.set()


def _serve(hostility: Hostility, connection: socket.socket, port: int) -> None:
    with contextlib.suppress(OSError), connection:
        connection.settimeout(60)
        connection.recv(1 << 16)
        hostility.serve(connection, port)


# What servers do


def _answer(status: bytes, body: bytes = b"", *, headers: bytes = b"") -> Hostility:
    content = b"HTTP/1.1 " + status + b"\r\n" + headers + b"\r\n" + body
    return Hostility(lambda connection, _: connection.sendall(content))


def _body(body: bytes, *, length: int, code: int = NETWORK, headers: bytes = b"") -> Hostility:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n" % length + headers + b"\r\n"
    return Hostility(lambda connection, _: connection.sendall(head + body), code)


def _redirect(place: str) -> Hostility:
    def serve(connection: socket.socket, port: int) -> None:
        to = place.format(port=port).encode()
        connection.sendall(b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: " + to + b"\r\n\r\n")

    return Hostility(serve)


def _send_for_ever(
    piece: bytes, *, first: bytes = b"HTTP/1.1 200 OK\r\n\r\n", pause_s: float = 0.0
) -> Hostility:
    def serve(connection: socket.socket, _: int) -> None:
        connection.sendall(first)
        while True:
            connection.sendall(piece)
            time.sleep(pause_s)

    is_body = first.endswith(b"\r\n\r\n") and not pause_s
    return Hostility(serve, DATA if is_body else NETWORK)


def _say_nothing(connection: socket.socket, _: int) -> None:
    with contextlib.suppress(OSError):
        connection.recv(1)  # until the other side gives up


def _reset(connection: socket.socket, _: int) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(CONTENT) + CONTENT[:5000])
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _hang_up(connection: socket.socket, _: int) -> None:
    connection.shutdown(socket.SHUT_RDWR)


def _hang_in_the_midst(connection: socket.socket, port: int) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(CONTENT) + CONTENT[:5000])
    _say_nothing(connection, port)


def _bomb() -> Hostility:
    bomb = gzip.compress(bytes(1 << 26), 1)
    return _body(bomb, length=len(bomb), code=DATA, headers=b"Content-Encoding: gzip\r\n")


HOSTILITIES: Mapping[str, Hostility] = {
    "an endless body": _send_for_ever(b"x" * 65_536),
    "a byte in a tenth of a second": _send_for_ever(b"x", pause_s=0.1),
    "a header that never ends": _send_for_ever(b"a" * 100, first=b"HTTP/1.1 200 OK\r\nX: ", pause_s=0.001),
    "headers that never end": _send_for_ever(b"X: y\r\n", first=b"HTTP/1.1 200 OK\r\n", pause_s=0.0001),
    "a byte of a header in a tenth of a second": _send_for_ever(
        b"a", first=b"HTTP/1.1 200 OK\r\nX: ", pause_s=0.1
    ),
    "no answer": Hostility(_say_nothing),
    "a hung-up connection": Hostility(_hang_up),
    "a reset in the midst": Hostility(_reset),
    "silence in the midst": Hostility(_hang_in_the_midst),
    "a body that is too short": _body(CONTENT[:-50], length=len(CONTENT)),
    "a body that is too long": _body(CONTENT + b"x" * 50, length=len(CONTENT) + 50, code=DATA),
    "a length that is a lie": _body(CONTENT, length=10**15),
    "a negative length": _body(b"", length=-1, code=DATA),
    "another file": _body(CONTENT.replace(b"z", b"Z"), length=len(CONTENT), code=DATA),
    "nothing": _body(b"", length=0, code=DATA),
    "a gzip bomb": _bomb(),
    "a chunk without end": _answer(b"200 OK", b"f" * 100_000, headers=b"Transfer-Encoding: chunked\r\n"),
    "a chunk that is too large": _answer(
        b"200 OK", b"ffffffffffffffff\r\nx", headers=b"Transfer-Encoding: chunked\r\n"
    ),
    "a redirect to ftp": _redirect("ftp://127.0.0.1/x"),
    "a redirect to a file": _redirect("file:///etc/passwd"),
    "a redirect to another host": _redirect("http://198.51.100.1/x"),
    "a redirect to an escape": _redirect("http://\x1b[2J\u202e/"),
    "a redirect to data": _redirect("data:text/plain,x"),
    "a redirect to itself": _redirect("http://127.0.0.1:{port}/train.de.gz"),
    "a status that is garbage": Hostility(
        lambda connection, _: connection.sendall(ESCAPE * 99 + b"\r\n\r\n")
    ),
    "a status that never ends": _send_for_ever(b"9", first=b"HTTP/1.1 ", pause_s=0.0001),
    "404 with an escape": _answer(b"404 " + ESCAPE * 999, ESCAPE),
    "500 with an escape": _answer(b"500 " + ESCAPE, ESCAPE * 9999),
    "a status of 99 999": _answer(b"99999 OK", CONTENT),
    "401 that asks for a password": _answer(
        b"401 No", headers=b'WWW-Authenticate: Basic realm="\x1b[2J"\r\n'
    ),
}
