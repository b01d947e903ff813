"""`[data.augment]`: noisy copies as one more part of the training pairs."""

import re
from pathlib import Path

from small import Pairs, config_of, write_pairs

from mt_cli.config.schema import AUGMENT, Config
from mt_cli.data.corpora import find_corpus
from mt_cli.data.encoded import lines_path
from mt_cli.data.noise import NoisyPairs
from mt_cli.data.prepare import Inputs, prepare_corpus
from mt_cli.data.prepared import open_prepared
from mt_cli.text.numbers import changes_a_number

NUM_PAIRS = 60


def numbered(name: str, count: int) -> list[tuple[str, str]]:
    return [
        (f"Ein Hund Nummer {i} schläft in {name}.", f"Dog number {i} sleeps in {name}.")
        for i in range(count)
    ]


TRAIN = numbered("train", NUM_PAIRS)


def configure(folder: Path, augment: dict[str, object], *, train: Pairs = TRAIN) -> Config:
    more = write_pairs(folder, "more", numbered("more", 10))
    splits = {"train": train, "val": numbered("val", 2)}
    return config_of(folder, splits, more={"second": more}, augment=augment)


def copies(folder: Path, *, parts: tuple[str, ...] = ("train",), **kinds: float) -> Pairs:
    data = configure(folder, {"kinds": kinds, "parts": parts}).data
    noisy = NoisyPairs.of(find_corpus(data), data, {})
    assert noisy is not None
    return [(src.decode().strip(), tgt.decode().strip()) for src, tgt in noisy.pairs()]


def prepared_pairs(folder: Path) -> list[tuple[str, str]]:
    """All lines of training, added ones too."""
    src, tgt = (
        lines_path(folder, "train", side).read_text(encoding="utf-8").splitlines()
        for side in ("src", "tgt")
    )
    return list(zip(src, tgt, strict=True))


def test_share_is_about_that_of_the_pairs_and_always_the_same_ones(tmp_path: Path) -> None:
    whole = copies(tmp_path, parts=("second",), lower=1.0)
    assert whole == [(src.lower(), tgt) for src, tgt in numbered("more", 10)]
    half = copies(tmp_path, capitals=0.5)
    assert 15 < len(half) < 45
    assert half == copies(tmp_path, capitals=0.5)


def test_joined_pairs_are_neighbours_on_both_sides(tmp_path: Path) -> None:
    found = copies(tmp_path, join=1.0)
    numbers = [[list(map(int, re.findall(r"\d+", side))) for side in pair] for pair in found]
    assert [src for src, tgt in numbers if src != tgt] == []
    assert {len(src) for src, _ in numbers} == {2, 3}
    assert all(src == list(range(src[0], src[-1] + 1)) for src, _ in numbers)


def test_copies_are_a_portion_of_training_and_counted(tmp_path: Path) -> None:
    config = configure(tmp_path, {"kinds": {"lower": 0.5, "join": 0.3}, "share": 0.5})
    report, _ = prepare_corpus(Inputs(config), tmp_path / "out")
    count = report.splits[AUGMENT].pairs
    split = open_prepared(tmp_path / "out", config).split("train")
    assert split.portions == ((NUM_PAIRS, 1.0), (10, 1.0), (count, 0.5))
    expected = [*TRAIN, *numbered("more", 10), *copies(tmp_path, lower=0.5, join=0.3)]
    assert prepared_pairs(tmp_path / "out") == expected


def test_nothing_is_copied_of_a_pair_that_is_left_out(tmp_path: Path) -> None:
    everything = copies(tmp_path, lower=0.5, join=0.5)
    train = [(src, tgt if i % 5 else "") for i, (src, tgt) in enumerate(TRAIN)]
    config = configure(tmp_path, {"kinds": {"lower": 0.5, "join": 0.5}}, train=train)
    prepare_corpus(Inputs(config), tmp_path / "out")
    made = prepared_pairs(tmp_path / "out")[NUM_PAIRS * 4 // 5 + 10 :]
    numbers = [[re.findall(r"\d+", side) for side in pair] for pair in made]
    assert len(made) > 20
    assert all(src == tgt and all(int(each) % 5 for each in src) for src, tgt in numbers)
    lowered = {pair for pair in made if pair[0].islower()}
    assert lowered <= set(everything)  # the same ones as before


def test_numbers_are_others_and_the_same_on_both_sides(tmp_path: Path) -> None:
    found = copies(tmp_path, numbers=1.0)
    assert len(found) == NUM_PAIRS - 2  # of 0 and 1, a noun may have another form
    values = []
    for src, tgt in found:
        assert not changes_a_number(src, tgt, src_lang="de", tgt_lang="en")
        values.append(re.sub(r"\D", "", src))
    assert len(set(values)) > NUM_PAIRS / 2
    assert set(map(len, values)) == set(range(1, 7))
