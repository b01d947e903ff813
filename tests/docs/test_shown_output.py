"""Output that the pages show of commands that need no model of yours: it is what they print today."""

import re
import shlex
from pathlib import Path

import pytest
import spanish
from pages import DOCS, README, ROOT, Shown, arguments_of, name_of, read, shown_in, simple_commands
from workspace import Workspace

NEW = ("config", "new", "--train", "corpus.es", "corpus.en", "-o", "mine.toml")
FOREIGN = ("runs/", "captions.")
"""What commands name that need a model, or text that does not come with the project."""
READY = "data/models/multi30k-tiny"
"""The model that comes with the project."""


def is_repeatable(shown: Shown) -> bool:
    """Whether a command needs the project alone, and the page shows what it prints."""
    args = arguments_of(simple_commands(shown.line)[0])
    is_config = args is not None and args[:1] == ["config"]
    needs_ready_model = args is not None and args[:1] == ["translate"] and READY in args
    return (
        (is_config or needs_ready_model)
        and any(shown.output)
        and not any(word in shown.line for word in FOREIGN)
    )


REPEATABLE = [
    (name_of(page), shown)
    for page in (README, *DOCS)
    for shown in shown_in(read(page))
    if is_repeatable(shown)
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the project's configs and a corpus."""
    (tmp_path / "data").mkdir()
    for name in ("configs", "data/models"):
        (tmp_path / name).symlink_to(ROOT / name)
    spanish.write(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("page", "shown"), REPEATABLE, ids=lambda case: getattr(case, "line", str(case))
)
def test_command_prints_what_the_page_shows(
    workspace: Workspace, folder: Path, page: str, shown: Shown
) -> None:
    args = shlex.split(shown.line)[1:]
    if "mine.toml" in args and "new" not in args:
        workspace.call(*NEW, cwd=folder)
    outcome = workspace.call(*args, cwd=folder)
    assert outcome.code == 0, outcome.err
    printed = [*outcome.err.splitlines(), *outcome.text.splitlines()]
    # How long training takes differs between machines.
    expected, found = (
        [re.sub(r"about \S+ (s|min|h) here", "about # here", line) for line in lines if line]
        for lines in (shown.output, printed)
    )
    assert found == expected
