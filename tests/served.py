"""A server that tests ask: `mt-cli serve` in a process of its own."""

import http.client
import json
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from started import Process, started
from workspace import MT_CLI, Workspace

LIMIT = 300
JSON = "application/json"


class Served:
    """A server, and what it has said."""

    def __init__(self, process: Process) -> None:
        self.process = process
        assert process.stdout is not None
        self.address = process.stdout.readline().strip()
        self.host, self.port = self.address.removeprefix("http://").rsplit(":", 1)

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.host, int(self.port), timeout=30)

    def ask(
        self,
        method: str,
        path: str,
        body: str | bytes | None = None,
        kind: str = JSON,
        **headers: str,
    ) -> tuple[int, Any, dict[str, str]]:
        """Status, content and headers of an answer."""
        with closing(self.connect()) as connection:
            connection.request(method, path, body, {"Content-Type": kind, **headers})
            answer = connection.getresponse()
            content = answer.read()
            found = {name.lower(): value for name, value in answer.getheaders()}
            is_json = found.get("content-type", "").startswith(JSON)
            return answer.status, json.loads(content) if is_json else content.decode(), found

    def translate(self, q: object, **fields: object) -> tuple[int, Any]:
        given = {"q": q, "source": "de", "target": "en", **fields}
        return self.ask("POST", "/translate", json.dumps(given))[:2]

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """End it as a service manager does; its exit code and its log."""
        self.process.send_signal(number)
        _, log = self.process.communicate(timeout=60)
        return self.process.returncode, log


@contextmanager
def serving(workspace: Workspace, *options: object) -> Iterator[Served]:
    """A server of the workspace's run, which ends with the block."""
    command = (*MT_CLI, "serve", workspace.run, "--port", 0, "--char-limit", LIMIT, *options)
    with started(*command, cwd=workspace.folder) as process:
        yield Served(process)
