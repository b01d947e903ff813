"""What docs/ has from the code: as scripts/write_docs would write it now, and complete."""

import subprocess
from pathlib import Path

import pytest
from generated_docs.file_map import FOLDERS
from generated_docs.write import pages
from pages import LINK, ROOT, name_of, read
from records.page import PAGE
from records.training_changes import TRAINING_CHANGES, TrainingChange, full_commit, is_shallow

GENERATED = pages()
DESIGN = ROOT / "docs" / "design.md"
RESULTS = ROOT / PAGE


@pytest.mark.parametrize("page", GENERATED, ids=name_of)
def test_page_is_what_the_code_makes_of_it(page: Path) -> None:
    if page == RESULTS and is_shallow(ROOT):
        pytest.skip("a history that is cut off does not tell which rows older code has trained")
    assert read(page) == GENERATED[page], "out of date; run scripts/write_docs"


def test_file_map_names_every_file_and_no_other() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *FOLDERS],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    there = {name for name in listed.stdout.splitlines() if (ROOT / name).is_file()}
    files = {name for name in there if Path(name).name != "__init__.py"}
    targets = {match["target"].removeprefix("../") for match in LINK.finditer(read(DESIGN))}
    named = {target for target in targets if target.startswith(tuple(f"{folder}/" for folder in FOLDERS))}
    assert sorted(files - named) == [], "missing; run scripts/write_docs"
    assert sorted(named - there) == [], "gone; run scripts/write_docs"


@pytest.mark.skipif(is_shallow(ROOT), reason="the history is cut off")
@pytest.mark.parametrize("change", TRAINING_CHANGES, ids=lambda change: change.commit[:9])
def test_change_of_training_is_in_the_history(change: TrainingChange) -> None:
    assert full_commit(change.commit, ROOT) == change.commit
