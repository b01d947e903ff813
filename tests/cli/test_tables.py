"""`--format`: the same rows as text, for a page, a paper and a spreadsheet."""

import csv
import io
import json
import re
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest
from damage import change_json, rehash
from workspace import Workspace

from mt_cli.config.load import dump_config, load_config
from mt_cli.machine.locks import locked

SIGNATURE = re.compile(r"nrefs:1\|")


@pytest.fixture
def runs(workspace: Workspace, tmp_path: Path) -> Path:
    """Three trainings that differ in their seed only, and an evaluation of each."""
    folder = tmp_path / "runs"
    for seed in (1, 2, 3):
        run = folder / f"tiny_{seed}"
        workspace.copy_run(run)
        config = load_config(run / "config.toml", [f"runtime.seed={seed}"])
        rehash(run, "config.toml", dump_config(config).encode())
        assert workspace.call("evaluate", run, "--set", f"decoding.beam_size={seed}").code == 0
    return folder


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def summaries(workspace: Workspace, folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(workspace.call("runs", folder, "--json").text)["runs"]
    return found


def test_trainings_that_differ_in_their_seed_share_a_row(workspace: Workspace, runs: Path) -> None:
    each = [summary["bleu"] for summary in summaries(workspace, runs)]
    (row,) = rows_of(workspace.call("runs", runs, "--format", "csv").text)
    assert (row["run"], row["n"]) == ("tiny_{1,2,3}", "3")
    assert float(row["test BLEU"]) == pytest.approx(mean(each))
    assert float(row["test BLEU ±"]) == pytest.approx(stdev(each))
    assert SIGNATURE.match(row["BLEU signature"])
    text = workspace.call("runs", runs)
    assert f"{mean(each):.2f} ±{stdev(each):.2f}" in text.text
    assert max(map(len, text.lines)) <= 80


def test_a_copy_and_an_unfinished_run_have_rows_of_their_own(
    workspace: Workspace, runs: Path
) -> None:
    workspace.copy_run(runs / "copy")
    seed = load_config(runs / "copy" / "config.toml").runtime.seed
    workspace.copy_run(runs / "copy_too")
    change_json(runs / "tiny_3" / "status.json", state="stopped", reason="SIGTERM")
    rows = rows_of(workspace.call("runs", runs, "--format", "csv").text)
    assert seed == 4
    assert [row["run"] for row in rows] == ["{copy,tiny_1,tiny_2}", "copy_too", "tiny_3"]
    (line,) = (line for line in workspace.call("runs", runs).lines if "SIGTERM" in line)
    assert line.startswith("  tiny_3  stopped at step ")


def test_a_running_training_says_how_far_it_is(workspace: Workspace, runs: Path) -> None:
    run = runs / "tiny_1"
    records = [json.loads(line) for line in run.joinpath("metrics.jsonl").read_text().splitlines()]
    last = [record for record in records if record["kind"] == "step"][-1]
    total = 2 * last["step"]
    change_json(run / "status.json", state="running", step=1, total_steps=total)
    with locked(run):
        (line,) = (line for line in workspace.call("runs", runs).lines if "running at" in line)
        found = summaries(workspace, runs)[0]
    assert f"step {last['step']:,} of {total:,}, epoch {last['epoch']}, " in line
    assert found["seconds_left"] == pytest.approx(last["elapsed_s"], rel=0.5)
    assert re.search(r" left, updated \d+ (s|min) ago$", line)


@pytest.mark.parametrize("command", ["runs", "evaluate", "compare", "compare --with"])
def test_every_form_has_the_same_scores(workspace: Workspace, runs: Path, command: str) -> None:
    one, two, three = (runs / f"tiny_{seed}" for seed in (1, 2, 3))
    args: dict[str, list[object]] = {
        "runs": ["runs", runs],
        "evaluate": ["evaluate", one],
        "compare": ["compare", one, two, three],
        "compare --with": ["compare", one, two, "--with", two, three],
    }
    (row, *_) = rows_of(workspace.call(*args[command], "--format", "csv").text)
    latex = workspace.call(*args[command], "--format", "latex")
    markdown = workspace.call(*args[command], "--format", "markdown")
    assert (latex.code, markdown.code) == (0, 0)
    assert {f"{float(value):.2f}" for name, value in row.items() if name in ("BLEU", "chrF2")} <= {
        *re.findall(r"\d+\.\d\d", markdown.text)
    }
    scores = re.findall(r"\d+\.\d\d(?: ±\d+\.\d\d)?\*?(?= )", markdown.text.partition("\n\n")[0])
    assert scores
    for score in scores:
        assert f" {score} " in latex.text
    assert SIGNATURE.search(markdown.text)
    assert re.search(r"^% BLEU: nrefs:1", latex.text, re.MULTILINE)
    assert r"tiny\_" in latex.text or command == "evaluate"


def test_numbers_of_evaluate_are_those_of_its_json(workspace: Workspace, runs: Path) -> None:
    run = runs / "tiny_2"
    (row,) = rows_of(workspace.call("evaluate", run, "--format", "csv").text)
    as_json = workspace.call("evaluate", run, "--format", "json")
    scores = json.loads(as_json.text)["splits"]["test"]
    assert float(row["BLEU"]) == pytest.approx(scores["bleu"]["score"])
    assert float(row["BLEU ±"]) == pytest.approx(scores["bleu"]["confidence_var"])
    assert float(row["TER"]) == pytest.approx(scores["ter"]["score"])
    assert float(row["unk rate"]) == pytest.approx(scores["unk_rate"])


def test_a_score_is_marked_where_the_test_shows_a_difference(
    workspace: Workspace, tmp_path: Path
) -> None:
    refs = workspace.corpus("test.en").read_text().splitlines()
    good, bad = tmp_path / "good.en", tmp_path / "=bad|.en"
    good.write_text("".join(f"{line}\n" for line in refs))
    bad.write_text("".join(f"{line.lower()[::2]}\n" for line in refs))
    args = ("compare", bad, good, "--ref", workspace.corpus("test.en"))
    markdown = workspace.call(*args, "--format", "markdown").text
    first, second = (line for line in markdown.splitlines() if ".en" in line)
    assert ("*" in first, "100.00 ±0.00*" in second) == (False, True)
    rows = rows_of(workspace.call(*args, "--format", "csv").text)
    assert [bool(row["BLEU p"]) for row in rows] == [False, True]
    assert float(rows[1]["BLEU p"]) < 0.05
    assert len(first.replace(r"\|", "").split("|")) == len(second.split("|"))
