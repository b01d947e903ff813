"""The configuration: what is accepted, what is refused, and in which words."""

import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from mt_cli.config import (
    Config,
    DataConfig,
    ModelConfig,
    Section,
    TokenizerConfig,
    TrainingConfig,
    dump_config,
    load_config,
    parse_config,
    read_toml,
)
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


# Defaults and files


def test_absent_keys_are_defaults() -> None:
    assert parse_config({}) == Config()
    assert parse_config({"model": {"d_model": 64}}).model == ModelConfig(d_model=64)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_every_config_of_the_project_loads(path: Path) -> None:
    assert load_config(path)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_every_config_of_the_project_says_what_it_is_for(path: Path) -> None:
    assert path.read_text(encoding="utf-8").startswith("# ")


def test_file_sets_what_it_names(tmp_path: Path) -> None:
    path = write(tmp_path, '[data]\nsplits = ["train", "val"]\n[training]\npeak_lr = 3e-4\n')
    config = load_config(path)
    assert config.data.splits == ("train", "val")
    assert config.training.peak_lr == 3e-4


def test_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    path = write(tmp_path, "\ufeff[runtime]\nseed = 7\n")
    assert load_config(path).runtime.seed == 7


@pytest.mark.parametrize(("part", "key"), [(Config(), "model"), (ModelConfig(), "d_model")])
def test_config_cannot_be_changed(part: Section, key: str) -> None:
    with pytest.raises(ValidationError, match="frozen"):
        setattr(part, key, getattr(part, key))


def test_missing_file_names_those_that_are_there(tmp_path: Path) -> None:
    there = write(tmp_path, "")
    with pytest.raises(ConfigError, match=r"smoe\.toml: no such config file; found there: ") as caught:
        load_config(tmp_path / "smoe.toml")
    assert str(there) in str(caught.value)


def test_missing_file_in_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere/some\.toml: no such config file$"):
        load_config(tmp_path / "nowhere" / "some.toml")


def test_folder_is_no_config(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a folder; a config is a TOML file"):
        load_config(tmp_path)


def test_path_through_a_file_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: Not a directory"):
        load_config(write(tmp_path, "") / "some.toml")


def test_text_that_is_not_toml_is_refused_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"some\.toml: not valid TOML: .*line 2"):
        load_config(write(tmp_path, "[model]\nd_model: 3\n"))


def test_bytes_that_are_not_utf8_are_refused_with_their_place(tmp_path: Path) -> None:
    path = tmp_path / "some.toml"
    path.write_bytes(b"# caf\xe9\n")
    with pytest.raises(ConfigError, match=r"not UTF-8 text \(byte 5\)"):
        load_config(path)


# Unknown keys


@pytest.mark.parametrize(
    ("tables", "complaint"),
    [
        ({"model": {"d_modle": 64}}, "model: unknown key 'd_modle'; did you mean 'd_model'?"),
        ({"model": {"num-heads": 4}}, "model: unknown key 'num-heads'; did you mean 'num_heads'?"),
        ({"trainig": {}}, "unknown section 'trainig'; did you mean 'training'?"),
        ({"training": {"seed": 3}}, "training: unknown key 'seed'; it belongs in [runtime]"),
        ({"training": {"max_len": 3}}, "training: unknown key 'max_len'; it belongs in [data] or [model]"),
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
        tmp_path, '[model]\nd_modle = 3\nnorm = "mid"\n[training]\npeak_lr = "x"\n[runtime]\nseed = -1\n'
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


# Values


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
        ("training", "warmup_steps", 400.0, "expected a whole number such as 400, or a share below 1"),
        ("training", "warmup_steps", True, "expected a whole number such as 400, or a share below 1"),
        ("training", "warmup_steps", -1, "expected a whole number such as 400, or a share below 1"),
        ("data", "splits", "train", "expected a list, found 'train'"),
        ("data", "src_lang", "German", "expected a language code such as de, found 'German'"),
        ("data", "files", 3, "expected a table, found 3"),
    ],
)
def test_value_is_refused_with_what_it_must_be(section: str, key: str, value: object, complaint: str) -> None:
    assert f"  {section}.{key}: {complaint}" in complaints_about({section: {key: value}})


def test_each_item_of_a_list_is_checked() -> None:
    text = complaints_about({"data": {"splits": ["train", "../val"]}, "training": {"betas": [0.9, 1.0]}})
    assert "data.splits.1: expected a name of letters" in text
    assert "training.betas.1: expected less than 1, found 1.0" in text


def test_section_must_be_a_table() -> None:
    assert "  model: expected a table, found 3" in complaints_about({"model": 3})


def test_whole_number_is_taken_where_a_number_is_asked_for() -> None:
    assert parse_config({"training": {"clip_norm": 2}}).training == TrainingConfig(clip_norm=2.0)


# The user's own files


def files_of(*splits: str) -> dict[str, dict[str, str]]:
    return {split: {"src": f"{split}.de", "tgt": f"{split}.en"} for split in splits}


