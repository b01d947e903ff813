"""Commands that errors advise: each is run as it stands, and the error goes."""

import ast
import re
import shlex
import shutil
from pathlib import Path

import pytest
from damage import without_seal
from test_cli import VERBS
from test_layers import TEXTS, calls_of, name_of
from workspace import Outcome, Workspace

ADVISERS = {
    "mt_cli.artefacts.exported_run",
    "mt_cli.artefacts.json_files",
    "mt_cli.artefacts.prepared",
    "mt_cli.artefacts.run",
    "mt_cli.commands.flags",
    "mt_cli.commands.train",
    "mt_cli.commands.translate",
    "mt_cli.stages.configure.new",
    "mt_cli.stages.train.parent",
}
"""Modules that advise a command. Each has its cases below, but for a stopped training (test_train.py),
exports of before (test_exported_run.py), and new configs (test_config_command.py, test_init_from.py)."""
ADVISED = re.compile(rf"mt-cli (?P<words>(?:{'|'.join(VERBS)}) [^\n]*)")
ONE_STEP = ("--max-steps", "1")
SPACED = 'data.files.test={src = "corpus/val.de", tgt = "corpus/val.en"}'


@pytest.fixture
def place(workspace: Workspace, tmp_path: Path) -> Path:
    """A working directory with a config whose path needs quotes, and with prepared data and a run."""
    shutil.copytree(workspace.folder / "corpus", tmp_path / "corpus")
    for folder in ("data/prepared", "runs"):
        shutil.copytree(workspace.folder / folder / "tiny", tmp_path / folder / "tiny")
    for name in ("configs/my own/tiny.toml", "configs/my own/fresh.toml"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(workspace.folder / "tiny.toml", path)
    return tmp_path


def advised_by(outcome: Outcome) -> list[str]:
    found = ADVISED.search(outcome.err)
    assert found is not None, outcome.err
    return shlex.split(found["words"].partition(", and ")[0])


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (
            ["train", "configs/my own/fresh.toml", "--run", "runs/new", *ONE_STEP],
            "data/prepared/fresh: no prepared data",
        ),
        (
            [
                "train",
                "configs/my own/tiny.toml",
                "--run",
                "runs/new",
                *ONE_STEP,
                "--set",
                "data.lowercase=true",
            ],
            "prepared with another config",
        ),
        (
            ["train", "configs/my own/tiny.toml", "--run", "runs/new", *ONE_STEP, "--set", SPACED],
            "prepared with another config",
        ),
    ],
    ids=["not prepared", "prepared otherwise", "a setting with spaces"],
)
def test_training_works_after_the_advised_prepare(
    workspace: Workspace, place: Path, args: list[str], complaint: str
) -> None:
    refused = workspace.call(*args, cwd=place)
    assert (refused.code, complaint in refused.err) == (3, True), refused.err
    assert workspace.call(*advised_by(refused), cwd=place).code == 0
    assert workspace.call(*args, cwd=place).code == 0


def test_data_elsewhere_are_prepared_where_train_finds_them_without_the_flag(
    workspace: Workspace, place: Path
) -> None:
    args = ["train", "configs/my own/fresh.toml", "--run", "runs/new", *ONE_STEP]
    refused = workspace.call(*args, "--data", "nowhere", cwd=place)
    assert (refused.code, "and leave out --data" in refused.err) == (3, True)
    assert workspace.call(*advised_by(refused), cwd=place).code == 0
    assert workspace.call(*args, cwd=place).code == 0


def test_prepare_that_has_nothing_to_do_advises_one_that_prepares_again(
    workspace: Workspace, place: Path
) -> None:
    args = ["prepare", "configs/my own/tiny.toml", "--set", "data.lowercase=true"]
    assert workspace.call(*args, cwd=place).code == 0
    manifest = place / "data/prepared/tiny/manifest.json"
    before = manifest.stat().st_ino
    idle = workspace.call(*args, cwd=place)
    assert "nothing has changed; to prepare it again: mt-cli " in idle.err
    assert manifest.stat().st_ino == before
    again = workspace.call(*advised_by(idle), cwd=place)
    assert (again.code, "nothing has changed" in again.err) == (0, False)
    assert manifest.stat().st_ino != before
    assert "nothing has changed" in workspace.call(*args, cwd=place).err, "it was prepared otherwise"


@pytest.mark.parametrize("run", ["runs/fresh", "elsewhere/fresh"])
def test_run_that_is_missing_is_trained_as_advised(workspace: Workspace, place: Path, run: str) -> None:
    shutil.rmtree(place / "runs")
    refused = workspace.call("inspect", run, cwd=place)
    assert (refused.code, f"{run}: no such run folder; to train it: " in refused.err) == (2, True)
    assert workspace.call("prepare", "configs/my own/fresh.toml", cwd=place).code == 0
    assert workspace.call(*advised_by(refused), *ONE_STEP, cwd=place).code == 0
    assert workspace.call("inspect", run, cwd=place).code == 0


def test_run_of_which_no_config_is_known_is_answered_with_the_form_of_the_command(
    workspace: Workspace, tmp_path: Path
) -> None:
    refused = workspace.call("inspect", "runs/none", cwd=tmp_path)
    assert refused.err == "error: runs/none: no such run folder; mt-cli train CONFIG makes one\n"


