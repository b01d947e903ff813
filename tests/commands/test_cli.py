"""The surface: what every command has in common, before any work begins."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from workspace import Workspace

from mt_cli import __version__
from mt_cli.commands.train import parse_duration
from mt_cli.errors import UsageError

VERBS = (
    "prepare",
    "train",
    "plot",
    "evaluate",
    "compare",
    "report",
    "translate",
    "score",
    "inspect",
    "doctor",
    "export",
)
"""All but `config`, which has verbs of its own."""
HEAVY = {"torch", "spacy", "sentencepiece", "sacrebleu", "torchtext", "numpy", "matplotlib"}

IMPORTED_BY_HELP = """
import sys
from mt_cli.cli import main
for args in (["--help"], ["--version"], *([verb, "--help"] for verb in {verbs})):
    sys.argv = ["mt-cli", *args]
    try:
        main()
    except SystemExit as end:
        assert not end.code, (args, end.code)
print("imported", *sorted(sys.modules), file=sys.stderr)
"""


def test_help_of_every_verb_imports_nothing_heavy() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED_BY_HELP.format(verbs=VERBS)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    imported = done.stderr.rpartition("imported ")[2].split()
    assert "mt_cli.cli" in imported
    assert sorted(HEAVY.intersection(imported)) == []


@pytest.mark.parametrize("flag", ["-h", "--help"])
@pytest.mark.parametrize("verb", VERBS)
def test_verb_explains_itself(workspace: Workspace, verb: str, flag: str) -> None:
    outcome = workspace.call(verb, flag)
    assert (outcome.code, outcome.err) == (0, "")
    assert f"Usage: mt-cli {verb} [OPTIONS]" in outcome.text
    assert [flag for flag in ("--json", "--quiet", "--verbose", "--help") if flag not in outcome.text] == []


def test_help_lists_every_verb(workspace: Workspace) -> None:
    outcome = workspace.call("--help")
    assert (outcome.code, outcome.err) == (0, "")
    assert [verb for verb in VERBS if f"\n  {verb} " not in outcome.text] == []


def test_no_arguments_show_the_help(workspace: Workspace) -> None:
    outcome = workspace.call()
    assert "Usage: mt-cli [OPTIONS] COMMAND" in outcome.text + outcome.err
    assert "translate" in outcome.text + outcome.err


def test_version_is_that_of_the_package(workspace: Workspace) -> None:
    outcome = workspace.call("--version")
    assert (outcome.code, outcome.lines, outcome.err) == (0, [f"mt-cli {__version__}"], "")


def test_installed_command_is_this_program() -> None:
    command = Path(sys.executable).with_name("mt-cli")
    done = subprocess.run([command, "--version"], capture_output=True, timeout=60, check=True)
    assert done.stdout == f"mt-cli {__version__}\n".encode()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["trian", "tiny.toml"], "trian"),
        (["train"], "CONFIG"),
        (["evaluate"], "RUN"),
        (["translate", "runs/tiny", "--bleu"], "--bleu"),
        (["translate", "runs/tiny", "more"], "more"),
        (["translate", "runs/tiny", "--backend", "jax"], "'jax'"),
        (["translate", "runs/tiny", "--batch-size", "-1"], "--batch-size"),
        (["train", "tiny.toml", "--max-steps", "many"], "--max-steps"),
        (["train", "tiny.toml", "--device", "tpu"], "'tpu'"),
    ],
    ids=" ".join,
)
def test_wrong_use_is_named_and_exits_2(workspace: Workspace, args: list[str], message: str) -> None:
    outcome = workspace.call(*args)
    assert (outcome.code, outcome.out) == (2, b"")
    assert message in outcome.err
    assert "Traceback" not in outcome.err


@pytest.mark.parametrize("verb", ["prepare", "train"])
@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("model.d_modle=64", "model: unknown key 'd_modle'; did you mean 'd_model'?"),
        ("modle.d_model=64", "unknown section 'modle'; did you mean 'model'?"),
        ("model.num_heads=3", "model: num_heads 3 does not divide d_model 64"),
        ("model.d_model=wide", "model.d_model: expected a whole number, found 'wide'"),
        ("model.d_model", "--set 'model.d_model': expected section.key=value"),
    ],
    ids=["key", "section", "heads", "value", "no value"],
)
def test_unusable_config_is_explained_and_exits_2(
    workspace: Workspace, verb: str, setting: str, message: str
) -> None:
    outcome = workspace.call(verb, "tiny.toml", "--set", setting)
    assert (outcome.code, outcome.out) == (2, b"")
    assert message in outcome.err


def test_missing_config_exits_2_and_lists_those_there(workspace: Workspace) -> None:
    outcome = workspace.call("train", "tinny.toml")
    assert (outcome.code, outcome.out) == (2, b"")
    assert outcome.err == "error: tinny.toml: no such config file; found there: tiny.toml\n"


@pytest.mark.parametrize("verb", ["evaluate", "translate"])
@pytest.mark.parametrize(
    ("run", "message"),
    [
        ("runs/tinny", "error: runs/tinny: no such run folder; found: runs/tiny\n"),
        ("corpus", "error: corpus: no run folder (it has no manifest.json)"),
        ("tiny.toml", "error: tiny.toml: no such run folder"),
    ],
    ids=["missing", "another folder", "a file"],
)
def test_run_that_is_none_exits_2(workspace: Workspace, verb: str, run: str, message: str) -> None:
    outcome = workspace.call(verb, run)
    assert (outcome.code, outcome.out) == (2, b"")
    assert outcome.err.startswith(message)


@pytest.mark.parametrize("verb", ["evaluate", "translate"])
def test_unknown_checkpoint_exits_2_and_lists_those_there(workspace: Workspace, verb: str) -> None:
    outcome = workspace.call(verb, "runs/tiny", "--checkpoint", "step-1")
    assert (outcome.code, outcome.out) == (2, b"")
    assert "no checkpoint 'step-1'; it has best, last, step-000002" in outcome.err


@pytest.mark.parametrize("verb", ["evaluate", "translate"])
def test_flipped_byte_of_the_weights_exits_3_and_names_the_file(
    workspace: Workspace, verb: str, tmp_path: Path
) -> None:
    run = workspace.copy_run(tmp_path / "run")
    (weights,) = run.glob(f"checkpoints/{run.joinpath('best.txt').read_text().strip()}/model.safetensors")
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    outcome = workspace.call(verb, run)
    assert (outcome.code, outcome.out) == (3, b"")
    assert outcome.err.startswith(f"error: {weights}: altered or damaged: sha256 ")


@pytest.mark.parametrize("name", ["config.toml", "tokenizer/joint.model"])
def test_altered_file_of_the_run_exits_3_and_is_named(
    workspace: Workspace, name: str, tmp_path: Path
) -> None:
    run = workspace.copy_run(tmp_path / "run")
    with run.joinpath(name).open("ab") as file:
        file.write(b"\n")
    outcome = workspace.call("translate", run)
    assert (outcome.code, outcome.out) == (3, b"")
    assert outcome.err.startswith(f"error: {run / name}: altered or damaged")


def test_prepare_prints_the_folder_and_reports_on_stderr(workspace: Workspace) -> None:
    assert workspace.folder.joinpath("prepare.out").read_text() == "data/prepared/tiny\n"
    report = workspace.folder.joinpath("prepare.err").read_text()
    assert "vocabulary" in report
    assert "too long" in report


def test_prepare_again_says_that_nothing_has_changed(workspace: Workspace) -> None:
    outcome = workspace.call("prepare", "tiny.toml")
    assert (outcome.code, outcome.lines) == (0, ["data/prepared/tiny"])
    assert "nothing has changed" in outcome.err


def test_prepare_as_json_is_one_document(workspace: Workspace) -> None:
    outcome = workspace.call("prepare", "tiny.toml", "--json", "--quiet")
    document = json.loads(outcome.out)
    assert (outcome.code, outcome.err) == (0, "")
    assert document["folder"] == "data/prepared/tiny"
    assert document["is_new"] is False
    assert document["report"]["splits"]["test"]["pairs"] == 20


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("10m", 600), ("1.5h", 5400), (" 2h ", 7200), ("0", 0)]
)
def test_duration_is_read_in_seconds_minutes_and_hours(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "m", "ten", "10 m", "-5s", "10d", "1m30s", "1e3", "nan"])
def test_duration_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"--time-limit '.*': expected a time such as 90s, 10m or 2h"):
        parse_duration(text)
