"""docs/python.md against the real thing: each example runs, and prints what the page shows."""

import doctest
import re
import shutil
from pathlib import Path

import pytest
from workspace import Workspace

PAGE = Path(__file__).resolve().parents[2] / "docs" / "python.md"
BLOCK = re.compile(r"^```python\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"-?\d+(\.\d+)?")


class AnyNumber(doctest.OutputChecker):
    """Takes output whose numbers are others, as those of another training are."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        """Whether `got` is what the page shows, but for the numbers."""
        return super().check_output(NUMBER.sub("#", want), NUMBER.sub("#", got), optionflags)


def blocks_of(text: str) -> list[str]:
    return [match["body"] for match in BLOCK.finditer(text)]


def failures_in(blocks: list[str]) -> list[str]:
    """Run `blocks`, which share their names; one report for each example that prints something
    else.
    """
    reports: list[str] = []
    examples = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, PAGE.name, None, 0)
    runner = doctest.DocTestRunner(checker=AnyNumber(), verbose=False)
    runner.run(examples, out=reports.append)
    return reports


@pytest.fixture
def sample_run(workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder to work in, with the tiny run under the name that the page uses."""
    (tmp_path / "runs").mkdir()
    workspace.copy_run(tmp_path / "runs" / "sample")
    for name, split in (("german.txt", "val.de"), ("english.txt", "val.en")):
        shutil.copy(workspace.corpus(split), tmp_path / name)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("sample_run")
def test_examples_print_what_the_page_shows() -> None:
    blocks = blocks_of(PAGE.read_text(encoding="utf-8"))
    assert len(blocks) >= 8
    assert [block for block in blocks if ">>> " not in block] == []
    assert "\n".join(failures_in(blocks)) == ""
    assert Path("attention.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("block", [">>> 'dog'\n'cat'\n", ">>> 1 / 0\n", ">>> int('x')\n0\n"])
def test_planted_wrong_example_is_caught(block: str) -> None:
    assert failures_in([block])
