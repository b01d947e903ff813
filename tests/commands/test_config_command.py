"""`mt-cli config`: a config for one's own corpus, shown, checked and compared."""

import json
import re
import shlex
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import spanish
from workspace import Outcome, Workspace

from mt_cli.config import Config, dump_config, load_config

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
    assert config.data.files["test"].tgt == Path("mine-corpus/test.en")
    lines = {
        name: len(folder.joinpath(f"mine-corpus/{name}.es").read_text().splitlines())
        for name in config.data.splits
    }
    assert lines == {"train": 240, "val": 30, "test": 30}


def test_new_config_shows_commands_that_can_be_copied_however_long_their_paths(
    call: Call, folder: Path
) -> None:
    deep = folder.joinpath(*["a folder with spaces"] * 6)
    deep.mkdir(parents=True)
    path = deep / "mine.toml"
    call("new", "--train", *PAIR, "-o", path)
    commands = [line for line in path.read_text().splitlines() if line.startswith("#   mt-cli ")]
    assert [shlex.split(line.removeprefix("#"))[:3] for line in commands][:2] == [
        ["mt-cli", "prepare", str(path)],
        ["mt-cli", "train", str(path)],
    ]


def test_new_config_explains_every_key(call: Call, folder: Path) -> None:
    call("new", "--train", *PAIR, "-o", "mine.toml")
    lines = folder.joinpath("mine.toml").read_text().splitlines()
    keys = [
        (lines[i - 1], line.split(" ")[0]) for i, line in enumerate(lines) if " = " in line and line[0] != "#"
    ]
    files = {"src", "tgt"}
    assert [key for above, key in keys if not above.startswith("# ") and key not in files] == []
    assert ("# Passes over the training pairs.", "max_epochs") in keys
    known = {key for section in Config().model_dump().values() for key in section}
    assert {key for key in known if not any(f"{key} " in line for line in lines)} <= {"files", "more"}


def test_new_config_of_given_splits_cuts_nothing(call: Call, folder: Path) -> None:
    outcome = call("new", "--train", *PAIR, "--val", *PAIR, "--test", *PAIR, "--json", "-o", "mine.toml")
    document = json.loads(outcome.out)
    assert (document["config"], document["cut_off"]) == ("mine.toml", {})
    assert not folder.joinpath("mine-corpus").exists()
    assert load_config(folder / "mine.toml").data.files["val"].src == Path("corpus.es")


def test_new_config_without_a_place_is_printed(call: Call) -> None:
    outcome = call("new")
    assert outcome.code == 0
    assert tomllib.loads(outcome.text)["data"]["corpus"] == "sample"


def test_new_never_overwrites_unless_told_to(call: Call, folder: Path) -> None:
    command = ("new", "--train", *PAIR, "-o", "mine.toml")
    folder.joinpath("mine.toml").write_text("mine")
    outcome = call(*command)
    assert (outcome.code, outcome.out) == (2, b"")
    assert outcome.err == "error: mine.toml exists; --overwrite replaces it, --output names another\n"
    assert folder.joinpath("mine.toml").read_text() == "mine"
    assert call(*command, "--overwrite").code == 0
    folder.joinpath("mine.toml").unlink()
    outcome = call(*command)
    assert (outcome.code, outcome.err) == (
        2,
        "error: mine-corpus exists; --overwrite replaces it, --output names another place\n",
    )
    assert call(*command, "--overwrite").code == 0


