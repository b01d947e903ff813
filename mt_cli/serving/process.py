"""The process that serves: where it listens, and how it begins and ends."""

import asyncio
import ipaddress
import logging
import signal
import socket
from collections.abc import Callable

import h11
import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from mt_cli.errors import ResourceError
from mt_cli.machine.files import reason_of
from mt_cli.machine.process import TERMINATING

log = logging.getLogger(__name__)
MAX_CONNECTIONS = 512
KEEP_ALIVE_S = 5
FINISH_S = 30
"""How long requests that have begun may take after SIGTERM or Ctrl-C."""
MAX_HEADER_BYTES = 1 << 14
HEADER_S = 20
"""How long the header of a request may take."""


class TimedProtocol(H11Protocol):
    """HTTP on one connection, which ends if the header of a request does not arrive in time."""

    _header_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a header."""
        super().connection_made(transport)
        self._wait_for_header()

    def data_received(self, data: bytes) -> None:
        """Wait no longer where `data` completes a header."""
        super().data_received(data)
        is_answered = self.conn.our_state is h11.DONE  # which a body may still follow
        if self.conn.their_state is not h11.IDLE and not is_answered:
            self._stop_waiting()
        elif self._header_timer is None:
            self._wait_for_header()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait_for_header(self) -> None:
        self._header_timer = self.loop.call_later(HEADER_S, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None


def listening_socket(host: str, port: int) -> socket.socket:
    """A socket that listens at `host` and `port`; 0 is any port that is free.

    Raises:
        ResourceError: there is no such host, or the port is taken.
    """
    try:
        family, *_, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.create_server(place[:2], family=family)
    except OSError as error:
        raise ResourceError(
            f"{host}:{port}: {reason_of(error)}; give another with --port"
        ) from error
    # Connections inherit it; without it, the second packet of an answer waits for 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def address_of(listener: socket.socket) -> str:
    """Where `listener` can be reached; a warning if others than this machine can."""
    ip, port = listener.getsockname()[:2]
    address = f"http://{f'[{ip}]' if ':' in ip else ip}:{port}"
    if not ipaddress.ip_address(ip).is_loopback:
        log.warning("%s answers everyone who reaches it, without a password", address)
    return address


def hide_tracebacks() -> None:
    """Keep from the log what may quote a request; the application has told what failed."""
    logging.getLogger("uvicorn.error").addFilter(
        lambda record: not record.getMessage().startswith("Exception in ASGI application")
    )


def serve_until_stopped(
    application: Starlette, listener: socket.socket, *, on_ready: Callable[[], None]
) -> None:
    """Answer until SIGTERM or Ctrl-C; requests that have begun are finished."""
    config = uvicorn.Config(
        application,
        http=TimedProtocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=FINISH_S,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
    )

    hide_tracebacks()
    uvicorn.server.HANDLED_SIGNALS = (signal.SIGINT, *TERMINATING)  # its own are two of them

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            on_ready()

    Server(config).run([listener])
