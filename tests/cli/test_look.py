"""The `plot` command: curves as pictures that other programs can read."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from workspace import Outcome, Workspace

TEXT = "{http://www.w3.org/2000/svg}text"


NOTEBOOK = {"MPLBACKEND": "module://matplotlib_inline.backend_inline"}
"""What a notebook sets for all programs that it starts."""


def test_svg_shows_both_runs_and_is_named_on_stdout(workspace: Workspace, tmp_path: Path) -> None:
    other = workspace.copy_run(tmp_path / "other")
    picture = tmp_path / "new" / "curves.svg"
    outcome = workspace.execute("plot", "runs/tiny", other, "-o", picture, env=NOTEBOOK)
    assert outcome == Outcome(0, f"{picture}\n".encode(), "")
    texts = ["".join(element.itertext()) for element in ET.parse(picture).iter(TEXT)]
    assert {"tiny, val", "other, train", "BLEU", "learning rate", "step"} < set(texts)
    assert sum("nrefs:1|case:mixed|eff:no|tok:13a" in text for text in texts) == 1


def test_json_holds_the_points(workspace: Workspace, tmp_path: Path) -> None:
    picture = tmp_path / "a.svg"
    document = json.loads(workspace.call("plot", "runs/tiny", "-o", picture, "--json").out)
    metrics = workspace.run.joinpath("metrics.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in metrics]
    steps = [record for record in records if record["kind"] == "step"]
    validations = [record for record in records if record["kind"] == "validation"]
    assert document["picture"] == str(picture)
    (run,) = document["runs"]
    assert run["bleu"] == [[record["step"], record["bleu"]] for record in validations]
    assert run["train_nll"] == [[record["step"], record["nll"]] for record in steps]


@pytest.mark.parametrize("name", ["curves.pdf", "curves", "-"])
def test_other_endings_are_refused_before_any_run_is_read(workspace: Workspace, name: str) -> None:
    outcome = workspace.call("plot", "runs/none", "-o", name)
    assert (outcome.code, outcome.out) == (2, b"")
    assert outcome.err.startswith(f"error: {name}: ")
