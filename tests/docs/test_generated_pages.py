"""What docs/ has from the code: as scripts/write_docs would write it now, and complete."""

import subprocess
from pathlib import Path

import pytest
from generated_docs.config_page import config_page
from generated_docs.file_map import FOLDERS, file_map, mapped_files, purpose_of, with_file_map
from generated_docs.write import pages
from pages import LINK, ROOT, name_of, read, tables_in
from records.page import PAGE
from records.training_changes import TRAINING_CHANGES, TrainingChange, full_commit, is_shallow

from mt_cli.config import Config
from mt_cli.config.values import Section

GENERATED = pages()
DESIGN = ROOT / "docs" / "design.md"
RESULTS = ROOT / PAGE


@pytest.mark.parametrize("page", GENERATED, ids=name_of)
def test_page_is_what_the_code_makes_of_it(page: Path) -> None:
    if page == RESULTS and is_shallow(ROOT):
        pytest.skip("a history that is cut off does not tell which rows older code has trained")
    assert read(page) == GENERATED[page], "out of date; run scripts/write_docs"


@pytest.mark.parametrize("name", Config.model_fields)
def test_config_page_has_every_key_below_its_section(name: str) -> None:
    section = Config.model_fields[name].annotation
    assert isinstance(section, type)
    assert issubclass(section, Section)
    keys = [key for key, field in section.model_fields.items() if "dict" not in str(field.annotation)]
    block = config_page().partition(f"\n## [{name}]\n")[2].partition("\n## ")[0]
    assert [row.split("`")[1] for row in tables_in(block)[0]] == keys


@pytest.mark.parametrize(
    "row",
    [
        '| `norm` | `"pre"` or `"post"` | `"pre"` |  | Layer norm before each sublayer (Xiong et al. 2020)'
        " or after its residual (Vaswani et al. 2017). |",
        "| `dropout` | number | `0.1` | at least 0, below 1 | On embeddings and on each sublayer's output. |",
        "| `src` | path | must be given |  | Source text, one sentence a line; plain or .gz. |",
        "| `seed` | whole number | `1` | at least 0, below 2^63 | Seed of everything that is random. |",
        "| `max_steps` | whole number | not set | at least 1, at most 2^40 | Updates, where they should "
        "end training before `max_epochs`. |",
    ],
    ids=lambda row: row.split("`")[1],
)
def test_config_page_says_type_default_limits_and_meaning(row: str) -> None:
    assert row in config_page().splitlines()


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


def test_every_file_says_what_it_is() -> None:
    assert [name for name, purpose in mapped_files(ROOT).items() if not purpose] == []


@pytest.mark.parametrize(
    ("name", "text", "purpose"),
    [
        ("a.py", '"""What it is,\nin two lines.\n\nMore.\n"""\n', "What it is, in two lines."),
        ("a.py", "import os\n", ""),
        ("a", "#!/bin/sh\n# What it does, and\n# why. More.\nset -e\n", "What it does, and why."),
        ("a.css", "/* How it looks. */\nbody { margin: 0 }\n", "How it looks."),
        ("a.html", "<!DOCTYPE html>\n<!-- What it frames. -->\n<html>\n", "What it frames."),
        ("a.js", '// What it adds. More.\n"use strict";\n', "What it adds."),
        ("a.css", "body { margin: 0 }\n", ""),
    ],
)
def test_purpose_is_in_the_first_docstring_or_comment(
    tmp_path: Path, name: str, text: str, purpose: str
) -> None:
    (tmp_path / name).write_text(text)
    assert purpose_of(tmp_path / name) == purpose


def test_map_has_a_table_for_each_folder_with_the_folders_purpose_above() -> None:
    files = {"mt_cli/a.py": "One.", "mt_cli/b/__init__.py": "A folder.", "mt_cli/b/c.py": "Two."}
    head = "| file | what it is |\n| --- | --- |"
    assert file_map(files) == (
        f"### mt_cli/\n\n{head}\n| [`a.py`](../mt_cli/a.py) | One. |\n\n"
        f"### mt_cli/b/\n\nA folder.\n\n{head}\n| [`c.py`](../mt_cli/b/c.py) | Two. |"
    )


def test_map_replaces_what_stood_between_its_marks() -> None:
    page = (
        "# Design\n\n<!-- file map: made by scripts/write_docs -->\nold\n<!-- end of the file map -->\nEnd.\n"
    )
    new = with_file_map(page, {"mt_cli/a.py": "One."})
    assert "old" not in new
    assert new.startswith("# Design\n")
    assert new.endswith("\nEnd.\n")


def test_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="no line '<!-- file map"):
        with_file_map("# Design\n", {})


@pytest.mark.skipif(is_shallow(ROOT), reason="the history is cut off")
@pytest.mark.parametrize("change", TRAINING_CHANGES, ids=lambda change: change.commit[:9])
def test_change_of_training_is_in_the_history(change: TrainingChange) -> None:
    assert full_commit(change.commit, ROOT) == change.commit
