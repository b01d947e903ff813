"""A Chromium that tests steer through pipes, by the Chrome DevTools Protocol."""

import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from started import started

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no browser: apt-get install chromium")
WAIT_S = 30.0
KEYS = {"Tab": 9, "Enter": 13}


class Browser:
    """One tab without a window."""

    def __init__(self, commands: int, answers: int) -> None:
        """Talk to the browser that reads from and writes to the other ends of these pipes."""
        self._commands, self._answers = commands, answers
        self._buffer = b""
        self._number = 0
        self.console: list[str] = []
        """What the page has logged: errors, and what its content security policy has stopped."""
        self._session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: object) -> dict[str, Any]:
        """What the browser answers."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "result" in answer, answer
                return answer["result"]
            if answer.get("method") in ("Log.entryAdded", "Runtime.exceptionThrown"):
                self.console.append(json.dumps(answer["params"]))

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            data = os.read(self._answers, 1 << 16)
            assert data, "the browser has ended"
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def open(self, url: str, *, width: int = 1280, is_dark: bool = False) -> None:
        """Open a page in a window of that width."""
        scheme = "dark" if is_dark else "light"
        screen = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **screen)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=features)
        self.console.clear()
        self.call("Page.navigate", url=url)
        self.wait_for("document.readyState === 'complete' && location.href !== 'about:blank'")

    def value(self, expression: str) -> Any:  # noqa: ANN401
        """The value of an expression in the page."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait_for(self, expression: str) -> None:
        """Wait until the expression is true."""
        ends_at = time.monotonic() + WAIT_S
        while not self.value(expression):
            assert time.monotonic() < ends_at, f"never true: {expression}"
            time.sleep(0.02)

    def type(self, text: str) -> None:
        """Type text where the cursor is."""
        self.call("Input.insertText", text=text)

    def press(self, key: str) -> None:
        """Press a key of `KEYS`."""
        pressed = {"key": key, "windowsVirtualKeyCode": KEYS[key]}
        text = {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", **pressed, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **pressed)


@contextmanager
def browsing(profile: Path) -> Iterator[Browser]:
    """A browser with one tab, which ends with the block."""
    # The browser reads commands from its descriptor 3 and writes answers to 4.
    for_browser, commands = os.pipe()
    answers, from_browser = os.pipe()
    command = (
        f"exec {CHROMIUM} --headless --no-sandbox --disable-gpu --disable-dev-shm-usage "
        f"--remote-debugging-pipe --user-data-dir={profile} "
        f"3<&{for_browser} 4>&{from_browser} </dev/null &>/dev/null"
    )
    try:
        with started("bash", "-c", command, pass_fds=(for_browser, from_browser)):
            os.close(for_browser)
            os.close(from_browser)
            yield Browser(commands, answers)
    finally:
        os.close(commands)
        os.close(answers)


IS_TOO_WIDE = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
REQUESTS = """performance.getEntriesByType("resource").map((each) => each.name)
  .filter((name) => !name.startsWith("data:"))"""


def contrast(browser: Browser, selector: str) -> float:
    """Of an element's text with what is behind it (WCAG 2.1, 1.4.3)."""
    colours = browser.value(
        f"""(() => {{
          let each = document.querySelector({json.dumps(selector)});
          const ink = getComputedStyle(each).color;
          const isClear = (colour) => colour === "rgba(0, 0, 0, 0)";
          while (isClear(getComputedStyle(each).backgroundColor)) each = each.parentElement;
          return [ink, getComputedStyle(each).backgroundColor];
        }})()"""
    )
    bright, dim = sorted(map(_luminance, colours), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(part) / 255 for part in colour.removeprefix("rgb(").rstrip(")").split(",")]
    red, green, blue = (
        part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
