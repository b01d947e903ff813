"""The `export` command: what it prints, what it leaves behind, and what it refuses."""

import errno
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from workspace import Outcome, Workspace

from mt_cli.stages.export import conversion
from mt_cli.stages.export import export as stage
from mt_cli.text.symbols import SPECIALS

RUN = "runs/tiny"
SIGNATURE = r"nrefs:1\|case:mixed\|eff:no\|tok:13a\|smooth:exp\|version:[\d.]+"
MEASURED = rf"BLEU \d+\.\d\d  {SIGNATURE}  \d+ sentences/s"


def export(workspace: Workspace, folder: Path, *args: object, run: object = RUN) -> Outcome:
    return workspace.call("export", run, "--to", "ctranslate2", folder, *args)


def files_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_folder_and_proof_are_printed(workspace: Workspace, tmp_path: Path) -> None:
    outcome = export(workspace, tmp_path / "out")
    assert outcome.code == 0, outcome.err
    place, ours, theirs, identical = outcome.lines
    assert place == str(tmp_path / "out")
    assert re.fullmatch(f"val  mt_cli       {MEASURED}", ours)
    assert re.fullmatch(f"val  ctranslate2  {MEASURED}  float32", theirs)
    assert identical == "val  identical    20 of 20 lines, 100.0%"
    assert "translating val with both  sentences 20  device cpu  threads 1" in outcome.err


