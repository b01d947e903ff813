"""Links of README.md and docs/, and those of the help pages: each leads to a file, and to a heading
in it.
"""

from pathlib import Path

import pytest
from pages import DOCS, PAGES, README, ROOT, anchors_in, links_in, name_of, read


def is_there(target: str, *, page: Path) -> bool:
    """Whether a link from `page` to `target` leads anywhere."""
    name, _, anchor = target.partition("#")
    path = page.parent / name if name else page
    return path.exists() and (not anchor or anchor in anchors_in(read(path)))


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=name_of)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    assert [target for target in links_in(read(page)) if not is_there(target, page=page)] == []


def test_readme_leads_to_every_page() -> None:
    assert sorted({name_of(page) for page in DOCS} - set(links_in(read(README)))) == []
