"""The surface: what every command has in common, before any work begins."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from workspace import Workspace

from mt_cli import __version__
from mt_cli.cli.train import parse_duration
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
from mt_cli.cli.app import main
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


def test_version_is_that_of_the_package(workspace: Workspace) -> None:
    outcome = workspace.call("--version")
    assert (outcome.code, outcome.lines, outcome.err) == (0, [f"mt-cli {__version__}"], "")


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


@pytest.mark.parametrize("verb", ["evaluate", "translate"])
@pytest.mark.parametrize(
    ("run", "message"),
    [
        ("runs/tinny", "error: runs/tinny: no such run folder; found: runs/tiny\n"),
        ("corpus", "error: corpus: not a run folder"),
        ("tiny.toml", "error: tiny.toml: a config, where a run is needed; its run is runs/tiny\n"),
        ("data/prepared/tiny", "error: data/prepared/tiny: prepared data, where a run is needed"),
        ("runs/tiny/checkpoints/step-00000252", "error: runs/tiny/checkpoints/step-00000252: a c"),
        ("Ein Hund bellt. " * 20, "error: Ein Hund bellt. "),
    ],
    ids=["missing", "another folder", "a config", "prepared data", "a checkpoint", "text"],
)
def test_run_that_is_none_exits_2(workspace: Workspace, verb: str, run: str, message: str) -> None:
    outcome = workspace.call(verb, run)
    assert (outcome.code, outcome.out) == (2, b"")
    assert outcome.err.startswith(message)


@pytest.mark.parametrize("verb", ["evaluate", "translate"])
def test_flipped_byte_of_the_weights_exits_3_and_names_the_file(
    workspace: Workspace, verb: str, tmp_path: Path
) -> None:
    run = workspace.copy_run(tmp_path / "run")
    (weights,) = run.glob(
        f"checkpoints/{run.joinpath('best.txt').read_text().strip()}/model.safetensors"
    )
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    outcome = workspace.call(verb, run)
    assert (outcome.code, outcome.out) == (3, b"")
    assert outcome.err.startswith(f"error: {weights}: altered or damaged: sha256 ")


def test_prepare_as_json_is_one_document(workspace: Workspace) -> None:
    outcome = workspace.call("prepare", "tiny.toml", "--json", "--quiet")
    document = json.loads(outcome.out)
    assert (outcome.code, outcome.err) == (0, "")
    assert document["folder"] == "data/prepared/tiny"
    assert document["is_new"] is False
    assert document["report"]["splits"]["test"]["pairs"] == 20


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("90s", 90),
        ("10m", 600),
        ("1.5h", 5400),
        (" 2h ", 7200),
        ("1h30m", 5400),
        ("2d", 172_800),
        ("1m30", 90),
        ("00:10:00", 600),
        ("10:00", 600),
        ("1-12:00:00", 129_600),
    ],
)
def test_duration_is_read_in_units_or_as_a_clock_shows_it(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "0s", "00:00", "-5m", "5 m", "h", "1w", "1:75", "1h-2m"])
def test_what_is_no_time_or_none_at_all_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=f"^--time-limit {re.escape(repr(text))}: expected "):
        parse_duration(text)


@pytest.mark.parametrize("verb", ["", *VERBS])
def test_every_command_has_help_that_fits_80_columns(workspace: Workspace, verb: str) -> None:
    outcome = workspace.call(*verb.split(), "--help")
    assert (outcome.code, outcome.err) == (0, "")
    assert f"mt-cli {verb}".strip() in outcome.text
    assert [line for line in outcome.lines if len(line) > 80] == []


@pytest.mark.parametrize("verb", VERBS)
def test_help_speaks_of_no_types_of_python(workspace: Workspace, verb: str) -> None:
    text = workspace.call(verb, "--help").text
    assert re.findall(r"INTEGER|FLOAT|PATH|BOOLEAN|[{}]|<(?:int|float|str|path|text)", text) == []


def test_options_of_the_command_come_before_those_that_others_share(workspace: Workspace) -> None:
    text = workspace.call("translate", "--help").text
    assert text.index("--n-best") < text.index("--beam-size") < text.index("--device")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["trian"], "trian"),
        (["train", "tiny.toml", "--epochs", "3"], "--set training.max_epochs="),
        (["train", "tiny.toml", "--dropout", "0.1"], "--set model.dropout="),
        (["translate", "runs/tiny", "--max-len-factor", "2"], "--set decoding.max_len_factor="),
        (["train"], "CONFIG"),
        (["train", "a.toml", "b.toml"], "b.toml"),
        (["translate", "runs/tiny", "--bleu"], "--bleu"),
        (["translate", "runs/tiny", "--beam-size", "0"], "--beam-size"),
        (["translate", "runs/tiny", "--n-best", "x"], "--n-best"),
        (["evaluate", "runs/tiny", "--backend", "jax"], "jax"),
        (["train", "tiny.toml", "--device", "tpu"], "tpu"),
    ],
    ids=" ".join,
)
def test_wrong_use_is_named_in_one_line_and_exits_2(
    workspace: Workspace, args: list[str], message: str
) -> None:
    outcome = workspace.call(*args)
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, b"", 1)
    assert outcome.err.startswith("error: ")
    assert message in outcome.err