def test_folder_holds_model_tokenizer_and_readme(workspace: Workspace, tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "out"
    outcome = export(workspace, folder)
    own = [
        "README.md",
        "config.json",
        "config.toml",
        "manifest.json",
        "model.bin",
        "shared_vocabulary.json",
    ]
    assert files_below(folder.parent) == [
        *(f"out/{name}" for name in own),
        "out/tokenizer/joint.model",
        "out/tokenizer/tokenizer.json",
    ]
    assert "\n".join(outcome.lines[1:]) in folder.joinpath("README.md").read_text()


def test_script_in_the_folder_translates_as_the_run_does(workspace: Workspace, tmp_path: Path) -> None:
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


def test_rules_of_the_runs_own_search_do_not_refute_the_proof(workspace: Workspace, tmp_path: Path) -> None:
    """They are not in the weights: an export searches without them, and so does the proof."""
    rules = ("beam_size=3", "min_len=20", "no_repeat_ngram=1", "length_penalty=2")
    settings = [word for rule in rules for word in ("--set", f"decoding.{rule}")]
    trained = workspace.call(
        "train", "tiny.toml", "--run", tmp_path / "run", "--max-steps", 40, "--quiet", *settings
    )
    assert trained.code == 0
    outcome = workspace.call("export", tmp_path / "run", "--to", "ctranslate2", tmp_path / "out", "--quiet")
    assert outcome.code == 0, outcome.err


def test_json_is_one_document(workspace: Workspace, tmp_path: Path) -> None:
    outcome = export(workspace, tmp_path / "out", "--json", "--quiet", "--checkpoint", "last")
    document = json.loads(outcome.out)
    assert outcome.code == 0
    assert re.fullmatch("warning: a line of \\d+ tokens, .*\n", outcome.err)
    assert list(document) == ["folder", "checkpoint", "quantization", "proof"]
    assert document["folder"] == str(tmp_path / "out")
    assert document["checkpoint"] == workspace.run.joinpath("last.txt").read_text().strip()
    assert document["quantization"] == "none"
    proof = document["proof"]
    assert (proof["split"], proof["n"], proof["identical"]) == ("val", 20, 20)
    assert list(proof["mt_cli"]) == ["bleu", "sentences_per_s"]
    assert list(proof["ctranslate2"]) == ["bleu", "sentences_per_s", "compute_type"]
    assert proof["mt_cli"]["sentences_per_s"] > 0
    assert proof["ctranslate2"]["bleu"] == proof["mt_cli"]["bleu"]


def test_score_of_the_proof_is_that_of_evaluate(workspace: Workspace, tmp_path: Path) -> None:
    proof = json.loads(export(workspace, tmp_path / "out", "--json").out)["proof"]
    run = workspace.copy_run(tmp_path / "run")
    scores = json.loads(workspace.call("evaluate", run, "--split", "val", "--json").out)
    assert proof["mt_cli"]["bleu"].items() <= scores["splits"]["val"]["bleu"].items()


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


# The prepared data


def test_data_that_are_not_at_hand_cost_the_proof_only(workspace: Workspace, tmp_path: Path) -> None:
    outcome = workspace.call(
        "export", workspace.run, "--to", "ctranslate2", "out", "--json", "--quiet", cwd=tmp_path
    )
    document = json.loads(outcome.out)
    assert (outcome.code, document["folder"], document["proof"]) == (0, "out", None)
    assert outcome.err.startswith("warning: no proof that both translate alike: data/prepared/tiny: ")
    assert outcome.err.endswith("say where with --data DIR\n")
    assert "Greedy" not in tmp_path.joinpath("out", "README.md").read_text()


def test_data_that_have_moved_are_found_by_a_flag(workspace: Workspace, tmp_path: Path) -> None:
    shutil.copytree(workspace.prepared, tmp_path / "moved")
    outcome = workspace.call(
        "export", workspace.run, "--to", "ctranslate2", "out", "--data", "moved", cwd=tmp_path
    )
    assert (outcome.code, outcome.lines[-1]) == (0, "val  identical    20 of 20 lines, 100.0%")


def test_flag_that_names_other_data_exits_3(workspace: Workspace, tmp_path: Path) -> None:
    outcome = export(workspace, tmp_path / "out", "--data", "corpus")
    assert (outcome.code, outcome.out) == (3, b"")
    assert outcome.err.startswith("error: corpus: no prepared data")
    assert files_below(tmp_path) == []


# The folder


@pytest.fixture
def full(tmp_path: Path) -> Path:
    """A folder with a model of someone else's in it."""
    tmp_path.joinpath("full").mkdir()
    tmp_path.joinpath("full", "config.json").touch()
    tmp_path.joinpath("full", "model.bin").touch()
    return tmp_path / "full"


def test_folder_with_something_in_it_is_refused(workspace: Workspace, full: Path) -> None:
    outcome = export(workspace, full)
    message = f"error: {full} exists; --overwrite replaces an exported model, or name another folder\n"
    assert outcome == Outcome(2, b"", message)


def test_overwrite_leaves_alone_what_is_no_exported_model(workspace: Workspace, full: Path) -> None:
    outcome = export(workspace, full, "--overwrite")
    message = f"error: {full} is not an exported model, so --overwrite leaves it alone; name another\n"
    assert outcome == Outcome(2, b"", message)
    assert files_below(full) == ["config.json", "model.bin"]


def test_overwrite_replaces_an_exported_model_whole(workspace: Workspace, tmp_path: Path) -> None:
    export(workspace, tmp_path / "out")
    tmp_path.joinpath("out", "stale.txt").touch()
    assert export(workspace, tmp_path / "out", "--overwrite").code == 0
    assert "stale.txt" not in files_below(tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_empty_folder_is_taken(workspace: Workspace, tmp_path: Path) -> None:
    tmp_path.joinpath("out").mkdir()
    assert export(workspace, tmp_path / "out").code == 0


def test_file_in_the_place_is_refused(workspace: Workspace, full: Path) -> None:
    outcome = export(workspace, full / "model.bin", "--overwrite")
    assert outcome.code == 2
    assert "is not an exported model" in outcome.err


def test_full_disk_leaves_nothing_and_what_was_there(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export(workspace, tmp_path / "out")
    before = files_below(tmp_path)

    def fail(*args: object, **named: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(stage, "readme_of", fail)
    outcome = export(workspace, tmp_path / "out", "--overwrite")
    assert (outcome.code, outcome.out) == (5, b"")
    assert f"error: {tmp_path}/out: cannot be written: no space left on the disk" in outcome.err
    assert files_below(tmp_path) == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


# What it needs


def test_missing_package_exits_5_with_the_command_that_installs_it(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    outcome = export(workspace, tmp_path / "out")
    assert (outcome.code, outcome.out) == (5, b"")
    assert outcome.err.startswith("error: export needs the package ctranslate2, which cannot be imported")
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
def test_wrong_use_is_named_and_exits_2(workspace: Workspace, args: tuple[str, ...], message: str) -> None:
    outcome = workspace.call("export", *args)
    assert (outcome.code, outcome.out) == (2, b"")
    assert message in outcome.err
    assert not workspace.folder.joinpath("out").exists()


def test_help_imports_neither_torch_nor_ctranslate2() -> None:
    code = (
        "import sys; from mt_cli.cli import main; sys.argv = ['mt-cli', 'export', '--help']\n"
        "try: main()\n"
        "except SystemExit as end: sys.exit(end.code or bool({'torch', 'ctranslate2'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=False)
    assert done.returncode == 0
    assert b"--quantization" in done.stdout
