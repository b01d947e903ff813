"""The `report` command: its page, against the run's files and the other commands."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from damage import change_json
from workspace import Workspace

HOSTILE = '</dd><script>document.title="broken"</script><img src=http://example.invalid/x>'


class Text(HTMLParser):
    """The text of a page that people see."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.pieces: list[str] = []
        self.feed(page.partition("<body")[2])

    def handle_data(self, data: str) -> None:
        self.pieces.append(data)

    def __str__(self) -> str:
        return " ".join(" ".join(self.pieces).split())


def report(workspace: Workspace, *args: object, page: Path) -> str:
    outcome = workspace.call("report", *args, "-o", page)
    assert (outcome.code, outcome.lines) == (0, [str(page)]), outcome.err
    return page.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def run(workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return workspace.copy_run(tmp_path_factory.mktemp("report") / "one")


@pytest.fixture(scope="module")
def page(workspace: Workspace, run: Path) -> str:
    return report(workspace, run, page=run.parent / "new" / "one.html")


def test_scores_are_those_of_evaluate_with_their_signatures(
    workspace: Workspace, run: Path, page: str
) -> None:
    scores = json.loads(workspace.call("evaluate", run, "--json").out)["splits"]["test"]
    text = str(Text(page))
    for found in (scores["bleu"], scores["chrf"], scores["ter"]):
        assert f"{found['score']:.2f}" in text
        assert found["signature"] in text or found["confidence_signature"] in text


def test_page_loads_nothing_from_elsewhere(page: str) -> None:
    elsewhere = r"""(src|href)\s*=\s*["']?(https?:)?//|url\(\s*["']?(https?:)?//|@import"""
    assert page.lower().startswith("<!doctype html>")
    assert not re.search(elsewhere, page)


def test_hostile_text_stays_text(workspace: Workspace, tmp_path: Path) -> None:
    run = workspace.copy_run(tmp_path / "<b>run")
    change_json(run / "env.json", gpu=HOSTILE)
    page = report(workspace, run, "--examples", 1, page=tmp_path / "page.html")
    assert "<img src=http" not in page
    assert "<b>run" not in page
    assert HOSTILE in str(Text(page))


def test_two_runs_are_compared_as_compare_does(
    workspace: Workspace, run: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    assert (
        workspace.call("train", "tiny.toml", "--run", other, "--max-steps", 30, "--quiet").code == 0
    )
    page = report(workspace, run, other, "--examples", 2, page=tmp_path / "both.html")
    compared = json.loads(workspace.call("compare", run, other, "--json").out)["splits"]["test"]
    _, _, evidence = compared["systems"][0]["verdict"].partition(": ")
    assert "p = " in evidence
    assert evidence in str(Text(page))


@pytest.mark.parametrize(
    "args", [["runs/tiny", "-o", "page.pdf"], ["runs/tiny", "-o", "p.html", "--split", "dev"]]
)
def test_wrong_use_exits_2(workspace: Workspace, args: list[str]) -> None:
    outcome = workspace.call("report", *args)
    assert (outcome.code, outcome.out) == (2, b"")


def test_damaged_metrics_are_told_of(workspace: Workspace, tmp_path: Path) -> None:
    run = workspace.copy_run(tmp_path / "run")
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "train"\n')
    outcome = workspace.call("report", run, "-o", tmp_path / "page.html")
    assert outcome.code == 3
    assert "metrics.jsonl" in outcome.err


def test_a_sentence_that_nothing_looks_at_exits_2(workspace: Workspace) -> None:
    assert workspace.call("inspect", workspace.run, "--text", "Ein Hund.").code == 2
