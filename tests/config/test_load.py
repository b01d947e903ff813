"""The configuration: where it is found, what is accepted, and which key an error names."""

import math
import re
from pathlib import Path

import pytest

from mt_cli.config.load import (
    bundled_configs,
    config_name,
    dump_config,
    find_config,
    load_config,
    parse_config,
)
from mt_cli.config.schema import Config, ModelConfig
from mt_cli.errors import ConfigError

FOLDER = Path(__file__).resolve().parents[2] / "configs"
CONFIGS = sorted({*FOLDER.glob("*.toml"), *FOLDER.glob("classic/*.toml")})
each_config = pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)


def write(folder: Path, text: str) -> Path:
    path = folder / "some.toml"
    path.write_text(text, encoding="utf-8")
    return path


def complaints_about(tables: dict[str, object]) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_config(tables)
    return str(caught.value)


# Files


def test_absent_keys_are_defaults() -> None:
    assert parse_config({}) == Config()
    assert parse_config({"model": {"d_model": 64}}).model == ModelConfig(d_model=64)


@pytest.mark.parametrize(
    ("content", "place"),
    [(b"[model]\nd_model: 3\n", "line 2"), (b"# caf\xe9\n", "position 5"), (b" \n", "")],
    ids=["not TOML", "not UTF-8", "blank"],
)
def test_file_that_is_no_config_is_refused_with_the_place(
    tmp_path: Path, content: bytes, place: str
) -> None:
    path = tmp_path / "some.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=rf"^{re.escape(str(path))}: .*{place}"):
        load_config(path)


AWKWARD = (
    'data.files.train={src = "a\u00a0b\\"ä.de", tgt = "b"}',
    'data.files.val={src = "c", tgt = "d"}',
    'data.corpus="files"',
    'data.splits=["train", "val"]',
    "data.more={}",
    "data.augment={}",
    "training.peak_lr=1e-30",
    "training.max_steps=7",
)


@each_config
@pytest.mark.parametrize("overrides", [(), AWKWARD], ids=["as it is", "changed"])
def test_dumped_config_loads_as_the_same(
    path: Path, overrides: tuple[str, ...], tmp_path: Path
) -> None:
    assert path.read_text(encoding="utf-8").startswith("# ")  # it says what it is for
    config = load_config(path, overrides)
    assert load_config(write(tmp_path, dump_config(config))) == config


# Names


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(empty_folder: Path) -> Path:
    """As much of a run as its name depends on."""
    folder = empty_folder / "runs" / "v1.2"
    (folder / "checkpoints").mkdir(parents=True)
    for name in ("config.toml", "manifest.json"):
        (folder / name).touch()
    return folder


def test_every_config_of_the_repository_comes_with_the_program() -> None:
    assert bundled_configs()["sample"] == FOLDER / "sample.toml"
    assert bundled_configs()["classic/page"] == FOLDER / "classic" / "page.toml"
    assert not any("sweeps" in name for name in bundled_configs())


def test_file_wins_over_a_bundled_config_of_its_name(empty_folder: Path) -> None:
    assert load_config(Path("sample")) == load_config(FOLDER / "sample.toml")
    empty_folder.joinpath("sample").write_text("[runtime]\nseed = 8\n")
    assert load_config(Path("sample")).runtime.seed == 8


def test_unknown_name_lists_those_that_there_are() -> None:
    with pytest.raises(ConfigError, match=r"no_such: .*classic/note, .*sample, speedrun"):
        find_config(Path("no_such"))


@pytest.mark.usefixtures("empty_folder")
def test_config_is_called_as_its_file() -> None:
    Path("v1.2.toml").touch()
    names = [config_name(Path(path)) for path in ("sample", "classic/page", "v1.2.toml")]
    assert names == ["sample", "page", "v1.2"]


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ("../..", "runs/v1.2/config.toml"),
        ("../..", "runs/v1.2"),
        (".", "config.toml"),
        (".", "checkpoints/.."),
    ],
)
def test_config_of_a_run_is_called_as_the_run(
    run: Path, monkeypatch: pytest.MonkeyPatch, place: str, name: str
) -> None:
    monkeypatch.chdir(run / place)
    assert config_name(Path(name)) == config_name(Path(name).resolve()) == "v1.2"


# Keys and values


@pytest.mark.parametrize(
    ("tables", "found", "right"),
    [
        ({"model": {"num-heads": 4}}, "model: .*'num-heads'", "'num_heads'"),
        ({"trainig": {}}, "'trainig'", "'training'"),
        ({"training": {"max_len": 3}}, "training: .*'max_len'", r"\[data\] .*\[model\]"),
        ({"d_model": 64}, "'d_model'", r"\[model\]"),
        ({"xyzzy": {}}, "'xyzzy'", "data, tokenizer, model, training, decoding, runtime"),
        ({"data": {"files": {"test": {"trg": "c"}}}}, "data.files.test: .*'trg'", "'tgt'"),
    ],
)
def test_unknown_key_is_named_with_the_right_one(
    tables: dict[str, object], found: str, right: str
) -> None:
    assert re.search(rf"\n  (unknown section )?{found}.*{right}", complaints_about(tables))


