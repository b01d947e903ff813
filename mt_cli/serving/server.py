"""The server: its pages, its error responses, start and shutdown."""

import ipaddress
import logging
import signal
import socket
import traceback
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from mt_cli.errors import ResourceError
from mt_cli.machine.failures import reason_of
from mt_cli.machine.process import HANGUP, TERMINATING
from mt_cli.serving.api import HEADERS, Api, ServedModel, json_answer
from mt_cli.serving.requests import RequestReader
from mt_cli.serving.watch import Watch

log = logging.getLogger(__name__)

PAGES = {
    "/": ("page.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
}


def create_app(
    model: ServedModel, reader: RequestReader, *, cors_origins: Sequence[str] = ()
) -> Starlette:
    """The application that serves `model`; `reader` reads and checks requests."""
    api = Api(model, reader)
    routes = [Route(path, _page(*page)) for path, page in PAGES.items()] + api.routes()
    paths = [route.path for route in routes]
    middleware = [Middleware(Watch, metrics=api.metrics, paths=paths)]
    if cors_origins:
        middleware += [
            Middleware(
                CORSMiddleware,
                allow_origins=list(cors_origins),
                allow_methods=["GET", "POST"],
                allow_headers=["Content-Type"],
            )
        ]
    return Starlette(
        routes=routes,
        middleware=middleware,
        lifespan=api.lifespan,
        exception_handlers={
            HTTPException: _refused,
            TimeoutError: _too_slow,
            ClientDisconnect: _gone,
            Exception: _failed,
        },
    )


def _page(name: str, media_type: str) -> Callable[[Request], Response]:
    content = files(__package__).joinpath(name).read_bytes()
    return lambda _: Response(content, media_type=media_type, headers=HEADERS)


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return json_answer({"error": error.detail}, status=error.status_code, **(error.headers or {}))


async def _too_slow(_: Request, error: Exception) -> Response:
    return json_answer({"error": "the request took too long to arrive"}, status=408)


async def _gone(_: Request, error: Exception) -> Response:
    return json_answer({"error": "the request ended before its body"}, status=400)


async def _failed(_: Request, error: Exception) -> Response:
    # Never log the error's message, which may quote the request.
    places = [
        f"{Path(place.filename).name}:{place.lineno}"
        for place in traceback.extract_tb(error.__traceback__)
    ]
    log.error("a request failed: %s at %s", type(error).__name__, " > ".join(places))
    return json_answer({"error": "internal server error; see the server's log"}, status=500)


MAX_CONNECTIONS = 512
FINISH_S = 30
"""How long running requests may take after SIGTERM or Ctrl-C."""
MAX_HEADER_BYTES = 1 << 14


def listening_socket(host: str, port: int) -> socket.socket:
    """A socket that listens at `host` and `port`; 0 picks a free port.

    Raises:
        ResourceError: the host does not exist, or the port is taken.
    """
    try:
        family, *_, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.create_server(place[:2], family=family)
    except OSError as error:
        raise ResourceError(
            f"{host}:{port}: {reason_of(error)}; choose another with --port or --host"
        ) from error
    # Connections inherit this; without it, the second packet of a response is delayed by 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def address_of(listener: socket.socket, *, has_keys: bool) -> str:
    """The URL of `listener`; warns if other machines can use it without a key."""
    ip, port = listener.getsockname()[:2]
    address = f"http://{f'[{ip}]' if ':' in ip else ip}:{port}"
    if not has_keys and not ipaddress.ip_address(ip).is_loopback:
        log.warning("%s is open to everyone who can reach it; --api-keys restricts it", address)
    return address


def serve_until_stopped(
    application: Starlette, listener: socket.socket, *, on_ready: Callable[[], None]
) -> None:
    """Serve until SIGTERM or Ctrl-C; running requests are finished."""
    config = uvicorn.Config(
        application,
        http="h11",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_graceful_shutdown=FINISH_S,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
    )
    # Drop uvicorn's tracebacks, which may quote a request; `_failed` has logged the failure.
    logging.getLogger("uvicorn.error").addFilter(
        lambda record: not record.getMessage().startswith("Exception in ASGI application")
    )
    stopping = (signal.SIGINT, *TERMINATING, *HANGUP)  # by default only SIGINT and SIGTERM
    uvicorn.server.HANDLED_SIGNALS = tuple(
        number for number in stopping if signal.getsignal(number) != signal.SIG_IGN
    )

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            on_ready()

    Server(config).run([listener])
