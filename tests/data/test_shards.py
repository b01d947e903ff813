"""Shards: together they are the corpus, and what is not whole or of one piece is not joined."""

import json
import logging
import shutil
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from damage import flip_a_bit
from small import BPE, config_of, write_pairs

from mt_cli.config.schema import Config
from mt_cli.data import prepare as prepare_module
from mt_cli.data.batching import plan_epoch
from mt_cli.data.encoded import Sentences
from mt_cli.data.prepare import Inputs, prepare_corpus
from mt_cli.data.prepared import CorpusReport, Prepared, open_prepared
from mt_cli.data.shards import AppendedShard, Shard, appended_shard, first_tokenizers, join_shards
from mt_cli.errors import DataError, UsageError

Pairs = list[tuple[str, str]]
NOUNS = ["Hund dog", "Ball ball", "Mann man", "Baum tree", "Tisch table", "Stuhl chair"]
VERBS = ["liegt lies", "steht stands", "fällt falls", "wartet waits"]
PAIRS = [
    (f"Der {noun.split()[0]} {verb.split()[0]}.", f"The {noun.split()[1]} {verb.split()[1]}.")
    for noun in NOUNS
    for verb in VERBS
]
HELD_OUT = [("Niemand ist da.", "Nobody is here."), ("Ein Haus brennt.", "A house burns.")]


def files_config(folder: Path, files: list[Pairs], **data: object) -> Config:
    """A config whose training pairs are in these files, which a pattern names."""
    for number, pairs in enumerate(files):
        write_pairs(folder, f"part{number}", pairs)
    config = config_of(folder, {"train": PAIRS, "val": HELD_OUT}, tokenizer=BPE, **data)
    train = config.data.files["train"]
    parts = {"src": (folder / "part*.src",), "tgt": (folder / "part*.tgt",)}
    named = {**config.data.files, "train": train.model_copy(update=parts)}
    return config.model_copy(update={"data": config.data.model_copy(update={"files": named})})


def prepare(config: Config, out: Path, shard: Shard | AppendedShard) -> CorpusReport:
    report, _ = prepare_corpus(Inputs(config, shard=shard), out / shard.name)
    return report


def prepare_all(config: Config, out: Path, of: int) -> Prepared:
    for number in range(1, of + 1):
        prepare(config, out, Shard(number, of))
    join_shards(config, out)
    return open_prepared(out, config)


def lists(sentences: Sentences) -> list[list[int]]:
    return [sentences[i].tolist() for i in range(len(sentences))]


def order_of(prepared: Prepared) -> list[list[int]]:
    rng = np.random.default_rng(5)
    batches = plan_epoch(prepared.split("train"), tokens_per_batch=60, max_width=99, rng=rng)
    return [batch.indices.tolist() for batch in batches]


@pytest.mark.parametrize("num_files", [1, 5])
@pytest.mark.parametrize("of", [1, 3, 4])
def test_joined_they_are_the_corpus_in_its_order(tmp_path: Path, num_files: int, of: int) -> None:
    sizes = np.linspace(0, len(PAIRS), num_files + 1).astype(int)
    parts = [PAIRS[begin:end] for begin, end in pairwise(sizes)]
    more = {**write_pairs(tmp_path, "more", PAIRS[3:10]), "share": 0.5}
    config = files_config(tmp_path, parts, more={"extra": more})
    prepare_corpus(Inputs(config), tmp_path / "whole")
    whole = open_prepared(tmp_path / "whole")
    joined = prepare_all(config, tmp_path / "out", of)
    for side in ("src", "tgt"):
        ours, theirs = (getattr(each.split("train"), side) for each in (joined, whole))
        assert lists(ours) == lists(theirs)
        assert ours.lengths.tolist() == theirs.lengths.tolist()
        assert joined.lines("train", side) == whole.lines("train", side)
        assert joined.lines("val", side) == whole.lines("val", side)
    assert order_of(joined) == order_of(whole)
    assert joined.tokenizers.to_files() == whole.tokenizers.to_files()
    assert joined.manifest.inputs == whole.manifest.inputs
    assert joined.manifest.pairs == whole.manifest.pairs
    assert joined.manifest.lengths == whole.manifest.lengths


