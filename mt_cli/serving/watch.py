"""Monitoring of a server: a log line for each request, and metrics for Prometheus."""

import logging
import time
from collections.abc import Callable, Collection

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mt_cli.machine.terminal import visible

log = logging.getLogger(__name__)

MAX_PATH = 100
"""Maximum characters of a method or a path that are logged."""
FAILED = 500
"""Status of a request that failed without a response."""
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
"""Upper bounds of the histogram's buckets, in seconds."""


class Metrics:
    """Prometheus metrics of a server."""

    def __init__(self, num_waiting: Callable[[], int]) -> None:
        """`num_waiting` returns the number of lines that wait or are being translated."""
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "mt_cli_requests", "Requests.", ("path", "status"), registry=self._registry
        )
        self._errors = Counter(
            "mt_cli_errors", "Requests with status 400 or above.", registry=self._registry
        )
        self._seconds = Histogram(
            "mt_cli_request_seconds", "Time.", ("path",), registry=self._registry, buckets=BUCKETS
        )
        self._letters = Counter("mt_cli_letters", "Characters of texts.", registry=self._registry)
        self.lines = Counter("mt_cli_lines", "Lines translated.", registry=self._registry)
        waiting = Gauge("mt_cli_waiting_lines", "Lines in the queue.", registry=self._registry)
        waiting.set_function(num_waiting)

    def count(self, path: str, status: int, *, seconds: float, letters: int) -> None:
        """Count a request."""
        self._requests.labels(path, str(status)).inc()
        self._errors.inc(status >= 400)
        self._seconds.labels(path).observe(seconds)
        self._letters.inc(letters)

    async def answer(self, _: Request) -> Response:
        """GET /metrics."""
        return Response(generate_latest(self._registry), media_type=CONTENT_TYPE_LATEST)


class Watch:
    """Middleware that logs and counts each request, but never logs its text."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics, paths: Collection[str]) -> None:
        """Requests for paths not in `paths` are counted together."""
        self._app = app
        self._metrics = metrics
        self._paths = paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request to the application, then log and count it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = FAILED
        began_at = time.perf_counter()

        async def send_noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_noting)
        finally:
            seconds = time.perf_counter() - began_at
            letters = scope.get("state", {}).get("letters", 0)
            path = scope["path"]
            log.info(
                "%s %s %d  %.0f ms  %d characters",
                visible(scope["method"][:MAX_PATH]),
                visible(path[:MAX_PATH]),
                status,
                1000 * seconds,
                letters,
            )
            label = path if path in self._paths else "other"
            self._metrics.count(label, status, seconds=seconds, letters=letters)
