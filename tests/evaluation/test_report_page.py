"""The report's page in a browser."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import IS_TOO_WIDE, REQUESTS, Browser, contrast, needs_browser
from damage import change_json
from workspace import Workspace

pytestmark = [pytest.mark.processes, needs_browser]
HOSTILE = "</td><script>document.title='broken'</script><img src=http://127.0.0.1:9/x>"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def page(workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of two runs, one of them hostile."""
    folder = tmp_path_factory.mktemp("report")
    one, two = (workspace.copy_run(folder / name) for name in ("one", "two"))
    change_json(two / "env.json", processor=HOSTILE)
    outcome = workspace.call("report", one, two, "-o", folder / "page.html")
    assert outcome.code == 0, outcome.err
    return folder / "page.html"


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("is_dark", [False, True])
def test_it_fits_and_can_be_read_and_loads_nothing(
    browser: Browser, page: Path, width: int, is_dark: bool
) -> None:
    browser.open(page.as_uri(), width=width, is_dark=is_dark)
    browser.value("document.querySelectorAll('details').forEach((each) => { each.open = true })")
    assert not browser.value(IS_TOO_WIDE)
    assert not browser.value(REQUESTS)
    assert not browser.console
    assert browser.value("document.title") == "one and two: translation report"
    assert browser.value("[...document.images].every((each) => each.naturalWidth > 0)")
    for selector in ("p", "td", "dt", "small", "ins", "del"):
        if browser.value(f"document.querySelector('{selector}') !== null"):
            assert contrast(browser, selector) >= 4.5, selector
