"""Links of README.md and docs/, and those of the help pages: each leads to a file, and to a heading in it."""

from pathlib import Path

import pytest
from pages import DOCS, PAGES, README, ROOT, anchors_in, links_in, name_of, pictures_in, read

from mt_cli.commands.help_pages import PAGES as HELP_PAGES


def is_there(target: str, *, page: Path) -> bool:
    """Whether a link from `page` to `target` leads anywhere."""
    name, _, anchor = target.partition("#")
    path = page.parent / name if name else page
    return path.exists() and (not anchor or anchor in anchors_in(read(path)))


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=name_of)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    assert [target for target in links_in(read(page)) if not is_there(target, page=page)] == []


@pytest.mark.parametrize("verb", HELP_PAGES)
def test_help_page_names_a_page_and_a_heading_that_exist(verb: str) -> None:
    assert is_there(HELP_PAGES[verb].docs, page=README)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_headings_of_a_page_differ(page: Path) -> None:
    anchors = anchors_in(read(page))
    assert len(set(anchors)) == len(anchors)


def test_readme_leads_to_every_page() -> None:
    assert sorted({name_of(page) for page in DOCS} - set(links_in(read(README)))) == []


def test_every_picture_is_shown() -> None:
    shown = {(page.parent / target).resolve() for page in PAGES for target in pictures_in(read(page))}
    assert sorted(set((ROOT / "docs" / "images").iterdir()) - shown) == []


# The checks themselves


def test_links_are_found_outside_code_only() -> None:
    text = "[a](docs/a.md#x) ![b](b.png) [c](https://x.org) [d](#d) `[e](e)`\n\n```\n[f](f)\n```\n"
    assert links_in(text) == ["docs/a.md#x", "b.png", "#d"]
    assert pictures_in(text) == ["b.png"]


def test_headings_are_spelt_as_git_hosts_spell_them() -> None:
    text = "# Is `a.py` sound? (2026-11)\n\n## [data]\n\n```\n# no heading\n```\n"
    assert anchors_in(text) == ["is-apy-sound-2026-11", "data"]


@pytest.mark.parametrize("target", ["docs/nowhere.md", "docs/commands.md#nowhere", "#nowhere"])
def test_planted_dead_link_is_caught(target: str) -> None:
    assert not is_there(target, page=README)


def test_link_to_a_heading_is_found() -> None:
    assert is_there("docs/commands.md#translate", page=README)
