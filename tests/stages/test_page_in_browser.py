"""The page of `report` in a real browser: it fits its window, shows its pictures, and runs nothing."""

import html
import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from damage import change_json
from workspace import Workspace

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
WIDTHS = (1280, 390)
"""Of a desktop's window and of a phone's."""
HOSTILE = '</dd><script>document.title="broken"</script><img src=http://127.0.0.1:9/x>'
MEASURE = """
onload = () => {
  const found = [...document.querySelectorAll("iframe")].map(frame => {
    const page = frame.contentDocument, root = page.documentElement;
    page.querySelectorAll("details").forEach(each => each.open = true);
    return {
      width: root.clientWidth, needed: root.scrollWidth, height: root.scrollHeight, title: page.title,
      pictures: [...page.images].map(each => each.naturalWidth),
      loaded: frame.contentWindow.performance.getEntriesByType("resource").map(each => each.name)
        .filter(name => !name.startsWith("data:")),
      tiny: [...page.querySelectorAll("p, td, th, dd")].filter(each =>
        parseFloat(frame.contentWindow.getComputedStyle(each).fontSize) < 11).length,
    };
  });
  document.body.innerHTML = "<pre>" + JSON.stringify(found) + "</pre>";
};
"""

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no browser: apt-get install chromium")


@pytest.fixture(scope="module")
def measured(
    workspace: Workspace, tmp_path_factory: pytest.TempPathFactory
) -> list[dict[str, object]]:
    """What the browser says of the page of two runs, one of them hostile, at each of the `WIDTHS`."""
    folder = tmp_path_factory.mktemp("browser")
    one, two = (workspace.copy_run(folder / name) for name in ("one", "two"))
    change_json(two / "env.json", processor=HOSTILE)
    outcome = workspace.call("report", one, two, "-o", folder / "page.html")
    assert outcome.code == 0, outcome.err
    page = folder.joinpath("page.html").read_text(encoding="utf-8")
    return measure(page, folder, widths=WIDTHS)


def measure(page: str, folder: Path, *, widths: Sequence[int]) -> list[dict[str, object]]:
    """What the browser says of `page` in a frame of each of the `widths`."""
    frames = "".join(
        f'<iframe width="{width}" height="800" srcdoc="{html.escape(page)}"></iframe>'
        for width in widths
    )
    folder.joinpath("frames.html").write_text(
        f"<body>{frames}<script>{MEASURE}</script>", encoding="utf-8"
    )
    assert BROWSER is not None
    done = subprocess.run(
        [
            BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--dump-dom",
            f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=10000",
            (folder / "frames.html").as_uri(),
        ],
        capture_output=True, text=True, timeout=120, check=True, env={**os.environ, "HOME": str(folder)},
    )  # fmt: skip
    text = re.search("<pre>(.*)</pre>", done.stdout, re.DOTALL)
    assert text is not None, done.stderr
    found: list[dict[str, object]] = json.loads(html.unescape(text[1]))
    return found


@pytest.mark.parametrize("place", range(len(WIDTHS)), ids=map(str, WIDTHS))
def test_page_fits_the_window(measured: list[dict[str, object]], place: int) -> None:
    page = measured[place]
    assert page["needed"] == page["width"]
    assert isinstance(page["width"], int)
    assert WIDTHS[place] - 20 <= page["width"] <= WIDTHS[place]
    assert page["tiny"] == 0


def test_all_pictures_are_drawn(measured: list[dict[str, object]]) -> None:
    pictures = measured[0]["pictures"]
    assert isinstance(pictures, list)
    assert len(pictures) >= 2
    assert min(pictures) > 0


def test_page_runs_and_loads_nothing(measured: list[dict[str, object]]) -> None:
    assert [page["loaded"] for page in measured] == [[], []]
    assert all("broken" not in str(page["title"]) for page in measured)


def test_a_longer_page_in_a_narrow_window(measured: list[dict[str, object]]) -> None:
    wide, narrow = (page["height"] for page in measured)
    assert isinstance(wide, int)
    assert isinstance(narrow, int)
    assert narrow > wide > 1000


def test_the_measure_notices_a_page_that_is_too_wide(tmp_path: Path) -> None:
    (found,) = measure('<body><div style="width: 900px">x</div>', tmp_path, widths=[390])
    assert found["needed"] != found["width"]
