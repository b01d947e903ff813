"""The `export` command, and what other commands make of an exported model."""

import json
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from workspace import Outcome, Workspace

from mt_cli.export.ctranslate2_model import write_model
from mt_cli.text import SPECIALS

RUN = "runs/tiny"


def export(workspace: Workspace, folder: Path, *args: object) -> Outcome:
    return workspace.call("export", RUN, "--to", "ctranslate2", folder, *args)


def test_script_in_the_folder_translates_as_the_run_does(
    workspace: Workspace, exported: Path
) -> None:
    readme = exported.joinpath("README.md").read_text()
    script = readme.partition("```python\n")[2].partition("```\n")[0]
    known = workspace.corpus("train.de").read_bytes().splitlines()[1:]
    source = b"\n".join([*known, b"", known[0]])
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, input=source, cwd=exported, capture_output=True, check=True)
    ours = workspace.call("translate", RUN, stdin=source).lines
    *theirs, rest = done.stdout.decode().split("\n")
    assert (theirs, rest) == (ours, "")


def test_int8_is_smaller_and_still_translates(
    workspace: Workspace, exported: Path, tmp_path: Path
) -> None:
    outcome = export(workspace, tmp_path / "int8", "--quantization", "int8", "--json")
    document = json.loads(outcome.out)
    assert document["quantization"] == "int8"
    assert document["proof"]["n"] == 20
    assert document["proof"]["identical"] > 10
    sizes = [(folder / "model.bin").stat().st_size for folder in (tmp_path / "int8", exported)]
    assert sizes[0] < sizes[1] / 2


def test_model_that_says_something_else_exits_6_after_the_proof(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = partial(write_model, ruled_out=range(len(SPECIALS), 400))
    monkeypatch.setattr("mt_cli.export.ctranslate2_model.write_model", wrong)
    outcome = export(workspace, tmp_path / "out")
    assert outcome.code == 6
    assert outcome.lines[-1].startswith("val  identical  0 of 20 ")


def test_overwrite_replaces_an_exported_model_whole(workspace: Workspace, tmp_path: Path) -> None:
    export(workspace, tmp_path / "out")
    tmp_path.joinpath("out", "stale.txt").touch()
    assert export(workspace, tmp_path / "out").code == 2
    assert export(workspace, tmp_path / "out", "--overwrite").code == 0
    assert not tmp_path.joinpath("out", "stale.txt").exists()
    assert [path.name for path in tmp_path.glob("[!.]*")] == ["out"]


def test_missing_package_exits_5_with_the_command_that_installs_it(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    outcome = export(workspace, tmp_path / "out")
    assert (outcome.code, outcome.out) == (5, b"")
    assert "mt_cli[export]" in outcome.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("args", "named"),
    [
        ("runs/tiny out", "--to"),
        ("runs/tiny out --to onnx", "'onnx'"),
        ("runs/tiny out --to ctranslate2 --quantization int3", "'int3'"),
        ("runs/tiny out --to ctranslate2 --checkpoint step-1", "'step-1'"),
    ],
)
def test_wrong_use_is_named_and_exits_2(workspace: Workspace, args: str, named: str) -> None:
    outcome = workspace.call("export", *args.split())
    assert (outcome.code, outcome.out) == (2, b"")
    assert named in outcome.err
    assert not workspace.folder.joinpath("out").exists()


# Other commands


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("inspect EXPORTED --shapes --text Hund", "can only translate"),
        ("train tiny.toml --run new --init-from EXPORTED", "can only translate"),
        ("export EXPORTED --to ctranslate2 new", "can only translate"),
        ("translate EXPORTED runs/tiny --text Hund", "ensemble"),
        ("translate EXPORTED --text Hund --backend torch", "--backend"),
        ("evaluate EXPORTED --checkpoint last", "--checkpoint"),
    ],
)
def test_what_an_exported_model_cannot_do_exits_2_with_a_sentence(
    workspace: Workspace, exported: Path, command: str, named: str
) -> None:
    args = [exported if word == "EXPORTED" else word for word in command.split()]
    outcome = workspace.call(*args)
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, b"", 1)
    assert named in outcome.err
    assert not any(workspace.folder.glob("new*"))


def test_pairs_are_scored_as_the_run_scores_them(workspace: Workspace, exported: Path) -> None:
    files = ("--src", "corpus/test.de", "--tgt", "corpus/test.en", "--quiet")
    scores = []
    for folder in (exported, workspace.run):
        lines = workspace.call("score", folder, *files).text.splitlines()
        scores.append([float(line) for line in lines])
    assert scores[0] == pytest.approx(scores[1], abs=2e-3)


def test_evaluation_is_that_of_the_run_and_kept_in_the_folder(
    workspace: Workspace, tmp_path: Path
) -> None:
    folders = [workspace.copy_run(tmp_path / "run"), tmp_path / "exported"]
    export(workspace, folders[1])
    known = ("--split", "val", "--quiet")
    texts = [workspace.call("evaluate", folder, *known).text for folder in folders]
    scores = [re.findall(r"BLEU (\d+\.\d\d)  nrefs:1", text) for text in texts]
    assert scores[0] == scores[1] != []
    hyps = [(folder / "eval/val-greedy/hyp.txt").read_bytes() for folder in folders]
    assert hyps[0] == hyps[1]
