"""The page of `mt-cli serve` in a browser, by keyboard."""

import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
from browser import IS_TOO_WIDE, REQUESTS, Browser, browsing, contrast, needs_browser
from served import LIMIT, Served, serving
from workspace import Workspace

from mt_cli import Translator

pytestmark = [pytest.mark.processes, needs_browser]
HOSTILE = "Ein Hund <img src=x onerror=\"document.title='broken'\"> & </textarea><script>1</script>"


@pytest.fixture(scope="module")
def served(workspace: Workspace) -> Iterator[Served]:
    with serving(workspace) as server:
        yield server


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browsing(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


def open_page(browser: Browser, server: Served, **window: Any) -> None:  # noqa: ANN401
    """Open the page, and wait until it is ready and the cursor is where text goes."""
    browser.open(f"{server.address}/", **window)
    browser.wait_for("document.title !== 'mt_cli' && document.activeElement.id === 'source'")


def target_is(text: str) -> str:
    is_new = "!document.getElementById('target').classList.contains('old')"
    return f"document.getElementById('target').textContent === {json.dumps(text)} && {is_new}"


def texts(browser: Browser, selector: str) -> list[str]:
    return browser.value(
        f"[...document.querySelectorAll({json.dumps(selector)})].map((each) => each.textContent)"
    )


def test_what_is_typed_is_translated_and_its_words_are_linked(
    served: Served, browser: Browser, workspace: Workspace
) -> None:
    translator = Translator.load(workspace.run, device="cpu", threads=1, beam_size=5)
    open_page(browser, served)
    first, second = "Ein Hund bellt.", "Zwei Frauen singen."
    browser.type(first)
    browser.wait_for(target_is(translator.translate([first])[0]))
    browser.wait_for("document.querySelectorAll('#words-target button').length > 0")
    ((best,),) = translator.translate_n_best([first], with_alignment=True, with_words=True)
    doubted = [word for word, log_prob in best.words if log_prob < math.log(0.5)]
    browser.wait_for(f"document.querySelectorAll('#target u').length === {len(doubted)}")
    assert texts(browser, "#target u") == doubted
    browser.press("Tab")  # to Copy
    browser.press("Tab")  # to the first word
    browser.press("Enter")
    linked = [best.src_tokens[src].strip("▁") for src, tgt in best.alignment if tgt == 0]
    assert texts(browser, "#words-source .linked") == linked
    assert browser.value("document.activeElement.getAttribute('aria-pressed')") == "true"

    browser.value("document.getElementById('source').focus()")
    browser.type(f"\n{second}")
    both = "\n".join(translator.translate([first, second]))
    browser.wait_for(target_is(both))
    assert texts(browser, "#count") == [f"{len(first) + 1 + len(second)} of {LIMIT} characters"]
    assert not browser.console
    assert all(name.startswith(served.address) for name in browser.value(REQUESTS))


def test_an_example_can_be_chosen_until_there_is_text(
    served: Served, browser: Browser, workspace: Workspace
) -> None:
    open_page(browser, served)
    examples = texts(browser, "#examples button")
    assert len(examples) == 6
    browser.press("Tab")
    browser.press("Enter")
    translator = Translator.load(workspace.run, device="cpu", threads=1, beam_size=5)
    browser.wait_for(target_is(translator.translate(examples[:1])[0]))
    assert browser.value("document.getElementById('source').value") == examples[0]
    assert browser.value("document.activeElement.id") == "source"
    assert browser.value("getComputedStyle(document.getElementById('examples')).display") == "none"


def test_text_is_never_markup(served: Served, browser: Browser) -> None:
    open_page(browser, served)
    browser.type(HOSTILE)
    browser.wait_for("document.querySelectorAll('#words-target button').length > 0")
    assert browser.value("document.images.length") == 0
    assert browser.value("document.scripts.length") == 1
    assert browser.value("document.title") == "German to English"
    assert not browser.console


@pytest.mark.parametrize("width", [1280, 320])
@pytest.mark.parametrize("is_dark", [False, True])
def test_it_fits_and_can_be_read(
    served: Served, browser: Browser, width: int, is_dark: bool
) -> None:
    open_page(browser, served, width=width, is_dark=is_dark)
    browser.type("Donau" * 40)
    browser.wait_for("document.querySelectorAll('#words-target button').length > 0")
    browser.value("document.querySelector('#words-target button').click()")
    assert not browser.value(IS_TOO_WIDE)
    for selector in ("#source", "#target", "#count", "#model", "li", "button[aria-pressed=true]"):
        assert contrast(browser, selector) >= 4.5, selector


def test_a_server_that_is_gone_is_told(workspace: Workspace, browser: Browser) -> None:
    with serving(workspace) as server:
        open_page(browser, server)
    browser.type("Ein Hund")
    browser.wait_for("document.querySelector('#status.error') !== null")
    assert browser.value("document.getElementById('source').value") == "Ein Hund"
