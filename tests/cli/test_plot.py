"""The `plot` command: curves as pictures that other programs can read."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from workspace import Outcome, Workspace

SVG = "{http://www.w3.org/2000/svg}"


def texts_in(path: Path) -> list[str]:
    """Every piece of text in an SVG."""
    return ["".join(element.itertext()) for element in ET.parse(path).getroot().iter(f"{SVG}text")]


def plot(workspace: Workspace, *args: object) -> Outcome:
    return workspace.call("plot", *args)


def test_svg_shows_both_runs_and_is_named_on_stdout(workspace: Workspace, tmp_path: Path) -> None:
    other, picture = workspace.copy_run(tmp_path / "other"), tmp_path / "new" / "curves.svg"
    assert plot(workspace, "runs/tiny", other, "-o", picture) == Outcome(
        0, f"{picture}\n".encode(), ""
    )
    texts = texts_in(picture)
    assert {"tiny, val", "other, train", "BLEU", "learning rate", "step"} < set(texts)
    assert sum("nrefs:1|case:mixed|eff:no|tok:13a" in text for text in texts) == 1


def test_json_holds_the_points(workspace: Workspace, tmp_path: Path) -> None:
    outcome = plot(workspace, "runs/tiny", "-o", tmp_path / "a.svg", "--json")
    document = json.loads(outcome.out)
    lines = [
        json.loads(line)
        for line in workspace.run.joinpath("metrics.jsonl").read_text().splitlines()
    ]
    assert document["picture"] == str(tmp_path / "a.svg")
    (run,) = document["runs"]
    assert run["bleu"] == [
        [line["step"], line["bleu"]] for line in lines if line["kind"] == "validation"
    ]
    assert run["train_nll"] == [
        [line["step"], line["nll"]] for line in lines if line["kind"] == "step"
    ]


@pytest.mark.parametrize("name", ["curves.pdf", "curves", "-"])
def test_other_endings_are_refused_before_any_run_is_read(workspace: Workspace, name: str) -> None:
    outcome = plot(workspace, "runs/none", "-o", name)
    message = f"error: {name}: the file's ending says how to draw; use .png, .svg\n"
    assert outcome == Outcome(2, b"", message)
