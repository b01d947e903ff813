"""Programs that docs/python.md shows print what it says."""

import doctest
import re
import shutil
from pathlib import Path

import pytest
from pages import ROOT, blocks_in, read
from workspace import Workspace

NUMBER = re.compile(r"-?\d+(\.\d+)?")


class AnyNumber(doctest.OutputChecker):
    """Takes output with other numbers, as another training prints them."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        return super().check_output(NUMBER.sub("#", want), NUMBER.sub("#", got), optionflags)


@pytest.fixture
def sample_run(workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tiny run under the name that the pages use, in the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    return workspace.copy_run(tmp_path / "runs" / "sample")


@pytest.mark.usefixtures("sample_run")
def test_examples_in_python_print_what_the_page_shows(workspace: Workspace) -> None:
    shutil.copy(workspace.corpus("val.de"), "german.txt")
    shutil.copy(workspace.corpus("val.en"), "english.txt")
    blocks = blocks_in(read(ROOT / "docs" / "python.md"), "python")
    assert [block for block in blocks if ">>> " not in block] == []
    examples = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, "python.md", None, 0)
    reports: list[str] = []
    doctest.DocTestRunner(checker=AnyNumber(), verbose=False).run(examples, out=reports.append)
    assert "\n".join(reports) == ""
    assert len(examples.examples) > 8