def test_own_files_are_named_by_split() -> None:
    config = parse_config({"data": {"corpus": "files", "files": files_of("train", "val", "test")}})
    assert config.data.files["test"].src == Path("test.de")


def test_every_split_needs_its_files() -> None:
    text = complaints_about({"data": {"corpus": "files", "files": files_of("train")}})
    assert "  data: corpus 'files' needs a [data.files.val] table with src and tgt" in text
    assert "  data: corpus 'files' needs a [data.files.test] table with src and tgt" in text


def test_split_needs_both_sides() -> None:
    text = complaints_about({"data": {"corpus": "files", "files": {"train": {"src": "a"}}}})
    assert "  data.files.train: needs the key 'tgt'" in text


def test_file_is_a_path_in_quotes() -> None:
    text = complaints_about({"data": {"corpus": "files", "files": {"train": {"src": 3, "tgt": "b"}}}})
    assert "  data.files.train.src: expected a path in quotes, found 3" in text


@pytest.mark.parametrize("name", ["a b", "../up", ".hidden", "", "x/y"])
def test_split_name_is_one_safe_file_name(name: str) -> None:
    assert f"  data.files.{name}: expected a name of letters" in complaints_about(
        {"data": {"files": files_of(name)}}
    )


def test_files_belong_to_the_files_corpus() -> None:
    text = complaints_about({"data": {"corpus": "multi30k", "files": files_of("train")}})
    assert "data: [data.files] belongs to corpus 'files', but the corpus is 'multi30k'" in text


# Rules between keys


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
    ],
)
def test_keys_must_agree(tables: dict[str, object], complaint: str) -> None:
    assert f"\n  {complaint}" in complaints_about(tables)


each_retired = pytest.mark.parametrize("key", ["ema_decay", "subword_dropout"])


@each_retired
def test_a_run_that_did_without_a_key_that_is_gone_is_still_read(key: str) -> None:
    assert parse_config({"training": {"max_epochs": 3, key: 0.0}}) == parse_config(
        {"training": {"max_epochs": 3}}
    )


@each_retired
def test_a_key_that_is_gone_is_refused_where_it_is_used(key: str) -> None:
    text = complaints_about({"training": {key: 0.9, "max_epochs": 0}})
    assert f"\n  training: unknown key '{key}'; it was removed; the CHANGELOG" in text
    assert text.count("\n  ") == 2


def test_a_key_of_before_is_read_under_its_name_of_today() -> None:
    assert parse_config({"training": {"consistency": 2.0}}).training.r_drop == 2.0


def test_all_broken_rules_are_reported_together() -> None:
    text = complaints_about({"tokenizer": {"joint": False}, "data": {"max_len": 256}})
    assert text.count("\n  ") == 2
    text = complaints_about({"model": {"d_model": 15}, "data": {"splits": ["val", "val"]}})
    assert text.count("\n  ") == 4


def test_longest_training_pair_fits_the_model() -> None:
    assert parse_config({"data": {"max_len": 255}}).data.max_len == ModelConfig().longest_sentence


# Overrides


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


def test_last_override_wins() -> None:
    assert parse_config({}, ["runtime.seed=1", "runtime.seed=2"]).runtime.seed == 2


def test_override_reaches_a_nested_table() -> None:
    tables: dict[str, object] = {"data": {"corpus": "files", "files": files_of("train", "val", "test")}}
    config = parse_config(tables, ["data.files.test.src=other=1.de"])
    assert config.data.files["test"].src == Path("other=1.de")
    assert config.data.files["test"].tgt == Path("test.en")


def test_overrides_leave_the_tables_of_the_caller_alone() -> None:
    tables: dict[str, object] = {"data": {"corpus": "files", "files": files_of("train", "val", "test")}}
    parse_config(tables, ["data.files.test.src=x", "data.lowercase=true"])
    assert tables == {"data": {"corpus": "files", "files": files_of("train", "val", "test")}}


@pytest.mark.parametrize(
    "override", ["model.d_model", "d_model=3", "=3", ".d_model=3", "model.=3", "", "model..x=3"]
)
def test_override_of_another_form_is_refused(override: str) -> None:
    with pytest.raises(ConfigError, match=r"expected section\.key=value, such as training\.max_epochs=3"):
        parse_config({}, [override])


def test_override_below_a_value_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"--set 'model\.d_model\.x=3': 'd_model' is a value, not a section"
    ):
        parse_config({"model": {"d_model": 64}}, ["model.d_model.x=3"])


def test_override_of_an_unknown_key_is_named() -> None:
    with pytest.raises(ConfigError, match=r"with --set model\.d_modle=3: .*\n  model: unknown key 'd_modle'"):
        parse_config({}, ["model.d_modle=3"])


def test_override_cannot_smuggle_in_a_second_line() -> None:
    with pytest.raises(ConfigError, match=r"runtime\.seed: expected a whole number"):
        parse_config({}, ["runtime.seed=1\nother = 2"])


# Round trip

