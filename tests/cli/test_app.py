"""What all commands share: help, wrong use, advice, the error boundary and the standard streams."""

import errno
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
import typer
import typer.main
from damage import change_json, flip_a_bit
from workspace import Workspace

from mt_cli import errors
from mt_cli.cli.app import app
from mt_cli.cli.train import parse_duration

PROGRAM = typer.main.get_command(app)
assert isinstance(PROGRAM, typer.core.TyperGroup)
VERBS = sorted(PROGRAM.commands)
HEAVY = {"torch", "spacy", "sentencepiece", "sacrebleu", "torchtext", "numpy", "matplotlib"}
# Help


def test_help_of_every_verb_imports_nothing_heavy() -> None:
    program = f"""if 1:
        import contextlib, sys
        from mt_cli.cli.app import app
        for args in ([], *([verb] for verb in {VERBS})):
            with contextlib.suppress(SystemExit):
                app([*args, "--help"])
        print("imported", *sys.modules)
    """
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    imported = done.stdout.rpartition("imported ")[2].split()
    assert "mt_cli.cli" in imported
    assert sorted(HEAVY.intersection(imported)) == []


@pytest.mark.parametrize("verb", ["", *VERBS])
def test_help_fits_80_columns(workspace: Workspace, verb: str) -> None:
    outcome = workspace.call(*verb.split(), "--help")
    assert (outcome.code, outcome.err) == (0, "")
    assert f"mt-cli {verb}".strip() in outcome.text
    assert [line for line in outcome.lines if len(line) > 80] == []


# Wrong use


@pytest.mark.parametrize(
    ("args", "named"),
    [
        (["trian"], "trian"),
        (["train", "tiny.toml", "--set", "model.d_modle=64"], "'d_modle'"),
        (["train"], "CONFIG"),
        (["translate", "runs/tiny", "--bleu"], "--bleu"),
        (["translate", "runs/tiny", "--beam-size", "0"], "decoding.beam_size"),
        (["translate", "runs/tiny", "--n-best", "x"], "--n-best"),
        (["train", "tiny.toml", "--device", "tpu"], "tpu"),
        (["train", "tiny.toml", "--no-validate"], "--time-limit"),
        (["evaluate", "runs/tiny", "--ref", "a", "--src", "a", "--data", "none"], "--data"),
        (["runs", "none"], "none"),
        (["translate", "runs/tinny"], "runs/tiny"),
        (["translate", "corpus"], "corpus: not a run folder"),
        (["translate", "Hund " * 99], "Hund Hund"),
    ],
    ids=" ".join,
)
def test_wrong_use_is_named_and_exits_2(workspace: Workspace, args: list[str], named: str) -> None:
    outcome = workspace.call(*args)
    assert (outcome.code, outcome.out) == (2, b"")
    assert outcome.err.startswith("error: ")
    assert named in outcome.err


def test_flipped_bit_of_the_weights_exits_3_and_names_the_file(
    workspace: Workspace, tmp_path: Path
) -> None:
    run = workspace.copy_run(tmp_path / "run")
    weights = run / "checkpoints" / (run / "best.txt").read_text().strip() / "model.safetensors"
    flip_a_bit(weights)
    outcome = workspace.call("translate", run)
    assert (outcome.code, outcome.out) == (3, b"")
    assert str(weights) in outcome.err


DURATIONS = {"90": 90, "10m": 600, "1.5h": 5400, " 2d ": 172_800, "1h30m": 5400, "00:10:00": 600}


@pytest.mark.parametrize(("text", "seconds"), DURATIONS.items())
def test_duration_is_read_in_units_or_as_a_clock_shows_it(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "0s", "00:00:00", "-5m", "h", "1w", "10:00"])
def test_what_is_no_time_or_none_at_all_is_refused(text: str) -> None:
    with pytest.raises(errors.UsageError, match=re.escape(repr(text))):
        parse_duration(text)


# Advice


@pytest.fixture
def place(workspace: Workspace, tmp_path: Path) -> Path:
    """A working directory with prepared data, a run, and configs whose path needs quotes."""
    shutil.copytree(workspace.folder / "corpus", tmp_path / "corpus")
    for folder in ("data/prepared", "runs"):
        shutil.copytree(workspace.folder / folder / "tiny", tmp_path / folder / "tiny")
    (tmp_path / "configs" / "my own").mkdir(parents=True)
    for name in ("tiny.toml", "fresh.toml"):
        shutil.copy(workspace.folder / "tiny.toml", tmp_path / "configs" / "my own" / name)
    return tmp_path


SPACED = 'data.files.test={src = "corpus/val.de", tgt = "corpus/val.en"}'


@pytest.mark.parametrize(
    "args",
    [["configs/my own/fresh.toml"], ["configs/my own/tiny.toml", "--set", SPACED]],
    ids=["new", "changed"],
)
def test_training_works_after_the_advised_prepare(
    workspace: Workspace, place: Path, args: list[str]
) -> None:
    shutil.rmtree(place / "runs")  # or the data that it was trained on would stay
    train = ("train", *args, "--run", "runs/new", "--max-steps", 1)
    refused = workspace.call(*train, cwd=place)
    assert (refused.code, refused.out) == (3, b"")
    assert not place.joinpath("runs/new").exists()
    advised = re.search(r"mt-cli (prepare [^\n]*)", refused.err)
    assert advised is not None, refused.err
    assert workspace.call(*shlex.split(advised[1]), cwd=place).code == 0
    assert workspace.call(*train, cwd=place).code == 0


