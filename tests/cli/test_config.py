"""`mt-cli config`: a config for one's own corpus, shown, checked and compared."""

import json
import lzma
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import spanish
from workspace import Outcome, Workspace

from mt_cli.config.load import dump_config, load_config

Call = Callable[..., Outcome]
PAIR = ("corpus.es", "corpus.en")
RECIPE = """\
[data]
corpus = "files"
src_lang = "es"
tgt_lang = "en"

[data.files]
train = { src = "corpus.es", tgt = "corpus.en" }
val = { src = "corpus.es", tgt = "corpus.en" }
test = { src = "corpus.es", tgt = "corpus.en" }
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a corpus of Spanish and English."""
    spanish.write(tmp_path, 300)
    tmp_path.joinpath("recipe.toml").write_text(RECIPE)
    return tmp_path


@pytest.fixture
def call(workspace: Workspace, folder: Path) -> Call:
    return lambda *args: workspace.call("config", *args, cwd=folder)


# new


def test_new_writes_a_config_and_cuts_off_what_is_missing(call: Call, folder: Path) -> None:
    outcome = call("new", "--train", *PAIR, "-o", "mine.toml")
    assert (outcome.code, outcome.lines) == (0, ["mine.toml"]), outcome.err
    assert "mine-corpus  train 240 pairs  val 30 pairs  test 30 pairs" in outcome.err
    config = load_config(folder / "mine.toml")
    assert (config.data.src_lang, config.data.tgt_lang) == ("es", "en")
    assert config.data.splits == ("train", "val", "test")
    assert config.data.files["test"].tgt == (Path("mine-corpus/test.en"),)
    lines = {
        name: len(folder.joinpath(f"mine-corpus/{name}.es").read_text().splitlines())
        for name in config.data.splits
    }
    assert lines == {"train": 240, "val": 30, "test": 30}


def test_new_takes_columns_and_several_files(call: Call, folder: Path) -> None:
    src, tgt = (folder.joinpath(name).read_text().splitlines() for name in PAIR)
    pairs = list(zip(src, tgt, strict=True))
    folder.joinpath("both.tsv").write_text("".join(f"{tgt}\t{src}\n" for src, tgt in pairs))
    lines = [json.dumps({"translation": {"es": src, "en": tgt}}) + "\n" for src, tgt in pairs]
    folder.joinpath("both.jsonl").write_text("".join(lines))
    for side, text in zip(PAIR, (src, tgt), strict=True):
        for name, part in (("1", text[:100]), ("2", text[100:])):
            folder.joinpath(f"{name}{side}").write_text("".join(f"{line}\n" for line in part))
    ways = {
        "lines": ("--train", *PAIR),
        "tsv": ("both.tsv", "--columns", "2,1", "--src-lang", "es", "--tgt-lang", "en"),
        "jsonl": ("both.jsonl", "--columns", "translation.es,translation.en"),
        "several": ("--train", f"1{PAIR[0]},2{PAIR[0]}", f"1{PAIR[1]},2{PAIR[1]}"),
    }
    for name, words in ways.items():
        outcome = call("new", *words, "-o", f"{name}.toml")
        assert outcome.code == 0, outcome.err
    cut = {name: folder.joinpath(f"{name}-corpus/train.es").read_bytes() for name in ways}
    assert len(set(cut.values())) == 1


def test_new_takes_two_files_of_lines_by_themselves(call: Call, folder: Path) -> None:
    configs = []
    for words in (("--train", *PAIR), PAIR):
        assert call("new", *words, "-o", "mine.toml", "--overwrite").code == 0
        configs.append(folder.joinpath("mine.toml").read_text())
    assert configs[0] == configs[1]


def test_new_takes_a_table_with_commas_or_semicolons(call: Call, folder: Path) -> None:
    src, tgt = (folder.joinpath(name).read_text().splitlines() for name in PAIR)
    for name, mark in (("commas", ","), ("semicolons", ";")):
        rows = [f'"{src}"{mark}"{tgt}"\n' for src, tgt in zip(src, tgt, strict=True)]
        folder.joinpath(f"{name}.csv").write_text("".join([f"es{mark}en\n", *rows]))
        outcome = call("new", f"{name}.csv", "--columns", "es,en", "-o", f"{name}.toml")
        assert outcome.code == 0, outcome.err
        config = load_config(folder / f"{name}.toml")
        assert (config.data.src_lang, config.data.tgt_lang) == ("es", "en")
        assert "train 240 pairs" in outcome.err