def test_new_leaves_a_strange_folder_alone(call: Call, folder: Path) -> None:
    folder.joinpath("mine-corpus").mkdir()
    folder.joinpath("mine-corpus", "thesis.tex").write_text("dear")
    outcome = call("new", "--train", "corpus.es", "corpus.en", "-o", "mine.toml", "--overwrite")
    assert outcome.code == 2
    assert "mine-corpus is not a folder of train.es, " in outcome.err
    assert folder.joinpath("mine-corpus", "thesis.tex").read_text() == "dear"


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (("--val", *PAIR), "need training pairs beside them; name them with --train SRC TGT"),
        (("--train", *PAIR), "val and test are cut off the training pairs and need a place"),
        (("--train", "text", "corpus.en"), "text: its name does not say in which language it is; add --src-"),
        (("--train", "no.es", "corpus.en", "-o", "x.toml"), "no.es: no such file"),
        (("--train", "short.es", "corpus.en", "-o", "x.toml"), "corpus.en: 300 lines, but short.es has 1;"),
        (
            ("--train", "ma\udcf1ana.es", "corpus.en", "-o", "x.toml"),
            "not UTF-8, and a config cannot hold it",
        ),
        (
            ("--train", *PAIR, "-o", "x\udcf1.toml"),
            "not UTF-8, and the config's header cannot hold it; rename",
        ),
    ],
)
def test_new_says_what_is_missing(call: Call, folder: Path, args: tuple[str, ...], complaint: str) -> None:
    folder.joinpath("short.es").write_text("Hola.\n")
    outcome = call("new", *args)
    assert outcome.code in (2, 3)
    assert complaint in outcome.err
    assert not folder.joinpath("x.toml").exists()
    assert not folder.joinpath("x-corpus").exists()


@pytest.mark.parametrize("split", ["train", "val"])
def test_new_never_replaces_pairs_that_it_was_given(call: Call, folder: Path, split: str) -> None:
    assert call("new", "--train", *PAIR, "-o", "mine.toml").code == 0
    before = {path: path.read_bytes() for path in folder.joinpath("mine-corpus").iterdir()}
    given = {"train": PAIR, "val": PAIR} | {split: (f"mine-corpus/{split}.es", f"mine-corpus/{split}.en")}
    pairs = ("--train", *given["train"]) + (("--val", *given["val"]) if split == "val" else ())
    outcome = call("new", *pairs, "-o", "mine.toml", "--overwrite")
    assert outcome.code == 2
    assert outcome.err == (
        f"error: mine-corpus/{split}.es lies in mine-corpus, which would be replaced; "
        "name another place with --output\n"
    )
    assert {path: path.read_bytes() for path in before} == before


def test_new_opens_the_run_before_it_cuts_the_corpus(call: Call, folder: Path) -> None:
    outcome = call("new", "--train", *PAIR, "--init-from", "runs/typo", "-o", "mine.toml")
    assert outcome.code == 2
    assert "runs/typo: no such run folder" in outcome.err
    assert not folder.joinpath("mine-corpus").exists()


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


def test_show_writes_toml_that_can_be_read_whatever_letters_a_path_has(call: Call) -> None:
    path = "a\u00a0b\u202fc.de"
    outcome = call("show", "recipe.toml", "--set", f'data.files.train={{src = "{path}", tgt = "b"}}')
    assert outcome.code == 0
    assert tomllib.loads(outcome.text)["data"]["files"]["train"]["src"] == path


# check


def test_check_warns_that_default_keys_do_not_suit_a_small_corpus(call: Call) -> None:
    outcome = call("check", "recipe.toml")
    assert outcome.code == 0
    assert outcome.text.startswith(
        "recipe.toml:\n  warning: training makes only 12 updates, 1 an epoch, from "
    )
    assert "  warning: the vocabulary of 8,000 entries is large for 300 training pairs" in outcome.text


def test_check_counts_the_words_that_there_are_and_both_vocabularies(call: Call, folder: Path) -> None:
    words = call("check", "recipe.toml", "--set", "tokenizer.kind=spacy")
    assert "vocabulary" not in words.text  # 300 pairs have few words, and each occurs often
    two = ("tokenizer.joint=false", "tokenizer.tgt_vocab_size=32000", "model.tie=decoder")
    outcome = call("check", "recipe.toml", *(word for setting in two for word in ("--set", setting)))
    assert "the vocabulary of 40,000 entries is large" in outcome.text


