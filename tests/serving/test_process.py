"""The process that serves: connections that say nothing, and failures that say too much."""

import asyncio
import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from mt_cli.serving import process
from mt_cli.serving.process import TimedProtocol, hide_tracebacks
from mt_cli.serving.server import _failed

HEADER_S = 0.4
HEAD = b"POST /echo HTTP/1.1\r\nHost: here\r\nContent-Length: 4\r\n\r\n"


async def _answer(request: Request) -> Response:
    text = await request.body()
    if request.url.path == "/fail":
        raise ValueError(f"{text!r} cannot be translated")
    return PlainTextResponse(text)


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    """Of a server that waits shortly for headers."""
    monkeypatch.setattr(process, "HEADER_S", HEADER_S)
    config = uvicorn.Config(
        Starlette(
            routes=[Route("/{path}", _answer, methods=["POST"])],
            exception_handlers={Exception: _failed},
        ),
        http=TimedProtocol,
        lifespan="off",
        log_config=None,
    )
    server = uvicorn.Server(config)
    hide_tracebacks()
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])))
    thread.start()
    yield listener.getsockname()
    server.should_exit = True
    thread.join()
    listener.close()


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost:"])
def test_a_connection_without_a_whole_header_is_closed(
    address: tuple[str, int], sent: bytes
) -> None:
    with closing(socket.create_connection(address, timeout=10)) as connection:
        began = time.monotonic()
        connection.sendall(sent)
        while connection.recv(1000):
            pass
        assert HEADER_S / 2 < time.monotonic() - began < 8


def test_a_connection_whose_body_comes_after_the_answer_is_closed(
    address: tuple[str, int],
) -> None:
    with closing(socket.create_connection(address, timeout=10)) as connection:
        connection.sendall(HEAD.replace(b"/echo", b"/no/where"))
        assert connection.recv(1000).startswith(b"HTTP/1.1 404")
        connection.sendall(b"H")
        while connection.recv(1000):
            pass


def test_a_slow_body_and_a_second_request_are_answered(address: tuple[str, int]) -> None:
    with closing(socket.create_connection(address, timeout=10)) as connection:
        for _ in range(2):
            connection.sendall(HEAD)
            time.sleep(1.5 * HEADER_S)
            connection.sendall(b"Hund")
            received = b""
            while not received.endswith(b"Hund"):
                more = connection.recv(1000)
                assert more
                received += more


def test_a_failure_is_logged_without_what_it_quotes(
    address: tuple[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    with closing(socket.create_connection(address, timeout=10)) as connection:
        connection.sendall(HEAD.replace(b"/echo HTTP", b"/fail HTTP") + b"Hund")
        assert connection.recv(1000).startswith(b"HTTP/1.1 500")
    (record,) = [each for each in caplog.records if each.levelno >= logging.ERROR]
    assert "ValueError at " in record.getMessage()
    assert "test_process.py:" in record.getMessage()
    assert "Hund" not in caplog.text