@pytest.mark.parametrize(
    ("src", "tgt", "langs"),
    [
        ("train.hsb", "train.de", ("hsb", "de")),
        ("a.zh-TW", "a.en.xz", ("zh-TW", "en")),
        ("a.sr_Latn", "a.en", ("sr_Latn", "en")),
    ],
)
def test_new_knows_languages_by_the_endings_of_files(
    call: Call, folder: Path, src: str, tgt: str, langs: tuple[str, str]
) -> None:
    for name, lang in ((src, "es"), (tgt, "en")):
        data = folder.joinpath(f"corpus.{lang}").read_bytes()
        folder.joinpath(name).write_bytes(lzma.compress(data) if name.endswith(".xz") else data)
    outcome = call("new", "--train", src, tgt, "-o", "mine.toml")
    assert outcome.code == 0, outcome.err
    config = load_config(folder / "mine.toml")
    assert (config.data.src_lang, config.data.tgt_lang) == langs


def test_new_never_overwrites_unless_told_to(call: Call, folder: Path) -> None:
    command = ("new", "--train", *PAIR, "-o", "mine.toml")
    folder.joinpath("mine.toml").write_text("mine")
    outcome = call(*command)
    assert (outcome.code, outcome.out) == (2, b"")
    assert (
        outcome.err == "error: mine.toml exists; --overwrite replaces it, --output names another\n"
    )
    assert folder.joinpath("mine.toml").read_text() == "mine"
    assert call(*command, "--overwrite").code == 0
    folder.joinpath("mine.toml").unlink()
    outcome = call(*command)
    assert (outcome.code, outcome.err) == (
        2,
        "error: mine-corpus exists; --overwrite replaces it, --output names another place\n",
    )
    assert call(*command, "--overwrite").code == 0


def test_new_replaces_what_it_cut_off_whichever_splits_and_languages_that_had(
    call: Call, folder: Path
) -> None:
    command = ("new", "--train", *PAIR, "-o", "mine.toml", "--overwrite")
    assert call(*command, "--test", *PAIR).code == 0
    assert call(*command, "--tgt-lang", "fr").code == 0
    assert sorted(path.name for path in folder.glob("mine-corpus/*")) == [
        f"{split}.{lang}" for split in ("test", "train", "val") for lang in ("es", "fr")
    ]
    folder.joinpath("mine-corpus/notes.txt").touch()
    assert call(*command).code == 2
    assert folder.joinpath("mine-corpus/notes.txt").exists()


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (("--val", *PAIR), "need training pairs beside them; name them with --train SRC TGT"),
        (("corpus.es", "-o", "x.toml"), "corpus.es: a single file must have both sides"),
        (("a.tsv", "corpus.en", "-o", "x.toml"), "corpus.en: a single file must have both sides"),
        (
            ("--train", "corpus.es", "-o", "x.toml"),
            "--train needs two files, SRC TGT; found corpus.es and -o",
        ),
        (
            ("a.tsv", "--train", *PAIR),
            "training pairs are named by --train or by FILE; give one of them",
        ),
        (
            ("a.tsv", "--columns", "0,1"),
            "--columns: expected a column's number from 1, or its name, found '0'",
        ),
        (("--train", ",", "corpus.en", "-o", "x.toml"), "--train: src: expected a path"),
        (("--columns", "de,en", "-o", "x.toml"), "describe files; name some with --train SRC TGT"),
        (("--src-lang", "es", "-o", "x.toml"), "describe files"),
        (("--train", *PAIR), "val and test are cut off the training pairs and need a place"),
        (("--train", "corpus.es", "a.txt"), "a.txt: cannot tell the language from its name"),
        (("--train", "text", "corpus.en"), "text: cannot tell the language from its name"),
        (("--train", "no.es", "corpus.en", "-o", "x.toml"), "no such file: no.es"),
        (
            ("--train", "short.es", "corpus.en", "-o", "x.toml"),
            "corpus.en: 300 lines, but short.es has 1;",
        ),
        (
            ("--train", "ma\udcf1ana.es", "corpus.en", "-o", "x.toml"),
            "not UTF-8, and a config cannot hold it",
        ),
        (
            ("--train", *PAIR, "-o", "x\udcf1.toml"),
            "not UTF-8, and a config cannot hold it; rename",
        ),
        (("--train", *PAIR, "-o", ".", "--overwrite"), "is a folder; name a file"),
        (("--train", *PAIR, "-o", "text", "--overwrite"), "text is a folder; name a file"),
        (("a.tmx", "-o", "x.toml"), "a.tmx: cannot be read"),
    ],
)
def test_new_says_what_is_missing(
    call: Call, folder: Path, args: tuple[str, ...], complaint: str
) -> None:
    folder.joinpath("short.es").write_text("Hola.\n")
    folder.joinpath("text").mkdir(exist_ok=True)
    outcome = call("new", *args)
    assert outcome.code in (2, 3)
    assert complaint in outcome.err
    assert not folder.joinpath("x.toml").exists()
    assert not folder.joinpath("x-corpus").exists()
    assert not folder.joinpath("text-corpus").exists()


