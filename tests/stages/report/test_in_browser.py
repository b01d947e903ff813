"""The report in a real browser: it looks right, works by keyboard, asks for nothing, and is accessible.

Needs chromium and chromedriver; the check of accessibility also axe-core: `npm install --no-save axe-core`.
"""

import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import dropwhile
from pathlib import Path

import pytest
from browser import CHROMEDRIVER, CHROMIUM, Browser, started_browser
from workspace import Workspace

from mt_cli.stages.report.examples import shortened
from mt_cli.stages.report.findings import Findings
from mt_cli.stages.report.gather import gather_findings
from mt_cli.stages.report.page import SECTIONS, render_page
from mt_cli.translation.word_differences import word_differences

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(CHROMIUM is None or CHROMEDRIVER is None, reason="needs chromium and chromedriver"),
]

AXE = Path(
    os.environ.get("AXE_CORE")
    or Path(__file__).resolve().parents[3] / "node_modules" / "axe-core" / "axe.min.js"
)
HOSTILE = (
    '</dd><script>document.title="broken"</script><img src="http://example.invalid/x"> \u202eback &amp; \x00'
)
TAB, ENTER = "\ue004", "\ue007"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with started_browser() as started:
        yield started


@pytest.fixture(scope="module")
def pages(workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A page of one run, one of two, and one whose texts are hostile."""
    folder = tmp_path_factory.mktemp("pages")
    one, other = workspace.copy_run(folder / "one"), workspace.copy_run(folder / "other")
    earliest = sorted(path.name for path in other.glob("checkpoints/step-*"))[0]
    other.joinpath("best.txt").write_text(f"{earliest}\n")
    findings = [
        gather_findings(runs, num_examples=6, data_dir=workspace.prepared, device="cpu", threads=1)
        for runs in ([one], [other, one])
    ]
    texts = {
        "one": render_page(findings[0]),
        "two": render_page(findings[1]),
        "hostile": render_page(made_hostile(findings[0])),
    }
    for name, text in texts.items():
        folder.joinpath(f"{name}.html").write_text(text, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in texts}


def made_hostile(findings: Findings) -> Findings:
    """The same with `HOSTILE` in the place of every text."""
    (test_set,), (run,) = findings.test_sets, findings.runs
    (rendering,) = test_set.groups[0].examples[0].renderings
    assert rendering.attention is not None
    attention = replace(rendering.attention, rows=tuple(HOSTILE for _ in rendering.attention.rows))
    bad = replace(rendering, hyp=HOSTILE, differences=word_differences(HOSTILE, "a b"), attention=attention)
    example = replace(
        test_set.groups[0].examples[0], source=shortened(HOSTILE), ref=HOSTILE, renderings=(bad,)
    )
    group = replace(test_set.groups[0], examples=(example,))
    facts = replace(run, name=HOSTILE, folder=HOSTILE, config=HOSTILE, settings={HOSTILE: HOSTILE})
    return replace(findings, runs=(facts,), test_sets=(replace(test_set, name=HOSTILE, groups=(group,)),))


@pytest.fixture(params=["one", "two", "hostile"])
def page(request: pytest.FixtureRequest, pages: dict[str, Path]) -> Path:
    return pages[request.param]


@pytest.fixture(autouse=True)
def as_usual(browser: Browser) -> None:
    """A desktop's screen in light mode, and nothing left over from the test before."""
    browser.resize(width=1280)
    browser.emulate()
    browser.console()
    browser.requests()


def test_page_asks_for_nothing_and_complains_of_nothing(browser: Browser, page: Path) -> None:
    browser.open(page)
    assert browser.console() == []
    assert browser.requests() == [page.resolve().as_uri()]
    assert browser.run("return document.title").endswith(": translation report")
    assert browser.run("return [...document.images].length + document.scripts.length") == 1


def test_policy_stops_a_request_that_a_script_would_make(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["one"])
    stopped = browser.run(
        "return new Promise(tell => {"
        " addEventListener('securitypolicyviolation', event => tell(event.blockedURI));"
        " document.body.append(Object.assign(new Image(), {src: 'http://example.invalid/x.png'}));"
        "})"
    )
    assert stopped == "http://example.invalid/x.png"


@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_is_wider_than_the_window(browser: Browser, page: Path, width: int) -> None:
    browser.resize(width=width)
    browser.open(page)
    browser.run("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert browser.run("return document.documentElement.scrollWidth") <= width


def test_map_opens_by_click_and_by_keyboard(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["one"])
    is_seen = "return document.querySelector('details.map svg').checkVisibility()"
    assert browser.run(is_seen) is False
    browser.run("document.querySelector('details.map summary').click()")
    assert browser.run(is_seen) is True
    browser.run("document.querySelector('details.map summary').focus()")
    browser.press(ENTER)
    assert browser.run(is_seen) is False


def test_tab_visits_links_tables_tools_and_maps_in_the_order_of_the_page(
    browser: Browser, pages: dict[str, Path]
) -> None:
    browser.open(pages["one"])
    visited: list[tuple[int, str]] = []
    for _ in range(30):
        browser.press(TAB)
        place, name = browser.run(
            "const found = document.activeElement;"
            "const name = found.getAttribute('href') || found.id || found.className || found.tagName;"
            "return [[...document.querySelectorAll('*')].indexOf(found), name]"
        )
        visited.append((place, name))
    visited = list(dropwhile(lambda each: each[1] == "BODY", visited))  # until the window has the keyboard
    names = [name for _, name in visited]
    assert names[: len(SECTIONS)] == [f"#{name}" for name in SECTIONS]
    assert {"filter", "open", "close", "scroll", "SUMMARY"} <= set(names)
    last = visited.index(max(visited))  # after which it begins again
    assert visited[: last + 1] == sorted(visited[: last + 1])


def test_filter_leaves_the_examples_with_the_words(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["one"])
    source = browser.run("return document.querySelector('.examples dd').textContent")
    browser.run(
        "const field = document.getElementById('filter'); field.value = arguments[0].toUpperCase();"
        "field.dispatchEvent(new Event('input'))",
        source,
    )
    shown = browser.run("return document.querySelectorAll('.examples > li:not([hidden])').length")
    assert shown >= 1
    assert browser.run("return document.getElementById('shown').textContent") == f"{shown} of 6 examples"


def test_buttons_open_and_close_every_map(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["two"])
    num_open = "return document.querySelectorAll('details.map[open]').length"
    browser.run("document.getElementById('open').click()")
    assert browser.run(num_open) == 12  # six examples, two runs
    browser.run("document.getElementById('close').click()")
    assert browser.run(num_open) == 0


def test_page_works_without_its_script(browser: Browser, pages: dict[str, Path]) -> None:
    browser.devtools("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(pages["one"])
        browser.devtools("Emulation.setScriptExecutionDisabled", value=False)
        assert browser.run("return document.querySelector('.tools').hidden") is True
        browser.run("document.querySelector('details.map summary').click()")
        assert browser.run("return document.querySelector('details.map').open") is True
    finally:
        browser.devtools("Emulation.setScriptExecutionDisabled", value=False)


def test_dark_mode_and_paper_have_colours_of_their_own(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["one"])
    colours = "const style = getComputedStyle(document.body); return [style.backgroundColor, style.color]"
    light = browser.run(colours)
    browser.emulate(scheme="dark")
    dark = browser.run(colours)
    browser.emulate(media="print", scheme="dark")
    assert len({*map(tuple, (light, dark))}) == 2
    assert browser.run(colours) == ["rgb(255, 255, 255)", "rgb(0, 0, 0)"]
    assert browser.run("return getComputedStyle(document.querySelector('nav')).display") == "none"


@pytest.mark.skipif(not AXE.is_file(), reason="needs axe-core: npm install --no-save axe-core")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_axe_finds_nothing(browser: Browser, page: Path, scheme: str, width: int) -> None:
    browser.resize(width=width)
    browser.emulate(scheme=scheme)
    browser.open(page)
    browser.run("document.querySelectorAll('details').forEach(each => each.open = true)")
    browser.run(AXE.read_text(encoding="utf-8"))
    found = browser.run("return axe.run()")
    assert [(each["id"], each["impact"], each["nodes"][0]["html"]) for each in found["violations"]] == []
    assert len(found["passes"]) > 10
