"""Commands that take long tell how far they are, in lines where stderr is no terminal."""

import re
from pathlib import Path

import pytest
from workspace import Workspace

from mt_cli.machine import progress


@pytest.fixture(autouse=True)
def lines_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LINE_EVERY_S", 0.0)


def arguments(workspace: Workspace, place: Path, verb: str) -> list[str]:
    run = str(workspace.copy_run(place / "run"))
    return {
        "evaluate": ["evaluate", run],
        "translate": ["translate", run, "-i", "corpus/test.de", "-o", str(place / "out.txt")],
        "train": ["train", "tiny.toml", "--run", str(place / "new"), "--max-steps", "1"],
        "export": ["export", run, str(place / "exported"), "--to", "ctranslate2"],
    }[verb]


@pytest.mark.parametrize(
    ("verb", "last"),
    [
        ("evaluate", "translating test  20 of 20 lines  100 %  elapsed "),
        ("translate", "translating  20 of 20 lines  100 %  elapsed "),
        ("train", "validating  20 of 20 lines  100 %  elapsed "),
        ("export", "translating val with ctranslate2  20 of 20 lines  100 %  elapsed "),
    ],
)
def test_command_tells_how_far_it_is(workspace: Workspace, tmp_path: Path, verb: str, last: str) -> None:
    if verb == "export":
        pytest.importorskip("ctranslate2")
    outcome = workspace.call(*arguments(workspace, tmp_path, verb))
    assert (outcome.code, last in outcome.err) == (0, True), outcome.err
    assert re.search(r"(?:2[1-9]|[3-9]\d) of 20 lines", outcome.err) is None, "more lines than there are"


@pytest.mark.parametrize("verb", ["evaluate", "translate", "train"])
def test_quiet_command_tells_nothing(workspace: Workspace, tmp_path: Path, verb: str) -> None:
    outcome = workspace.call(*arguments(workspace, tmp_path, verb), "--quiet")
    assert (outcome.code, re.search(r"\d+ of \d+ lines  ", outcome.err)) == (0, None), outcome.err


def test_stream_of_unknown_length_is_counted(workspace: Workspace) -> None:
    outcome = workspace.call("translate", "runs/tiny", stdin=b"Ein Hund.\n\nEin Mann.\n")
    assert "translating  3 lines  elapsed " in outcome.err
