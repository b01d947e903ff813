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
    assert len(folder.joinpath("mine-corpus/val.es").read_text().splitlines()) == 30


def rows(folder: Path) -> list[tuple[str, ...]]:
    return list(
        zip(*(folder.joinpath(name).read_text().splitlines() for name in PAIR), strict=True)
    )


def as_tsv(pairs: list[tuple[str, ...]]) -> str:
    return "".join(f"{tgt}\t{src}\n" for src, tgt in pairs)


def as_jsonl(pairs: list[tuple[str, ...]]) -> str:
    return "".join(json.dumps({"translation": {"es": src, "en": tgt}}) + "\n" for src, tgt in pairs)


def as_csv(pairs: list[tuple[str, ...]]) -> str:
    return "".join(f'"{src}";"{tgt}"\n' for src, tgt in [("es", "en"), *pairs])


def as_tmx(pairs: list[tuple[str, ...]]) -> str:
    unit = '<tu><tuv xml:lang="en"><seg>{}</seg></tuv><tuv xml:lang="es"><seg>{}</seg></tuv></tu>'
    units = "".join(unit.format(tgt, src) for src, tgt in pairs)
    return f'<tmx><header srclang="en"/><body>{units}</body></tmx>'


LANGS = "--src-lang es --tgt-lang en"


@pytest.mark.parametrize(
    ("words", "write"),
    [
        ("corpus.es corpus.en", None),
        (f"all.tsv --columns 2,1 {LANGS}", as_tsv),
        ("all.jsonl --columns translation.es,translation.en", as_jsonl),
        ("all.csv --columns es,en", as_csv),
        (f"all.tmx {LANGS}", as_tmx),
    ],
    ids=["lines", "tsv", "jsonl", "csv", "tmx"],
)
def test_new_takes_files_of_any_kind(
    call: Call, folder: Path, words: str, write: Callable[..., str] | None
) -> None:
    if write is not None:
        folder.joinpath(words.split(maxsplit=1)[0]).write_text(write(rows(folder)))
    for name, args in (("expected", ("--train", *PAIR)), ("found", words.split())):
        outcome = call("new", *args, "-o", f"{name}.toml")
        assert outcome.code == 0, outcome.err
    for name in ("train.es", "val.en"):
        found = folder.joinpath("found-corpus", name).read_bytes()
        assert found == folder.joinpath("expected-corpus", name).read_bytes()


def test_new_takes_several_files_of_a_side(call: Call, folder: Path) -> None:
    for side in PAIR:
        lines = folder.joinpath(side).read_text().splitlines(keepends=True)
        folder.joinpath(f"1{side}").write_text("".join(lines[:100]))
        folder.joinpath(f"2{side}").write_text("".join(lines[100:]))
    src, tgt = (f"1{side},2{side}" for side in PAIR)
    outcome = call("new", "--train", src, tgt, "-o", "mine.toml")
    assert "train 240 pairs" in outcome.err


def test_new_knows_languages_by_the_endings_of_files(call: Call, folder: Path) -> None:
    folder.joinpath("corpus.es").rename(folder / "a.sr_Latn")
    folder.joinpath("a.hsb.xz").write_bytes(lzma.compress(folder.joinpath(PAIR[1]).read_bytes()))
    assert call("new", "--train", "a.sr_Latn", "a.hsb.xz", "-o", "mine.toml").code == 0
    config = load_config(folder / "mine.toml")
    assert (config.data.src_lang, config.data.tgt_lang) == ("sr_Latn", "hsb")


def test_new_never_overwrites_unless_told_to(call: Call, folder: Path) -> None:
    command = ("new", "--train", *PAIR, "-o", "mine.toml")
    for name in ("mine.toml", "mine-corpus"):
        assert call(*command, "--overwrite").code == 0
        folder.joinpath("mine.toml").unlink()
        folder.joinpath(name).touch()
        outcome = call(*command)
        assert (outcome.code, outcome.out) == (2, b"")
        assert f"error: {name} already exists; --overwrite replaces it" in outcome.err
        written = folder.joinpath("mine.toml")
        assert not written.exists() or written.read_text() == ""


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


def test_the_config_of_a_table_is_named_as_the_table_where_splits_are_cut_off(
    call: Call, folder: Path
) -> None:
    table = "".join(f"{english}\t{spanish}\r\n" for spanish, english in rows(folder))
    folder.joinpath("spa.txt").write_text(f"1\t2\r\n{table}")
    outcome = call("new", "spa.txt", "--columns", "2,1")
    assert (outcome.code, outcome.lines) == (0, ["spa.toml"]), outcome.err
    data = load_config(folder / "spa.toml").data
    assert (data.src_lang, data.tgt_lang) == ("es", "en")
    assert folder.joinpath("spa-corpus", "val.es").exists()
    assert call("new", "spa.txt", "--columns", "2,1").code == 2  # it is there


@pytest.mark.parametrize(
    ("args", "named"),
    [
        (("--val", *PAIR), "--train SRC TGT"),
        (("corpus.es", "-o", "x.toml"), "corpus.es: "),
        (("a.tsv", "--train", *PAIR), "--train"),
        (("a.tsv", "--columns", "0,1"), "a column's number from 1, or its name, found 0"),
        (("--columns", "de,en", "-o", "x.toml"), "--columns"),
        (("--train", "corpus.es", "a.txt"), "a.txt: "),
        (("--train", "no.es", "corpus.en", "-o", "x.toml"), "no.es"),
        (("--train", "short.es", "corpus.en", "-o", "x.toml"), "300 lines, but short.es has 1;"),
        (("--train", *PAIR, "-o", "x\udcf1.toml"), "not UTF-8"),
        (("--train", *PAIR, "-o", "text", "--overwrite"), "text is a folder"),
        (("none.tmx", "-o", "x.toml"), "none.tmx: "),
        (("a.tsv", "corpus.en", "-o", "x.toml"), "corpus.en: "),
    ],
)
def test_new_says_what_is_missing(
    call: Call, folder: Path, args: tuple[str, ...], named: str
) -> None:
    folder.joinpath("short.es").write_text("Hola.\n")
    folder.joinpath("text").mkdir()
    before = set(folder.iterdir())
    outcome = call("new", *args)
    assert outcome.code in (2, 3)
    assert named in outcome.err
    assert set(folder.iterdir()) == before


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
