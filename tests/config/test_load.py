"""The configuration: what is accepted, what is refused, and in which words."""

import math
import re
from pathlib import Path

import pytest

from mt_cli.config.load import dump_config, load_config, parse_config
from mt_cli.config.schema import Config, ModelConfig, TrainingConfig
from mt_cli.errors import ConfigError

FOLDER = Path(__file__).resolve().parents[2] / "configs"
CONFIGS = sorted({*FOLDER.glob("*.toml"), *FOLDER.glob("classic/*.toml")})


def write(folder: Path, text: str) -> Path:
    path = folder / "some.toml"
    path.write_text(text, encoding="utf-8")
    return path


def complaints_about(tables: dict[str, object]) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_config(tables)
    return str(caught.value)


def test_absent_keys_are_defaults() -> None:
    assert parse_config({}) == Config()
    assert parse_config({"model": {"d_model": 64}}).model == ModelConfig(d_model=64)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_every_config_of_the_project_loads_and_says_what_it_is_for(path: Path) -> None:
    assert load_config(path)
    assert path.read_text(encoding="utf-8").startswith("# ")


def test_file_sets_what_it_names(tmp_path: Path) -> None:
    path = write(tmp_path, '[data]\nsplits = ["train", "val"]\n[training]\npeak_lr = 3e-4\n')
    config = load_config(path)
    assert config.data.splits == ("train", "val")
    assert config.training.peak_lr == 3e-4


def test_missing_file_names_those_that_are_there(tmp_path: Path) -> None:
    there = write(tmp_path, "")
    with pytest.raises(
        ConfigError, match=r"smoe\.toml: no such config file; found there: "
    ) as caught:
        load_config(tmp_path / "smoe.toml")
    assert str(there) in str(caught.value)


def test_folder_is_no_config(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a folder; a config is a TOML file"):
        load_config(tmp_path)


def test_text_that_is_not_toml_is_refused_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"some\.toml: not valid TOML: .*line 2"):
        load_config(write(tmp_path, "[model]\nd_model: 3\n"))


def test_bytes_that_are_not_utf8_are_refused_with_their_place(tmp_path: Path) -> None:
    path = tmp_path / "some.toml"
    path.write_bytes(b"# caf\xe9\n")
    with pytest.raises(ConfigError, match=r"not UTF-8 text \(byte 5\)"):
        load_config(path)


@pytest.mark.parametrize(
    ("tables", "complaint"),
    [
        ({"model": {"d_modle": 64}}, "model: unknown key 'd_modle'; did you mean 'd_model'?"),
        ({"model": {"num-heads": 4}}, "model: unknown key 'num-heads'; did you mean 'num_heads'?"),
        ({"trainig": {}}, "unknown section 'trainig'; did you mean 'training'?"),
        ({"training": {"seed": 3}}, "training: unknown key 'seed'; it belongs in [runtime]"),
        (
            {"training": {"max_len": 3}},
            "training: unknown key 'max_len'; it belongs in [data] or [model]",
        ),
        ({"d_model": 64}, "unknown section 'd_model'; it belongs in [model]"),
        (
            {"xyzzy": {}},
            "unknown section 'xyzzy'; known: data, tokenizer, model, training, decoding, runtime",
        ),
        ({"tokenizer": {"qqq": 1}}, "tokenizer: unknown key 'qqq'; known: kind, vocab_size,"),
        (
            {"data": {"files": {"test": {"src": "a", "tgt": "b", "trg": "c"}}}},
            "data.files.test: unknown key 'trg'; did you mean 'tgt'?",
        ),
    ],
)
def test_unknown_key_is_named_with_the_right_one(tables: dict[str, object], complaint: str) -> None:
    assert f"\n  {complaint}" in complaints_about(tables)


def test_all_errors_of_a_file_are_reported_together(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        '[model]\nd_modle = 3\nnorm = "mid"\n[training]\npeak_lr = "x"\n[runtime]\nseed = -1\n',
    )
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    first, *rest = str(caught.value).split("\n")
    assert first == f"{path}: the config cannot be used"
    assert rest == [
        "  model.norm: expected 'pre' or 'post', found 'mid'",
        "  model: unknown key 'd_modle'; did you mean 'd_model'?",
        "  training.peak_lr: expected a number, found 'x'",
        "  runtime.seed: expected 0 or more, found -1",
    ]


