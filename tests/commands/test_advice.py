"""Commands that errors advise: each is run as it stands, and the error goes."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
from test_cli import VERBS
from workspace import Outcome, Workspace

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


@pytest.mark.parametrize("run", ["runs/fresh", "elsewhere/fresh"])
def test_run_that_is_missing_is_trained_as_advised(
    workspace: Workspace, place: Path, run: str
) -> None:
    shutil.rmtree(place / "runs")
    refused = workspace.call("inspect", run, cwd=place)
    assert (refused.code, f"{run}: no such run folder; to train it: " in refused.err) == (2, True)
    assert workspace.call("prepare", "configs/my own/fresh.toml", cwd=place).code == 0
    assert workspace.call(*advised_by(refused), *ONE_STEP, cwd=place).code == 0
    assert workspace.call("inspect", run, cwd=place).code == 0


def test_a_run_is_found_whatever_letters_its_name_has(workspace: Workspace, place: Path) -> None:
    (place / "runs" / "tiny").rename(place / "runs" / "schön😀")
    flags = ["--run", "runs/new", "--init-from", "runs/schön😀", *ONE_STEP]
    outcome = workspace.call("train", "configs/my own/tiny.toml", *flags, cwd=place)
    assert outcome.code == 0, outcome.err


def test_a_folder_for_files_that_the_config_names_is_refused(
    workspace: Workspace, place: Path
) -> None:
    outcome = workspace.call("prepare", "configs/my own/fresh.toml", "--from", "nowhere", cwd=place)
    assert (outcome.code, "[data.files] names yours" in outcome.err) == (2, True)


@pytest.mark.parametrize("config", ["runs/tiny/config.toml", "runs/tiny"])
def test_config_of_a_run_stands_for_its_data_and_its_run(
    workspace: Workspace, place: Path, config: str
) -> None:
    prepared = workspace.call("prepare", config, cwd=place)
    assert (prepared.code, prepared.text) == (0, "data/prepared/tiny\n")
    again = f"mt-cli prepare {config} --force"
    assert (
        prepared.err == f"data/prepared/tiny: nothing has changed; to prepare it again: {again}\n"
    )
    refused = workspace.call("train", config, cwd=place)
    assert (
        refused.code,
        refused.err.startswith("error: runs/tiny exists; --resume goes on with it"),
    ) == (
        2,
        True,
    )
    resumed = workspace.call("train", config, "--resume", cwd=place)
    assert (resumed.code, resumed.text) == (0, "runs/tiny\n")
