"""The `export` command: what it prints, what it leaves behind, and what it refuses."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from workspace import Outcome, Workspace

from mt_cli.evaluation import export as conversion
from mt_cli.text import SPECIALS

RUN = "runs/tiny"
SIGNATURE = r"nrefs:1\|case:mixed\|eff:no\|tok:13a\|smooth:exp\|version:[\d.]+"
MEASURED = rf"BLEU \d+\.\d\d  {SIGNATURE}  \d+ sentences/s"


def export(workspace: Workspace, folder: Path, *args: object, run: object = RUN) -> Outcome:
    return workspace.call("export", run, "--to", "ctranslate2", folder, *args)


def files_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_script_in_the_folder_translates_as_the_run_does(
    workspace: Workspace, tmp_path: Path
) -> None:
    export(workspace, tmp_path / "out")
    readme = tmp_path.joinpath("out", "README.md").read_text()
    script = readme.partition("```python\n")[2].partition("```\n")[0]
    lines = workspace.corpus("test.de").read_bytes().split(b"\n")
    source = b"\n".join([*(line for line in lines if len(line) < 60), b"", b"Ein Hund"])
    done = subprocess.run(
        [sys.executable, "-c", script],
        input=source,
        cwd=tmp_path / "out",
        capture_output=True,
        timeout=60,
        check=True,
    )
    ours = workspace.call("translate", RUN, stdin=source).lines
    *theirs, rest = done.stdout.decode().split("\n")
    # Those that find no end are cut later: the script has one limit for all lines, the model's.
    assert [b[: len(a)] for a, b in zip(ours, theirs, strict=True)] == ours
    assert rest == ""


def test_int8_is_smaller_and_still_translates(workspace: Workspace, tmp_path: Path) -> None:
    export(workspace, tmp_path / "float32")
    outcome = export(workspace, tmp_path / "int8", "--quantization", "int8", "--json")
    document = json.loads(outcome.out)
    assert document["quantization"] == "int8"
    assert document["proof"]["ctranslate2"]["compute_type"] == "int8_float32"
    ours, theirs = (document["proof"][name]["bleu"]["score"] for name in ("mt_cli", "ctranslate2"))
    assert theirs > ours / 2
    sizes = [tmp_path.joinpath(name, "model.bin").stat().st_size for name in ("int8", "float32")]
    assert sizes[0] < sizes[1] / 2


def test_model_that_says_something_else_exits_6_after_the_proof(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversion, "NEVER_SAID", range(len(SPECIALS), 400))
    outcome = export(workspace, tmp_path / "out")
    assert outcome.code == 6
    assert outcome.lines[-1] == "val  identical    0 of 20 lines, 0.0%"
    assert "error: " in outcome.err
    assert "the weights are not quantised" in outcome.err


def test_overwrite_replaces_an_exported_model_whole(workspace: Workspace, tmp_path: Path) -> None:
    export(workspace, tmp_path / "out")
    tmp_path.joinpath("out", "stale.txt").touch()
    assert export(workspace, tmp_path / "out", "--overwrite").code == 0
    assert "stale.txt" not in files_below(tmp_path / "out")
    assert [path.name for path in tmp_path.glob("[!.]*")] == ["out"]


def test_missing_package_exits_5_with_the_command_that_installs_it(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    outcome = export(workspace, tmp_path / "out")
    assert (outcome.code, outcome.out) == (5, b"")
    assert outcome.err.startswith(
        "error: export needs the package ctranslate2, which cannot be imported"
    )
    assert outcome.err.endswith("run: pip install 'mt_cli[export]'\n")
    assert files_below(tmp_path) == []


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((RUN, "out"), "--to"),
        ((RUN, "--to", "onnx", "out"), "'onnx'"),
        ((RUN, "--to", "ctranslate2"), "DIR"),
        ((RUN, "--to", "ctranslate2", "out", "--quantization", "int3"), "'int3'"),
        (("runs/tinny", "--to", "ctranslate2", "out"), "runs/tinny: no such run folder"),
        ((RUN, "--to", "ctranslate2", "out", "--checkpoint", "step-1"), "no checkpoint 'step-1'"),
    ],
    ids=["no format", "format", "no folder", "quantization", "run", "checkpoint"],
)
def test_wrong_use_is_named_and_exits_2(
    workspace: Workspace, args: tuple[str, ...], message: str
) -> None:
    outcome = workspace.call("export", *args)
    assert (outcome.code, outcome.out) == (2, b"")
    assert message in outcome.err
    assert not workspace.folder.joinpath("out").exists()
