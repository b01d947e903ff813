"""`[data.augment]`: noisy copies as one more part of the training pairs."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

from mt_cli.config.load import parse_config
from mt_cli.config.schema import AUGMENT, Config
from mt_cli.data import scan
from mt_cli.data.augment import NoisyPairs
from mt_cli.data.corpora import find_corpus
from mt_cli.data.encoded import lines_path
from mt_cli.data.prepare import prepare_corpus
from mt_cli.data.prepared import open_prepared

NUM_PAIRS = 60
Configure = Callable[..., Config]


@pytest.fixture
def configure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Configure:
    """A config of numbered pairs with these keys of `[data.augment]`."""
    monkeypatch.chdir(tmp_path)
    for name, count in (("train", NUM_PAIRS), ("val", 2), ("more", 10)):
        numbers = range(count)
        src = [f"Ein Hund Nummer {number} schläft in {name}.\n" for number in numbers]
        tgt = [f"Dog number {number} sleeps in {name}.\n" for number in numbers]
        Path(f"{name}.de").write_text("".join(src), encoding="utf-8")
        Path(f"{name}.en").write_text("".join(tgt), encoding="utf-8")

    def make(**augment: object) -> Config:
        files = {}
        for name in ("train", "val"):
            files[name] = {"src": f"{name}.de", "tgt": f"{name}.en"}
        data = {
            "corpus": "files",
            "splits": ["train", "val"],
            "files": files,
            "more": {"second": {"src": "more.de", "tgt": "more.en"}},
            "augment": augment,
        }
        return parse_config({"data": data, "tokenizer": {"kind": "bpe", "vocab_size": 300}})

    return make


def copies(config: Config) -> list[tuple[str, str]]:
    noisy = NoisyPairs.of(find_corpus(config.data), config.data)
    assert noisy is not None
    return [(src.decode(), tgt.decode().strip()) for src, tgt in noisy.pairs()]


def test_it_is_off_by_default(configure: Configure) -> None:
    config = configure()
    assert NoisyPairs.of(find_corpus(config.data), config.data) is None


def test_every_pair_has_a_copy_where_the_share_is_one(configure: Configure) -> None:
    found = copies(configure(lower=1.0))
    assert found[3] == ("ein hund nummer 3 schläft in train.", "Dog number 3 sleeps in train.")
    assert len(found) == NUM_PAIRS


def test_share_is_about_that_of_the_pairs_and_the_seed_chooses(configure: Configure) -> None:
    half = copies(configure(capitals=0.5))
    assert 15 < len(half) < 45
    assert half == copies(configure(capitals=0.5))
    assert half != copies(configure(capitals=0.5, seed=2))


def test_joined_pairs_are_neighbours_on_both_sides(configure: Configure) -> None:
    for src, tgt in copies(configure(join=1.0)):
        numbers = [word for word in src.split() if word.isdecimal()]
        assert numbers == [word for word in tgt.split() if word.isdecimal()]
        assert 2 <= len(numbers) <= 3
        assert [int(number) for number in numbers] == list(
            range(int(numbers[0]), int(numbers[-1]) + 1)
        )


def test_named_parts_are_copied(configure: Configure) -> None:
    found = copies(configure(lower=1.0, parts=["second"]))
    assert len(found) == 10
    assert found[0][0] == "ein hund nummer 0 schläft in more."


@pytest.mark.parametrize(
    ("augment", "named"),
    [({"parts": ["none"]}, "none"), ({"lower": 1.5}, "lower"), ({"lowers": 1.0}, "lowers")],
    ids=["unknown part", "share above one", "unknown kind"],
)
def test_wrong_keys_are_named(configure: Configure, augment: dict[str, object], named: str) -> None:
    with pytest.raises((ValidationError, ValueError), match=named):
        configure(**augment)


def test_copies_are_a_portion_of_training_and_counted(configure: Configure, tmp_path: Path) -> None:
    config = configure(lower=0.5, join=0.3, share=0.5)
    result = prepare_corpus(config, out=tmp_path / "out")
    count = result.report.splits[AUGMENT].pairs
    split = open_prepared(tmp_path / "out", config).split("train")
    assert split.portions == ((NUM_PAIRS, 1.0), (10, 1.0), (count, 0.5))
    lines = lines_path(tmp_path / "out", "train", "src").read_text(encoding="utf-8").splitlines()
    assert len(lines) == NUM_PAIRS + 10 + count
    assert lines[-count:] == [src for src, _ in copies(config)]


def test_nothing_is_copied_of_a_pair_that_is_left_out(configure: Configure, tmp_path: Path) -> None:
    everything = copies(configure(lower=0.5, join=0.5))
    lines = Path("train.en").read_text(encoding="utf-8").splitlines()
    dropped = ["" if number % 5 == 0 else line for number, line in enumerate(lines)]
    Path("train.en").write_text("\n".join(dropped) + "\n", encoding="utf-8")
    config = configure(lower=0.5, join=0.5)
    prepare_corpus(config, out=tmp_path / "out")
    pairs = [
        lines_path(tmp_path / "out", "train", side).read_text(encoding="utf-8").splitlines()
        for side in ("src", "tgt")
    ]
    made = list(zip(*pairs, strict=True))[NUM_PAIRS * 4 // 5 + 10 :]
    assert len(made) > 20
    for src, tgt in made:
        numbers = re.findall(r"\d+", src)
        assert numbers == re.findall(r"\d+", tgt)
        assert all(int(number) % 5 for number in numbers)
    lowered = [pair for pair in made if pair[0].islower()]
    assert set(lowered) <= set(everything)  # the same ones as before


def test_group_size_and_workers_change_no_copy(
    configure: Configure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configure(typos=0.7, punctuation=0.4, accents=0.2, title=0.1)
    prepare_corpus(config, out=tmp_path / "first")
    monkeypatch.setattr(scan, "PAIRS_PER_JOB", 4)
    prepare_corpus(config, out=tmp_path / "second", workers=2)
    first, second = (
        lines_path(tmp_path / name, "train", "src").read_bytes() for name in ("first", "second")
    )
    assert first == second


def test_another_augmentation_prepares_again(configure: Configure, tmp_path: Path) -> None:
    assert prepare_corpus(configure(lower=0.5), out=tmp_path / "out").is_new
    assert not prepare_corpus(configure(lower=0.5), out=tmp_path / "out").is_new
    assert prepare_corpus(configure(lower=0.6), out=tmp_path / "out").is_new


def test_filters_see_copies_without_their_tags(configure: Configure, tmp_path: Path) -> None:
    config = configure(parts=["second"], lower=1.0)
    more = config.data.more["second"].model_copy(update={"tag": "<a-long-tag-of-a-part>"})
    filtered = config.data.filter.model_copy(update={"max_ratio": 2.0})
    data = config.data.model_copy(update={"more": {"second": more}, "filter": filtered})
    report = prepare_corpus(config.model_copy(update={"data": data}), out=tmp_path / "out").report
    assert report.splits[AUGMENT].pairs == report.splits["train+second"].pairs == 10


def test_copies_of_tagged_pairs_have_the_tag(configure: Configure) -> None:
    config = configure(parts=["second"], lower=1.0, join=1.0)
    more = config.data.more["second"].model_copy(update={"tag": "<back>"})
    data = config.data.model_copy(update={"more": {"second": more}})
    noisy = NoisyPairs.of(find_corpus(data), data)
    assert noisy is not None
    sources = [src.decode() for src, _ in noisy.pairs()]
    assert len(sources) > 10
    assert all(src.startswith("<back> ") and src.count("<back>") == 1 for src in sources)