widths = st.builds(lambda heads, size: (heads, 2 * heads * size), st.integers(1, 16), st.integers(1, 64))
chances = st.floats(0, 1, exclude_max=True)
positive = st.floats(0, exclude_min=True, allow_infinity=False)
names = st.from_regex(r"\A[A-Za-z0-9_][A-Za-z0-9_.-]{0,8}\Z")
paths = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12).map(Path)


@st.composite
def data_configs(draw: st.DrawFn) -> DataConfig:
    tests = draw(st.lists(names.filter(lambda name: name not in ("train", "val")), max_size=3, unique=True))
    splits = tuple(draw(st.permutations(["train", "val", *tests])))
    files = {name: {"src": draw(paths), "tgt": draw(paths)} for name in splits}
    own = draw(st.booleans())
    corpus = "files" if own else draw(st.sampled_from(["sample", "multi30k"]))
    return DataConfig.model_validate(
        {"corpus": corpus, "splits": splits, "files": files if own else {}, "lowercase": draw(st.booleans())}
    )


@st.composite
def configs(draw: st.DrawFn) -> Config:
    num_heads, d_model = draw(widths)
    joint = draw(st.booleans())
    model = ModelConfig(
        num_heads=num_heads,
        d_model=d_model,
        dropout=draw(chances),
        tie=draw(st.sampled_from(["none", "decoder", "all"] if joint else ["none", "decoder"])),
    )
    tokenizer = TokenizerConfig(
        joint=joint, tgt_vocab_size=None if joint else draw(st.none() | st.integers(8, 2**31 - 1))
    )
    training = TrainingConfig(
        betas=(draw(chances), draw(chances)),
        peak_lr=draw(positive),
        eps=draw(positive),
        max_steps=draw(st.none() | st.integers(min_value=1)),
    )
    return Config(data=draw(data_configs()), tokenizer=tokenizer, model=model, training=training)


@settings(max_examples=50)
@given(config=configs())
def test_dumped_config_loads_as_the_same(config: Config, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = write(tmp_path_factory.mktemp("config"), dump_config(config))
    assert load_config(path) == config


def test_dumped_config_names_every_key_that_has_a_value() -> None:
    text = dump_config(Config())
    assert "peak_lr = 0.001" in text
    assert "max_steps" not in text


# Files that are no config, and sizes that no machine has


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a = " + "[" * 10**5, "not valid as a config: too many tables in one another"),
        ("a = " + "9" * 10**5, "not valid TOML: "),
        ("#" * (2 << 20), "more than 1,048,576 bytes"),
    ],
    ids=["deep", "digits", "large"],
)
def test_a_file_out_of_all_proportion_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "x.toml").write_text(text)
    with pytest.raises(ConfigError, match=rf"x\.toml: {complaint}"):
        load_config(tmp_path / "x.toml")


def test_a_device_is_not_read_for_ever() -> None:
    with pytest.raises(ConfigError, match=r"/dev/zero: more than 1,048,576 bytes"):
        read_toml(Path("/dev/zero"))


@pytest.mark.parametrize("value", ["[" * 10**5, "9" * 10**5], ids=["deep", "digits"])
def test_a_setting_out_of_all_proportion_is_refused(value: str) -> None:
    with pytest.raises(ConfigError, match=r"model\.d_model: expected a whole number"):
        parse_config({}, [f"model.d_model={value}"])


@pytest.mark.parametrize(
    ("key", "value", "limit"),
    [
        ("model.d_model", 10**18, 1048576),
        ("model.d_ff", 10**18, 1048576),
        ("model.encoder_layers", 100_000, 1000),
        ("model.decoder_layers", 100_000, 1000),
        ("model.max_len", 10**8, 65536),
        ("data.max_len", 10**8, 65536),
        ("tokenizer.vocab_size", 10**18, 2147483647),
        ("training.max_epochs", 10**30, 1048576),
        ("training.tokens_per_batch", 10**30, 2147483648),
        ("training.validate_every", 10**30, 1099511627776),
        ("decoding.beam_size", 10**30, 65536),
        ("decoding.min_len", 10**30, 65536),
        ("runtime.threads", 10**10, 65536),
    ],
)
def test_a_size_that_no_machine_has_is_refused(key: str, value: int, limit: int) -> None:
    with pytest.raises(ConfigError, match=rf"{key}: expected {limit} or less, found {value}"):
        parse_config({}, [f"{key}={value}"])


def test_a_translation_without_end_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"max_len_factor: expected 65536 or less, found 1e\+?308"):
        parse_config({}, ["decoding.max_len_factor=1e308"])


def test_warmup_beyond_all_bounds_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"training\.warmup_steps: expected a whole number such as 400"):
        parse_config({}, [f"training.warmup_steps={10**30}"])


def test_thousands_of_errors_are_counted_and_not_listed() -> None:
    with pytest.raises(ConfigError, match=r"unknown section 'key99'.*\n  and 49,900 more$") as caught:
        parse_config({f"key{i}": 1 for i in range(50_000)})
    assert len(str(caught.value).split("\n")) == 102