def test_check_counts_added_pairs_as_often_as_an_epoch_sees_them(call: Call, folder: Path) -> None:
    def epoch(share: float) -> int:
        added = f'[data.more.twice]\nsrc = "corpus.es"\ntgt = "corpus.en"\nshare = {share}\n'
        folder.joinpath("more.toml").write_text(RECIPE + added)
        quick = ("training.tokens_per_batch=256", "training.max_epochs=1")
        text = call("check", "more.toml", *(word for each in quick for word in ("--set", each))).text
        found = re.search(r"updates, (\d+) an epoch, from 600 pairs", text)
        assert found is not None, text
        return int(found[1])

    assert epoch(1.0) == pytest.approx(2 / 3 * epoch(2.0), abs=1)
    assert epoch(0.5) == pytest.approx(epoch(2.0) / 2, abs=1)


def test_check_finds_nothing_wrong_with_a_new_config(call: Call) -> None:
    call("new", "--train", *PAIR, "-o", "mine.toml")
    assert call("check", "mine.toml", "sample").lines == ["mine.toml: good", "sample: good"]


def test_check_of_a_wrong_config_exits_2_and_checks_the_others(call: Call, folder: Path) -> None:
    folder.joinpath("wrong.toml").write_text("[model]\nd_modle = 3\n")
    outcome = call("check", "wrong.toml", "sample", "--json")
    assert outcome.code == 2
    found = json.loads(outcome.out)["configs"]
    assert "unknown key 'd_modle'; did you mean 'd_model'?" in found["wrong.toml"]["errors"][0]
    assert found["sample"] == {"errors": [], "warnings": []}
    assert outcome.err == "error: 1 of 2 configs cannot be used: wrong.toml\n"


def test_check_warns_of_files_that_are_not_there(call: Call, folder: Path) -> None:
    folder.joinpath("corpus.en").unlink()
    outcome = call("check", "recipe.toml")
    assert outcome.code == 0
    assert "  warning: corpus.en: no such file; [data.files] names it" in outcome.text


# diff


def test_diff_prints_the_keys_that_differ(call: Call, folder: Path) -> None:
    more = '[training]\nmax_steps = 3\n[model]\nnorm = "post"\n'
    folder.joinpath("other.toml").write_text(RECIPE + more)
    outcome = call("diff", "recipe.toml", "other.toml")
    assert outcome.lines == ['model.norm  "pre" → "post"', "training.max_steps  not set → 3"]
    document = json.loads(call("diff", "recipe.toml", "other.toml", "--json").out)
    assert document == {"differences": {"model.norm": ["pre", "post"], "training.max_steps": [None, 3]}}


def test_diff_looks_into_inner_tables(call: Call) -> None:
    assert 'data.files.test.tgt  "corpus.en" → not set' in call("diff", "recipe.toml", "sample").lines


def test_diff_of_equal_configs_prints_nothing(call: Call, workspace: Workspace) -> None:
    assert call("diff", workspace.folder / "tiny.toml", workspace.run) == Outcome(0, b"", "")


# train, with default keys


def test_training_with_default_keys_on_a_small_corpus_warns(
    workspace: Workspace, folder: Path, call: Call
) -> None:
    tiny = ("--set", "model.d_model=8", "--set", "model.num_heads=1", "--set", "model.d_ff=8")
    few = ("--set", "training.max_epochs=2", "--set", "decoding.max_len_factor=0", "--quiet")
    assert workspace.call("prepare", "recipe.toml", "--quiet", cwd=folder).code == 0
    outcome = workspace.call("train", "recipe.toml", *tiny, *few, cwd=folder)
    assert outcome.code == 0
    assert "warning: training makes only " in outcome.err
    assert "or let mt-cli config new choose" in outcome.err
    assert "warning: the model " in outcome.err


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
