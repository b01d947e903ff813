"""Configs by name: the user's own first, then those that come with the program."""

from pathlib import Path

import pytest

from mt_cli.config.load import bundled_configs, config_name, find_config, load_config
from mt_cli.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_config_of_the_repository_comes_with_the_program() -> None:
    assert bundled_configs()["sample"] == ROOT / "configs" / "sample.toml"
    assert bundled_configs()["classic/page"] == ROOT / "configs" / "classic" / "page.toml"


def test_name_without_a_file_is_a_bundled_config() -> None:
    assert load_config(Path("sample")) == load_config(ROOT / "configs" / "sample.toml")


def test_file_of_that_name_wins(empty_folder: Path) -> None:
    empty_folder.joinpath("sample.toml").write_text("[runtime]\nseed = 7\n")
    assert load_config(Path("sample")).runtime.seed == 7
    empty_folder.joinpath("sample").write_text("[runtime]\nseed = 8\n")
    assert load_config(Path("sample")).runtime.seed == 8


def test_unknown_name_lists_those_that_there_are() -> None:
    with pytest.raises(ConfigError) as caught:
        find_config(Path("no_such"))
    text = "no_such: no such config file, and no config of that name comes with mt-cli; these do: classic/note, "
    assert str(caught.value).startswith(text)
    assert str(caught.value).endswith("multi30k-words, sample, speedrun")


def test_config_is_called_as_its_file(empty_folder: Path) -> None:
    empty_folder.joinpath("v1.2.toml").touch()
    names = [config_name(Path(name)) for name in ("sample", "classic/page", "v1.2.toml")]
    assert names == ["sample", "page", "v1.2"]


@pytest.mark.parametrize("name", ["runs/v1.2/config.toml", "runs/v1.2", "runs/v1.2/"])
def test_config_of_a_run_is_called_as_the_run(empty_folder: Path, name: str) -> None:
    run = make_run(empty_folder / "runs" / "v1.2")
    assert config_name(Path(name)) == config_name(run / "config.toml") == "v1.2"


@pytest.mark.parametrize("name", ["config.toml", ".", "../v1.2/config.toml", "checkpoints/.."])
def test_config_of_the_run_one_is_in_is_called_as_the_run(
    empty_folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    run = make_run(empty_folder / "runs" / "v1.2")
    (run / "checkpoints").mkdir()
    monkeypatch.chdir(run)
    assert config_name(Path(name)) == "v1.2"


def test_config_toml_outside_of_a_run_is_called_config(empty_folder: Path) -> None:
    empty_folder.joinpath("config.toml").touch()
    assert config_name(Path("config.toml")) == "config"


def make_run(folder: Path) -> Path:
    """As much of a run as its name depends on."""
    folder.mkdir(parents=True)
    for name in ("config.toml", "manifest.json"):
        (folder / name).touch()
    return folder
