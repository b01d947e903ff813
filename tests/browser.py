"""A headless Chromium, driven through chromedriver by the W3C WebDriver protocol, without a package."""

import contextlib
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
CHROMEDRIVER = shutil.which("chromedriver")
TIMEOUT_S = 60
FLAGS = (
    "--headless=new",
    "--no-sandbox",  # in a container there is no other way
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--hide-scrollbars",
)


@dataclass(frozen=True)
class Browser:
    """One window."""

    session: str
    """Address of the WebDriver session."""

    def open(self, page: Path) -> None:
        """Load `page` from its file."""
        self._post("url", {"url": page.resolve().as_uri()})

    def run(self, script: str, *args: object) -> Any:  # noqa: ANN401
        """What the body of a JavaScript function returns; it may return a promise."""
        return self._post("execute/sync", {"script": script, "args": list(args)})

    def press(self, key: str) -> None:
        """Press and release `key`, a character or one of WebDriver's codes."""
        actions = [{"type": kind, "value": key} for kind in ("keyDown", "keyUp")]
        self._post("actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def resize(self, *, width: int, height: int = 800) -> None:
        """Look through a window of so many pixels, narrower than a desktop's can be."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.devtools("Emulation.setDeviceMetricsOverride", **metrics)

    def emulate(self, *, media: str = "screen", scheme: str = "light") -> None:
        """Be a screen or a printer, in light or dark mode."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.devtools("Emulation.setEmulatedMedia", media=media, features=features)

    def devtools(self, command: str, **params: object) -> Any:  # noqa: ANN401
        """Answer of the DevTools protocol."""
        return self._post("goog/cdp/execute", {"cmd": command, "params": params})

    def console(self) -> list[str]:
        """What has come to the console since last asked for, violations of the page's policy included."""
        return [entry["message"] for entry in self._post("se/log", {"type": "browser"})]

    def requests(self) -> list[str]:
        """Addresses that were asked for since last asked for."""
        entries = self._post("se/log", {"type": "performance"})
        events = [json.loads(entry["message"])["message"] for entry in entries]
        return [
            event["params"]["request"]["url"]
            for event in events
            if event["method"] == "Network.requestWillBeSent"
        ]

    def _post(self, command: str, body: dict[str, object]) -> Any:  # noqa: ANN401
        return _call(f"{self.session}/{command}", body)


@contextlib.contextmanager
def started_browser() -> Iterator[Browser]:
    """A browser that ends with the block."""
    assert CHROMEDRIVER is not None
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    driver = subprocess.Popen(
        [CHROMEDRIVER, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        address = f"http://127.0.0.1:{port}/session"
        options = {"binary": CHROMIUM, "args": list(FLAGS)}
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        _wait_for(port)
        session = _call(address, {"capabilities": {"alwaysMatch": wanted}})["sessionId"]
        try:
            yield Browser(f"{address}/{session}")
        finally:
            _call(f"{address}/{session}", None)
    finally:
        driver.terminate()
        driver.wait(TIMEOUT_S)


def _wait_for(port: int) -> None:
    until = time.monotonic() + TIMEOUT_S
    while time.monotonic() < until:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    raise TimeoutError("chromedriver did not start")


def _call(address: str, body: dict[str, object] | None) -> Any:  # noqa: ANN401
    """The answer's value; a session without a `body` is ended."""
    data = None if body is None else json.dumps(body).encode()
    method = "DELETE" if body is None else "POST"
    request = urllib.request.Request(
        address, data=data, method=method, headers={"Content-Type": "application/json"}
    )
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
            request, timeout=TIMEOUT_S
        ) as answer:
            return json.load(answer)["value"]
    except urllib.error.HTTPError as error:
        raise RuntimeError(error.read().decode()) from error
