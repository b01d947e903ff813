"""The `plot` command: curves as pictures that other programs can read."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from PIL import Image
from workspace import Outcome, Workspace

from mt_cli.stages.curves import Curves, Point
from mt_cli.stages.plot import COLOURS, compose, labels_of

SVG = "{http://www.w3.org/2000/svg}"
SIGNATURE = "nrefs:1|case:mixed"
TRAIN = (Point(10, 4.0), Point(20, 3.0))
RUN = Curves(
    name="a", train_loss=TRAIN, train_nll=TRAIN, lr=(Point(10, 1e-3), Point(20, 5e-4)),
    val_nll=(Point(15, 3.5),), bleu=(Point(15, 20.0),), bleu_signatures=(SIGNATURE,),
)  # fmt: skip


def texts_in(path: Path) -> list[str]:
    """Every piece of text in an SVG."""
    return ["".join(element.itertext()) for element in ET.parse(path).getroot().iter(f"{SVG}text")]


def test_figure_draws_every_curve_against_the_step() -> None:
    loss, bleu, rate = compose([RUN], labels=["a"]).axes
    drawn = [
        [(list(line.get_xdata()), list(line.get_ydata())) for line in axes.get_lines()]  # type: ignore[arg-type]
        for axes in (loss, bleu, rate)
    ]
    assert drawn == [
        [([10, 20], [4.0, 3.0]), ([15], [3.5])],
        [([15], [20.0])],
        [([10, 20], [1e-3, 5e-4])],
    ]


def test_runs_have_colours_and_a_legend_of_their_own() -> None:
    figure = compose([RUN, RUN], labels=["_one", "$two$"])
    (legend,) = figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert names == ["_one, train", "_one, val", "$two$, train", "$two$, val"]
    colours = [line.get_color() for line in figure.axes[0].get_lines()]
    assert colours == [COLOURS[0], COLOURS[0], COLOURS[1], COLOURS[1]]


def test_bleu_stands_beside_each_signature_there_is() -> None:
    other = Curves(**{**vars(RUN), "bleu_signatures": ("nrefs:1|case:lc",)})
    assert compose([RUN, RUN], labels=["a", "b"]).axes[1].get_title() == f"val BLEU {SIGNATURE}"
    assert compose([RUN, other], labels=["a", "b"]).axes[1].get_title().count("val BLEU") == 2


def test_run_that_was_never_validated_is_drawn() -> None:
    fresh = Curves(**{**vars(RUN), "val_nll": (), "bleu": (), "bleu_signatures": ()})
    assert compose([fresh], labels=["a"]).axes[1].get_title() == "no validation yet"


def test_folders_of_one_name_are_told_apart_by_their_paths() -> None:
    assert labels_of([Path("x/a"), Path("y/a/"), Path("y/b")]) == ["x/a", "y/a", "b"]


# The command


def plot(workspace: Workspace, *args: object) -> Outcome:
    return workspace.call("plot", *args)


def test_svg_shows_both_runs_and_is_named_on_stdout(workspace: Workspace, tmp_path: Path) -> None:
    other, picture = workspace.copy_run(tmp_path / "other"), tmp_path / "new" / "curves.svg"
    assert plot(workspace, "runs/tiny", other, "-o", picture) == Outcome(0, f"{picture}\n".encode(), "")
    texts = texts_in(picture)
    assert {"tiny, val", "other, train", "BLEU", "learning rate", "step"} < set(texts)
    assert sum("nrefs:1|case:mixed|eff:no|tok:13a" in text for text in texts) == 1


def test_png_replaces_an_older_one(workspace: Workspace, tmp_path: Path) -> None:
    picture = tmp_path / "curves.PNG"
    picture.write_text("old")
    assert plot(workspace, "runs/tiny", "-o", picture).code == 0
    with Image.open(picture) as image:
        image.load()
        assert image.format == "PNG"
        assert min(image.size) > 500


def test_json_holds_the_points(workspace: Workspace, tmp_path: Path) -> None:
    outcome = plot(workspace, "runs/tiny", "-o", tmp_path / "a.svg", "--json")
    document = json.loads(outcome.out)
    lines = [json.loads(line) for line in workspace.run.joinpath("metrics.jsonl").read_text().splitlines()]
    assert document["picture"] == str(tmp_path / "a.svg")
    (run,) = document["runs"]
    assert run["bleu"] == [[line["step"], line["bleu"]] for line in lines if line["kind"] == "validation"]
    assert run["train_nll"] == [[line["step"], line["nll"]] for line in lines if line["kind"] == "step"]


@pytest.mark.parametrize("name", ["curves.pdf", "curves", "-"])
def test_other_endings_are_refused_before_any_run_is_read(workspace: Workspace, name: str) -> None:
    outcome = plot(workspace, "runs/none", "-o", name)
    message = f"error: {name}: the file's ending says how to draw; use .png, .svg\n"
    assert outcome == Outcome(2, b"", message)


def test_folder_that_is_no_run_exits_2(workspace: Workspace, tmp_path: Path) -> None:
    outcome = plot(workspace, tmp_path, "-o", tmp_path / "a.png")
    assert (outcome.code, outcome.out) == (2, b"")
    assert "no run folder" in outcome.err


def test_damaged_metrics_exit_3_and_leave_the_older_picture(workspace: Workspace, tmp_path: Path) -> None:
    run, picture = workspace.copy_run(tmp_path / "run"), tmp_path / "a.svg"
    picture.write_text("old")
    with run.joinpath("metrics.jsonl").open("ab") as file:
        file.write(b"\x00\n")
    outcome = plot(workspace, "runs/tiny", run, "-o", picture)
    assert (outcome.code, outcome.out, picture.read_text()) == (3, b"", "old")
    assert outcome.err.startswith(f"error: {run}/metrics.jsonl: line ")
    assert outcome.err.endswith("; delete this line; the others are still good\n")