def test_all_errors_of_a_file_are_reported_together(tmp_path: Path) -> None:
    text = '[model]\nd_modle = 3\nnorm = "mid"\n[training]\npeak_lr = "x"\n[runtime]\nseed = -1\n'
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    first, *rest = str(caught.value).split("\n")
    assert first.startswith(f"{path}: ")
    named = [line.strip().partition(":")[0] for line in rest]
    assert named == ["model.norm", "model", "training.peak_lr", "runtime.seed"]


@pytest.mark.parametrize(
    ("section", "key", "value", "words"),
    [
        ("model", "d_model", "64", "integer, found '64'"),
        ("model", "dropout", False, "number, found false"),
        ("model", "dropout", 1.0, "less than 1, found 1.0"),
        ("model", "backend", "pytorch", "found 'pytorch'"),
        ("training", "peak_lr", math.inf, "finite number, found inf"),
        ("decoding", "rerank_weights", [0.3], "expected more values, found [0.3]"),
        ("tokenizer", "from_run", "a\udcff", "UTF-8"),
        ("training", "warmup_steps", -1, "whole number"),
        ("data", "files", 3, "found 3"),
    ],
)
def test_value_is_refused_with_what_it_must_be(
    section: str, key: str, value: object, words: str
) -> None:
    pattern = rf"\n  {section}\.{key}: .*{re.escape(words)}"
    assert re.search(pattern, complaints_about({section: {key: value}}))


@pytest.mark.parametrize("lang", ["", "d", "de-", "de.en", "de AT", "deutsch", "../de", "de/en"])
def test_what_is_no_code_of_a_language_is_refused(lang: str) -> None:
    assert "data.src_lang: " in complaints_about({"data": {"src_lang": lang}})


def files_of(*splits: str) -> dict[str, dict[str, str]]:
    return {split: {"src": f"{split}.de", "tgt": f"{split}.en"} for split in splits}


FILES = {"corpus": "files", "files": files_of("train")}


@pytest.mark.parametrize("name", ["a b", "../up", ".hidden", "", "x/y"])
def test_split_name_is_one_safe_file_name(name: str) -> None:
    assert f"  data.files.{name}: " in complaints_about({"data": {"files": files_of(name)}})


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ({"model": {"d_model": 250}}, ["model:", "num_heads 8", "d_model 250"]),
        ({"data": {"splits": ["test"]}}, ["data:", "splits", "train and val"]),
        ({"data": {"splits": ["train", "../val"]}}, ["data.splits.1:"]),
        ({"data": {"corpus": "multi30k", "files": files_of("train")}}, ["[data.files]"]),
        ({"data": FILES}, ["[data.files.val]", "[data.files.test]"]),
        ({"data": {"max_len": 256}}, ["data.max_len 256", "model.max_len 256"]),
        ({"data": {"corpus": "files", "files": {"train": {"src": "a"}}}}, ["data.files.train:"]),
        ({"tokenizer": {"tgt_vocab_size": 100}}, ["tokenizer:", "tgt_vocab_size", "joint"]),
        ({"tokenizer": {"joint": False}}, ["model.tie"]),
    ],
)
def test_keys_must_agree(tables: dict[str, object], words: list[str]) -> None:
    text = complaints_about(tables)
    assert [word for word in words if word not in text] == []


# Overrides


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("training.peak_lr = 1e-4", {"training": {"peak_lr": 1e-4}}),
        ("data.src_lang=nan", {"data": {"src_lang": "nan"}}),  # Min Nan
        ('model.norm="post"', {"model": {"norm": "post"}}),
        ("decoding.rerank_weights=[0, 1]", {"decoding": {"rerank_weights": [0.0, 1.0]}}),
        ('data.splits=["train", "val"]', {"data": {"splits": ["train", "val"]}}),
    ],
)
def test_override_sets_one_value(override: str, expected: dict[str, object]) -> None:
    assert parse_config({}, [override]) == parse_config(expected)


def test_override_wins_over_the_file_and_leaves_its_neighbours(tmp_path: Path) -> None:
    path = write(tmp_path, "[model]\nd_model = 64\nnum_heads = 4\n")
    assert load_config(path, ["model.d_model=32"]).model == ModelConfig(d_model=32, num_heads=4)


def test_override_reaches_a_nested_table() -> None:
    data = {"corpus": "files", "files": files_of("train", "val", "test")}
    config = parse_config({"data": data}, ["data.files.test.src=other=1.de"])
    assert config.data.files["test"].src == (Path("other=1.de"),)
    assert config.data.files["test"].tgt == (Path("test.en"),)


@pytest.mark.parametrize("override", ["model.d_model", "d_model=3", ".d_model=3", "model..x=3"])
def test_override_of_another_form_is_refused(override: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(repr(override))):
        parse_config({}, [override])