@pytest.mark.parametrize("text", ["Ein Mann schläft.", "Hund", "-5 Hunde/Katzen 'bellen'", "Hund " * 60])
def test_text_in_place_of_a_second_run_is_translated_as_advised(workspace: Workspace, text: str) -> None:
    refused = workspace.call("translate", "runs/tiny", "--", text)
    assert (refused.code, "no run folder; to translate text: " in refused.err) == (2, True)
    followed = workspace.call(*advised_by(refused))
    assert (followed.code, len(followed.lines)) == (0, 1)


def test_file_in_place_of_a_second_run_is_translated_as_advised(workspace: Workspace) -> None:
    refused = workspace.call("translate", "runs/tiny", "corpus/test.de")
    assert refused.code == 2
    followed = workspace.call(*advised_by(refused))
    assert (followed.code, len(followed.lines)) == (0, 20)


@pytest.mark.parametrize("config", ["runs/tiny/config.toml", "runs/tiny"])
def test_config_of_a_run_stands_for_its_data_and_its_run(
    workspace: Workspace, place: Path, config: str
) -> None:
    prepared = workspace.call("prepare", config, cwd=place)
    assert (prepared.code, prepared.text) == (0, "data/prepared/tiny\n")
    again = f"mt-cli prepare {config} --force"
    assert prepared.err == f"data/prepared/tiny: nothing has changed; to prepare it again: {again}\n"
    refused = workspace.call("train", config, cwd=place)
    assert (refused.code, refused.err.startswith("error: runs/tiny exists; --resume goes on with it")) == (
        2,
        True,
    )
    resumed = workspace.call("train", config, "--resume", cwd=place)
    assert (resumed.code, resumed.text) == (0, "runs/tiny\n")


def test_config_of_a_run_is_prepared_as_advised(workspace: Workspace, place: Path) -> None:
    (place / "runs/tiny").rename(place / "runs/moved")
    args = ["train", "runs/moved/config.toml", "--run", "runs/new", *ONE_STEP]
    refused = workspace.call(*args, cwd=place)
    advice = "data/prepared/moved: no prepared data; run: mt-cli prepare runs/moved/config.toml"
    assert (refused.code, refused.err) == (3, f"error: {advice}\n")
    assert workspace.call(*advised_by(refused), cwd=place).code == 0
    assert workspace.call(*args, cwd=place).code == 0


def test_run_without_seal_is_sealed_as_advised(workspace: Workspace, place: Path) -> None:
    shutil.rmtree(place / "data")  # a run may be sealed where nothing else is
    documents = [place / "runs/tiny/manifest.json", *place.glob("runs/tiny/checkpoints/*/manifest.json")]
    before = [without_seal(path) for path in documents]
    warned = workspace.call("inspect", "runs/tiny", cwd=place)
    assert (warned.code, warned.err.count("without a seal")) == (0, 1)
    sealed = workspace.call(*advised_by(warned), cwd=place)
    assert sealed.code == 0
    assert sealed.err.startswith("runs/tiny: whole; sealed: manifest.json, checkpoints/step-")
    assert [path.read_bytes() for path in documents] == before
    assert workspace.call("inspect", "runs/tiny", cwd=place).err == ""
    again = workspace.call("inspect", "runs/tiny", "--seal", cwd=place)
    assert again.err == "runs/tiny: whole; all of it is sealed\n"


def test_checkpoint_without_seal_is_warned_of_where_its_weights_are_used(
    workspace: Workspace, place: Path
) -> None:
    for path in place.glob("runs/tiny/checkpoints/*/manifest.json"):
        without_seal(path)
    warned = workspace.call("translate", "runs/tiny", "--text", "Hund", cwd=place)
    assert (warned.code, warned.err.count("without a seal")) == (0, 1)


def test_data_without_seal_are_sealed_as_advised(workspace: Workspace, place: Path) -> None:
    before = without_seal(place / "data/prepared/tiny/manifest.json")
    warned = workspace.call("evaluate", "runs/tiny", cwd=place)
    assert (warned.code, warned.err.count("without a seal")) == (0, 1)
    assert "mt-cli prepare CONFIG, with the config that they were prepared with" in warned.err
    encoded = (place / "data/prepared/tiny/train.src.npy").stat().st_ino
    done = workspace.call("prepare", "configs/my own/tiny.toml", cwd=place)
    assert (done.code, "nothing has changed" in done.err, "seal" in done.err) == (0, True, False)
    assert (place / "data/prepared/tiny/manifest.json").read_bytes() == before
    assert (place / "data/prepared/tiny/train.src.npy").stat().st_ino == encoded
    assert "seal" not in workspace.call("evaluate", "runs/tiny", cwd=place).err


def test_every_adviser_is_known() -> None:
    assert {name_of(path) for path, text in TEXTS.items() if calls_of("command_line", text)} == ADVISERS


def test_no_message_spells_a_command_by_hand() -> None:
    """Help pages and the READMEs that are written into folders are read, not followed word by word."""
    pages = ("mt_cli.commands.help_pages", "mt_cli.stages.model_card", "mt_cli.stages.export.readme")
    found = [
        (name_of(path), text)
        for path, source in TEXTS.items()
        if name_of(path) not in pages
        for text in literals(source)
        if ADVISED.search(text)
    ]
    assert found == []


def literals(source: str) -> list[str]:
    """Strings of `source` that are no docstrings."""
    tree = ast.parse(source)
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told
    ]