@pytest.mark.parametrize(
    ("section", "key", "value", "complaint"),
    [
        ("model", "d_model", "64", "expected a whole number, found '64'"),
        ("model", "d_model", 64.0, "expected a whole number, found 64.0"),
        ("model", "d_model", True, "expected a whole number, found true"),
        ("model", "dropout", False, "expected a number, found false"),
        ("model", "dropout", 1.0, "expected less than 1, found 1.0"),
        ("model", "backend", "pytorch", "expected 'torch' or 'scratch', found 'pytorch'"),
        ("model", "final_norm", "true", "expected true or false, found 'true'"),
        ("model", "final_norm", 1, "expected true or false, found 1"),
        ("training", "peak_lr", math.inf, "expected a finite number, found inf"),
        ("training", "peak_lr", math.nan, "expected a finite number, found nan"),
        ("training", "max_steps", "none", "expected a whole number, found 'none'"),
        ("training", "betas", [0.9], "expected more values, found [0.9]"),
        ("training", "betas", [0.9, 0.9, 0.9], "expected at most 2 values, found [0.9, 0.9, 0.9]"),
        ("tokenizer", "from_run", "a\udcff", "its name is not UTF-8, and a config cannot hold it"),
        (
            "training",
            "warmup_steps",
            400.0,
            "expected a whole number such as 400, or a share below 1",
        ),
        (
            "training",
            "warmup_steps",
            True,
            "expected a whole number such as 400, or a share below 1",
        ),
        ("training", "warmup_steps", -1, "expected a whole number such as 400, or a share below 1"),
        ("data", "splits", "train", "expected a list"),
        ("data", "src_lang", "German", "expected a language code"),
        ("data", "files", 3, "expected a table, found 3"),
    ],
)
def test_value_is_refused_with_what_it_must_be(
    section: str, key: str, value: object, complaint: str
) -> None:
    assert f"  {section}.{key}: {complaint}" in complaints_about({section: {key: value}})


@pytest.mark.parametrize("lang", ["de", "hsb", "zh-TW", "sr_Latn", "zh-Hant-TW", "ZH"])
def test_code_of_a_language_may_name_a_script_or_a_region(lang: str) -> None:
    assert parse_config({"data": {"src_lang": lang}}).data.src_lang == lang


@pytest.mark.parametrize("lang", ["", "d", "de-", "de.en", "de AT", "deutsch", "../de", "de/en"])
def test_what_is_no_code_of_a_language_is_refused(lang: str) -> None:
    complaints = complaints_about({"data": {"src_lang": lang}})
    assert "data.src_lang: expected a language code" in complaints


@pytest.mark.parametrize("content", ["", " \n", "\ufeff\n"])
def test_empty_file_is_refused_by_name(tmp_path: Path, content: str) -> None:
    path = write(tmp_path, content)
    with pytest.raises(ConfigError, match=rf"^{re.escape(str(path))}: an empty file"):
        load_config(path)


def test_whole_number_is_taken_where_a_number_is_asked_for() -> None:
    assert parse_config({"training": {"clip_norm": 2}}).training == TrainingConfig(clip_norm=2.0)


def files_of(*splits: str) -> dict[str, dict[str, str]]:
    return {split: {"src": f"{split}.de", "tgt": f"{split}.en"} for split in splits}


def test_every_split_needs_its_files() -> None:
    text = complaints_about({"data": {"corpus": "files", "files": files_of("train")}})
    assert "  data: corpus 'files' needs a [data.files.val] table with src and tgt" in text
    assert "  data: corpus 'files' needs a [data.files.test] table with src and tgt" in text


@pytest.mark.parametrize("name", ["a b", "../up", ".hidden", "", "x/y"])
def test_split_name_is_one_safe_file_name(name: str) -> None:
    assert f"  data.files.{name}: expected a name of letters" in complaints_about(
        {"data": {"files": files_of(name)}}
    )


def test_files_belong_to_the_files_corpus() -> None:
    text = complaints_about({"data": {"corpus": "multi30k", "files": files_of("train")}})
    assert "data: [data.files] belongs to corpus 'files', but the corpus is 'multi30k'" in text