def test_a_config_of_an_odd_name_can_be_read(call: Call, folder: Path) -> None:
    assert call("new", "--train", *PAIR, "-o", "odd\nname.toml").code == 0
    assert load_config(folder / "odd\nname.toml").data.src_lang == "es"


# show


def test_show_prints_every_key_of_a_name_a_file_or_a_run(call: Call, workspace: Workspace) -> None:
    outcome = call("show", "sample", "--set", "runtime.seed=7")
    assert outcome.code == 0
    assert tomllib.loads(outcome.text) == tomllib.loads(
        dump_config(load_config(Path("sample"), ["runtime.seed=7"]))
    )
    assert json.loads(call("show", workspace.run, "--json").out) == json.loads(
        load_config(workspace.folder / "tiny.toml").model_dump_json()
    )


# diff


def test_diff_prints_the_keys_that_differ(call: Call, folder: Path) -> None:
    more = '[training]\nmax_steps = 3\n[model]\nnorm = "post"\n'
    folder.joinpath("other.toml").write_text(RECIPE + more)
    outcome = call("diff", "recipe.toml", "other.toml")
    assert outcome.lines == ['model.norm  "pre" → "post"', "training.max_steps  not set → 3"]
    document = json.loads(call("diff", "recipe.toml", "other.toml", "--json").out)
    assert document == {
        "differences": {"model.norm": ["pre", "post"], "training.max_steps": [None, 3]}
    }


# train, with default keys


@pytest.mark.slow
def test_new_config_alone_makes_775_pairs_work(workspace: Workspace, tmp_path: Path) -> None:
    spanish.write(tmp_path)
    for args in (
        ("config", "new", "--train", *PAIR, "-o", "mine.toml"),
        ("prepare", "mine.toml"),
        ("train", "mine.toml", "--device", "cpu", "--threads", 1),
    ):
        outcome = workspace.call(*args, cwd=tmp_path)
        assert outcome.code == 0, outcome.err
        assert "warning" not in outcome.err
    scores = workspace.call("evaluate", "runs/mine", "--split", "test", "--json", cwd=tmp_path)
    assert json.loads(scores.out)["splits"]["test"]["bleu"]["score"] > 90


def test_a_memory_is_read_by_the_languages_that_are_given(call: Call, folder: Path) -> None:
    pair = '<tu><tuv xml:lang="en"><seg>{}</seg></tuv><tuv xml:lang="de"><seg>{}</seg></tuv></tu>'
    units = "".join(pair.format(f"A dog {i}.", f"Ein Hund {i}.") for i in range(60))
    memory = f'<tmx><header srclang="en"/><body>{units}</body></tmx>'
    folder.joinpath("m.tmx").write_text(memory)
    given = ("--src-lang", "de", "--tgt-lang", "en", "-o", "m.toml")
    outcome = call("new", "m.tmx", *given)
    assert outcome.code == 0, outcome.err
    lines = folder.joinpath("m-corpus", "train.de").read_text().splitlines()
    assert all(line.startswith("Ein Hund") for line in lines)