@pytest.mark.parametrize("config", ["runs/tiny/config.toml", "runs/tiny"])
def test_config_of_a_run_stands_for_its_data_and_its_run(
    workspace: Workspace, place: Path, config: str
) -> None:
    prepared = workspace.call("prepare", config, cwd=place)
    assert (prepared.code, prepared.text) == (0, "data/prepared/tiny\n")
    assert f"mt-cli prepare {config} --force" in prepared.err
    refused = workspace.call("train", config, cwd=place)
    assert refused.code == 2
    assert "runs/tiny" in refused.err
    resumed = workspace.call("train", config, "--resume", cwd=place)
    assert (resumed.code, resumed.text) == (0, "runs/tiny\n")


# The error boundary


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.UsageError("x"), 2),
        (errors.DataError("x"), 3),
        (errors.DivergedError("x"), 4),
        (errors.ResourceError("x"), 5),
        (errors.CheckFailedError("x"), 6),
        (errors.StoppedError("x", signal_number=15), 143),
        (KeyboardInterrupt(), 130),
        (MemoryError(), 5),
        (OSError(errno.ENOSPC, "full", "x"), 5),
        (torch.AcceleratorError("CUDA error: x\nSearch for it"), 5),
    ],
    ids=repr,
)
def test_failure_that_is_no_bug_is_one_line_and_its_code(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int
) -> None:
    monkeypatch.setattr("mt_cli.runs.opening.open_models", Mock(side_effect=error))
    outcome = workspace.call("translate", "runs/tiny")
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (code, b"", 1)
    assert "x" in outcome.err or not error.args


def test_bug_shows_its_traceback_and_exits_1(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mt_cli.runs.opening.open_models", Mock(side_effect=ZeroDivisionError))
    outcome = workspace.call("translate", "runs/tiny")
    assert (outcome.code, outcome.out) == (1, b"")
    assert "Traceback (most recent call last):\n" in outcome.err


# The standard streams


@pytest.mark.parametrize(
    ("redirection", "code"),
    [(">/dev/full", 5), (">&-", 5), ("2>&-", 0), ("| true; exit ${PIPESTATUS[0]}", 141)],
    ids=["full disk", "closed stdout", "closed stderr", "reader that leaves"],
)
def test_stream_that_cannot_be_written_is_told_by_the_exit_code(
    redirection: str, code: int
) -> None:
    command = f'"$0" -m mt_cli config show sample {redirection}'
    shell = ["bash", "-c", command, sys.executable]
    done = subprocess.run(shell, capture_output=True, encoding="utf-8", timeout=60, check=False)
    assert done.returncode == code
    assert done.stderr.count("\n") == (code == 5)
    assert bool(done.stdout) == (code == 0)


ESCAPE = "\x1b]0;owned\x07"


@pytest.mark.parametrize("flags", [(), ("--json",)], ids=["text", "json"])
def test_inspect_shows_what_others_wrote_without_obeying_it(
    workspace: Workspace, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    run = workspace.copy_run(tmp_path / "run")
    for name in ("status.json", "env.json"):
        change_json(run / name, **{f"key{ESCAPE}": f"value{ESCAPE}\u202e"})
    outcome = workspace.call("inspect", run, *flags)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.text.replace("\n", "").isprintable()
    if flags:
        assert json.loads(outcome.out)["run"][f"key{ESCAPE}"] == f"value{ESCAPE}\u202e"
    else:
        assert outcome.text.count("\\x1b]0;owned\\x07") >= 4


# Options given twice


def _options() -> list[tuple[str, typer.core.TyperOption]]:
    """Each command's name and each of its options."""
    found = []
    assert isinstance(PROGRAM, typer.core.TyperGroup)
    group = PROGRAM.commands["config"]
    assert isinstance(group, typer.core.TyperGroup)
    commands = {f"config {name}": each for name, each in group.commands.items()}
    commands |= {name: each for name, each in PROGRAM.commands.items() if name != "config"}
    for name, command in commands.items():
        for param in command.params:
            if isinstance(param, typer.core.TyperOption) and param.name != "help":
                found.append((name, param))
    return found


@pytest.mark.parametrize(
    ("verb", "option"), [pytest.param(*each, id=f"{each[0]} {each[1].name}") for each in _options()]
)
def test_no_option_loses_its_first_value(
    verb: str, option: typer.core.TyperOption, workspace: Workspace
) -> None:
    words = [option.opts[-1], *([] if option.is_flag else ["a.b=1"])]
    others = [option.secondary_opts[0]] if option.secondary_opts else words
    outcome = workspace.call(*verb.split(), "x", "y", *words, *others)
    is_switch = option.is_flag and not option.secondary_opts
    is_refused = "2 times" in outcome.err and option.opts[-1] in outcome.err
    assert is_refused != (option.multiple or is_switch)
    if is_refused:
        assert (outcome.code, outcome.out) == (2, b"")


def test_a_key_set_twice_is_refused(workspace: Workspace) -> None:
    twice = ["--set", "runtime.seed=1", "--set", "runtime.seed=2"]
    assert workspace.call("config", "show", "sample", *twice).code == 2
    contrary = workspace.call("translate", "runs/tiny", "--replace-unk", "--no-replace-unk")
    assert contrary.code == 2
    assert "--no-replace-unk" in contrary.err