@pytest.mark.parametrize(
    ("tables", "complaint"),
    [
        ({"model": {"d_model": 250}}, "model: num_heads 8 does not divide d_model 250"),
        ({"model": {"d_model": 15, "num_heads": 5}}, "model: d_model must be even, found 15"),
        ({"data": {"splits": ["test"]}}, "data: splits must name train and val, found ['test']"),
        ({"data": {"splits": ["train", "val", "val"]}}, "data: splits must differ"),
        ({"tokenizer": {"tgt_vocab_size": 100}}, "tokenizer: tgt_vocab_size is for joint = false"),
        ({"tokenizer": {"joint": False}}, "model.tie = 'all' shares one embedding"),
        ({"data": {"max_len": 256}}, "data.max_len 256 plus <s> or </s> exceeds model.max_len 256"),
        ({"model": 3}, "model: expected a table, found 3"),
        ({"data": {"splits": ["train", "../val"]}}, "data.splits.1: expected a name of letters"),
        (
            {"data": {"corpus": "files", "files": {"train": {"src": "a"}}}},
            "data.files.train: needs the key",
        ),
    ],
)
def test_keys_must_agree(tables: dict[str, object], complaint: str) -> None:
    assert f"\n  {complaint}" in complaints_about(tables)


each_retired = pytest.mark.parametrize("key", ["ema_decay", "subword_dropout"])


def test_longest_training_pair_fits_the_model() -> None:
    assert parse_config({"data": {"max_len": 255}}).data.max_len == ModelConfig().longest_sentence


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("training.max_epochs=3", {"training": {"max_epochs": 3}}),
        ("training.peak_lr = 1e-4", {"training": {"peak_lr": 1e-4}}),
        ("model.norm=post", {"model": {"norm": "post"}}),
        ('model.norm="post"', {"model": {"norm": "post"}}),
        ("model.final_norm=false", {"model": {"final_norm": False}}),
        ("training.betas=[0.9, 0.98]", {"training": {"betas": [0.9, 0.98]}}),
        ('data.splits=["train", "val"]', {"data": {"splits": ["train", "val"]}}),
    ],
)
def test_override_sets_one_value(override: str, expected: dict[str, object]) -> None:
    assert parse_config({}, [override]) == parse_config(expected)


def test_override_wins_over_the_file_and_leaves_its_neighbours(tmp_path: Path) -> None:
    path = write(tmp_path, "[model]\nd_model = 64\nnum_heads = 4\n")
    assert load_config(path, ["model.d_model=32"]).model == ModelConfig(d_model=32, num_heads=4)


def test_override_reaches_a_nested_table() -> None:
    tables: dict[str, object] = {
        "data": {"corpus": "files", "files": files_of("train", "val", "test")}
    }
    config = parse_config(tables, ["data.files.test.src=other=1.de"])
    assert config.data.files["test"].src == (Path("other=1.de"),)
    assert config.data.files["test"].tgt == (Path("test.en"),)


@pytest.mark.parametrize(
    "override", ["model.d_model", "d_model=3", "=3", ".d_model=3", "model.=3", "", "model..x=3"]
)
def test_override_of_another_form_is_refused(override: str) -> None:
    with pytest.raises(
        ConfigError, match=r"expected section\.key=value, such as training\.max_epochs=3"
    ):
        parse_config({}, [override])


@pytest.mark.parametrize(
    ("key", "value", "limit"),
    [
        ("model.d_model", 10**18, 1048576),
        ("training.tokens_per_batch", 10**30, 2147483648),
        ("decoding.beam_size", 10**30, 65536),
    ],
)
def test_a_size_that_no_machine_has_is_refused(key: str, value: int, limit: int) -> None:
    with pytest.raises(ConfigError, match=rf"{key}: expected {limit} or less, found {value}"):
        parse_config({}, [f"{key}={value}"])


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_dumped_config_loads_as_the_same(path: Path, tmp_path: Path) -> None:
    awkward = ['data.files.train={src = "a\u00a0b\\"ä.de", tgt = "b"}', 'data.corpus="files"']
    awkward += [
        'data.splits=["train", "val"]',
        'data.files.val={src = "c", tgt = "d"}',
        "data.more={}",
    ]
    for overrides in ([], [*awkward, "training.peak_lr=1e-30", "training.max_steps=7"]):
        config = load_config(path, overrides)
        assert load_config(write(tmp_path, dump_config(config))) == config