def test_what_is_held_out_is_found_in_any_shard(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rng = np.random.default_rng(1)
    train = [PAIRS[i] for i in rng.integers(0, len(PAIRS), 60)]
    val = [*HELD_OUT, *[(src, "Other.") for src, _ in PAIRS[:4]], *PAIRS[4:8]]
    config = config_of(tmp_path, {"train": train, "val": val})
    joined = prepare_all(config, tmp_path / "out", 4)
    report = joined.report().splits
    known = Counter(src for src, _ in train)
    within = [train[begin : begin + 15] for begin in range(0, 60, 15)]
    assert report["train"].duplicates == sum(15 - len(set(pairs)) for pairs in within)
    assert report["val"].src_in_train == sum(src in known for src, _ in val)
    assert report["val"].pairs_in_train == sum(pair in train for pair in val)
    assert "val: " in caplog.text


def test_a_shard_that_is_there_is_not_prepared_again(tmp_path: Path) -> None:
    config = config_of(tmp_path, {"train": PAIRS, "val": HELD_OUT})
    out = tmp_path / "out"
    prepare(config, out, Shard(1, 2))
    with pytest.raises(UsageError, match="contains shards"):
        prepare_corpus(Inputs(config), out)
    prepare_all(config, out, 2)
    first = prepare_corpus(Inputs(config, shard=Shard(1, 2)), out / "shard-1-of-2")
    second = prepare_corpus(Inputs(config, shard=Shard(2, 2)), out / "shard-2-of-2")
    assert (first[1], second[1], join_shards(config, out)[1]) == (False, False, False)
    assert prepare_corpus(Inputs(config), out)[1] is False  # joined, it is ready


def append(config: Config, out: Path) -> Prepared:
    shard = appended_shard(config, out)
    assert shard is not None
    prepare(config, out, shard)
    join_shards(config, out)
    return open_prepared(out, config)


@pytest.mark.parametrize("name", ["part9", "part00"], ids=["last", "between"])
def test_new_files_are_appended_and_the_old_stay(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = files_config(tmp_path, [PAIRS[:8], PAIRS[8:16]])
    before = prepare_all(config, tmp_path / "out", 2)
    written = {path: path.stat().st_mtime_ns for path in tmp_path.glob("out/shard-*/*")}
    write_pairs(tmp_path, name, PAIRS[16:])
    with caplog.at_level(logging.WARNING):
        join_shards(config, tmp_path / "out")
    assert f"{name}.src" in caplog.text
    assert "part1.src" not in caplog.text
    after = append(config, tmp_path / "out")
    assert {path: path.stat().st_mtime_ns for path in written} == written
    assert after.lines("train", "src") == [src for src, _ in PAIRS]
    assert after.continues(before.sha256)
    assert not before.continues(after.sha256)
    assert appended_shard(config, tmp_path / "out") is None


@pytest.mark.parametrize("files", [[PAIRS[:8], PAIRS[8:16]], [PAIRS[:16]]], ids=["two", "one"])
def test_a_changed_file_is_not_appended(tmp_path: Path, files: list[Pairs]) -> None:
    config = files_config(tmp_path, files)
    prepare_all(config, tmp_path / "out", 2)
    write_pairs(tmp_path, f"part{len(files) - 1}", PAIRS[16:])
    with pytest.raises(DataError, match="prepare all shards again"):
        append(config, tmp_path / "out")


def test_what_runs_need_is_not_replaced_without_force(tmp_path: Path) -> None:
    config = config_of(tmp_path, {"train": PAIRS, "val": HELD_OUT})
    out, runs = tmp_path / "out", [tmp_path / "run"]
    prepare_all(config, out, 2)
    assert join_shards(config, out, needed_by=runs)[1] is False
    write_pairs(tmp_path, "train", PAIRS[:-1])
    for number in (1, 2):
        prepare(config, out, Shard(number, 2))
    with pytest.raises(UsageError, match="run was trained on it"):
        join_shards(config, out, needed_by=runs)
    assert join_shards(config, out, needed_by=runs, force=True)[1] is True
    assert len(open_prepared(out).split("train")) == len(PAIRS) - 1


def remove_third(config: Config, out: Path) -> Config:
    shutil.rmtree(out / "shard-3-of-4")
    return config


def double_second(config: Config, out: Path) -> Config:
    shutil.rmtree(out / "shard-3-of-4")
    shutil.copytree(out / "shard-2-of-4", out / "shard-3-of-4")
    return config


def change_config(config: Config, out: Path) -> Config:
    shutil.rmtree(out / "shard-4-of-4")
    data = config.data.model_copy(update={"max_len": 77})
    changed = config.model_copy(update={"data": data})
    given = first_tokenizers(config, out, Shard(4, 4))
    prepare_corpus(Inputs(changed, given, Shard(4, 4)), out / "shard-4-of-4")
    return config


def divide_otherwise(config: Config, out: Path) -> Config:
    prepare(config, out, Shard(1, 3))
    return config


def damage_one(config: Config, out: Path) -> Config:
    flip_a_bit(out / "shard-2-of-4" / "train.tgt.npy")
    return config


def link_one(config: Config, out: Path) -> Config:
    (out / "shard-2-of-4").rename(out.parent / "elsewhere")
    (out / "shard-2-of-4").symlink_to(out.parent / "elsewhere")
    return config


def add_a_file(config: Config, out: Path) -> Config:
    write_pairs(out.parent, "part0b", PAIRS[:2])
    shutil.rmtree(out / "shard-4-of-4")
    prepare(config, out, Shard(4, 4))
    return config


def change_val(config: Config, out: Path) -> Config:
    write_pairs(out.parent, "val", HELD_OUT[:1])
    shutil.rmtree(out / "shard-4-of-4")
    prepare(config, out, Shard(4, 4))
    return config


def learn_again(config: Config, out: Path) -> Config:
    shutil.rmtree(out / "shard-1-of-4")
    write_pairs(out.parent, "part3", [("Xylophon Zyklus Quark", "xylophone cycle quark")] * 30)
    prepare(config, out, Shard(1, 4))
    return config


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (remove_third, "shard-3-of-4: missing; prepare it with --shard 3/4"),
        (double_second, "shard-3-of-4: contains shard 2/4, which would be used twice"),
        (change_config, "shard-4-of-4: prepared for another config: data.max_len was 77"),
        (divide_otherwise, "shards of 3 and 4"),
        (damage_one, "shard-2-of-4/train.tgt.npy: altered or damaged.*--shard 2/4"),
        (link_one, "shard-2-of-4: is a symlink"),
        (add_a_file, "shard-4-of-4: has a different train.files"),
        (change_val, "shard-4-of-4: has a different val.src"),
        (learn_again, "shard-2-of-4: has a different tokenizer/"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_is_not_one_corpus_is_not_joined(
    tmp_path: Path, change: Callable[[Config, Path], Config], message: str
) -> None:
    files = [PAIRS[number : number + 5] for number in range(0, 20, 5)]
    config, out = files_config(tmp_path, files), tmp_path / "out"
    prepare_all(config, out, 4)
    config = change(config, out)
    with pytest.raises(DataError, match=message):
        join_shards(config, out)


def test_an_odd_file_is_a_shard_like_any_other(tmp_path: Path) -> None:
    files = [PAIRS[:6], [], [("Gleich.", "Gleich.")] * 3, PAIRS[6:12]]
    config = files_config(tmp_path, files, filter={"copies": True})
    prepare_corpus(Inputs(config), tmp_path / "whole")
    joined = prepare_all(config, tmp_path / "out", 4)
    whole = open_prepared(tmp_path / "whole")
    assert lists(joined.split("train").tgt) == lists(whole.split("train").tgt)
    assert order_of(joined) == order_of(whole)
    assert joined.report().splits["train"].dropped == {"copies": 3}


@pytest.mark.parametrize("name", ["../shard-1-of-2", "shard-1-of-2/..", "shard-1-of-2\n"])
def test_a_manifest_that_leads_out_of_its_folder_is_refused(tmp_path: Path, name: str) -> None:
    config = config_of(tmp_path, {"train": PAIRS, "val": HELD_OUT})
    joined = prepare_all(config, tmp_path / "out", 2)
    document = json.loads((joined.folder / "manifest.json").read_text())
    document["shards"] = [name]
    (joined.folder / "manifest.json").write_text(json.dumps(document))
    with pytest.raises(DataError, match="shards"):
        open_prepared(joined.folder)


def test_a_corpus_of_which_nothing_is_left_is_not_joined(tmp_path: Path) -> None:
    files = [[("Gleich.", "Gleich.")] * 3] * 2
    config = files_config(tmp_path, files, filter={"copies": True})
    with pytest.raises(DataError, match="every pair of 'train' was dropped"):
        prepare(config, tmp_path / "out", Shard(1, 2))


def test_joining_replaces_what_was_prepared_at_once_and_a_damaged_manifest(tmp_path: Path) -> None:
    config = config_of(tmp_path, {"train": PAIRS, "val": HELD_OUT})
    prepare_corpus(Inputs(config), tmp_path / "out")
    joined = prepare_all(config, tmp_path / "out", 2)
    assert [path.name for path in joined.folder.glob("train.*")] == []
    (tmp_path / "out" / "manifest.json").write_text("{")
    assert join_shards(config, tmp_path / "out")[1] is True
    (tmp_path / "out" / "shard-1-of-2.bak").mkdir()
    assert len(open_prepared(tmp_path / "out").split("train")) == len(PAIRS)


def test_without_the_first_shard_others_have_no_tokenizers(tmp_path: Path) -> None:
    config = config_of(tmp_path, {"train": PAIRS, "val": HELD_OUT})
    with pytest.raises(DataError, match="the first shard learns the tokenizers"):
        prepare(config, tmp_path / "out", Shard(2, 4))
    with pytest.raises(DataError, match="no shards"):
        join_shards(config, tmp_path / "out")
    prepare(config, tmp_path / "out", Shard(1, 4))
    with pytest.raises(DataError, match="only shards; join them"):
        open_prepared(tmp_path / "out")


@pytest.mark.parametrize("text", ["0/4", "5/4", "4", "1/0", "a/b", "1/-2", "", "1/2/3"])
def test_shards_are_counted_from_one(text: str) -> None:
    with pytest.raises(UsageError, match="3/16"):
        Shard.parse(text)


def test_too_few_lines_for_so_many_shards_are_refused(tmp_path: Path) -> None:
    config = config_of(tmp_path, {"train": PAIRS[:3], "val": HELD_OUT})
    with pytest.raises(UsageError, match="too few lines for 4 shards"):
        prepare(config, tmp_path / "out", Shard(1, 4))


def test_tokenizers_learn_from_the_beginning_of_every_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(prepare_module, "PAIRS_LEARNED_FROM", 4)
    later = [("Zzz qqq.", "Zzz qqq.")] * 9
    files = [[*PAIRS[:2], *later], [*PAIRS[2:4], *later]]
    config = files_config(tmp_path, files)
    with caplog.at_level(logging.INFO):
        prepare(config, tmp_path / "out", Shard(1, 2))
    tokenizers = first_tokenizers(config, tmp_path / "out", Shard(2, 2))
    assert tokenizers is not None
    entries = tokenizers.src.entries
    assert "z" not in entries
    assert "w" in entries  # of "wartet" in the second file
