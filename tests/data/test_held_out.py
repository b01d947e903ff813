"""Held-out pairs: training sees nothing of them."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import spanish

from mt_cli.config.schema import FilesConfig
from mt_cli.data.corpora import ParallelText
from mt_cli.data.held_out import REPEATED, cut_off, num_held_out
from mt_cli.errors import DataError

Pairs = Sequence[tuple[str, str]]
SPLITS = ("train", "val", "test")


def cut(folder: Path, pairs: Pairs) -> Counter[str]:
    """Cut the pairs off `pairs` into `folder`."""
    folder.mkdir()
    src, tgt = paths(folder, "corpus")
    for path, lines in zip((src, tgt), zip(*pairs, strict=True), strict=True):
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    corpus = ParallelText.of(FilesConfig(src=(src,), tgt=(tgt,)))
    return cut_off(corpus, {name: paths(folder, name) for name in SPLITS})


def paths(folder: Path, split: str) -> tuple[Path, Path]:
    return folder / f"{split}.es", folder / f"{split}.en"


def read(folder: Path, split: str) -> Pairs:
    src, tgt = (path.read_text(encoding="utf-8").splitlines() for path in paths(folder, split))
    return list(zip(src, tgt, strict=True))


def test_every_pair_is_in_one_split(tmp_path: Path) -> None:
    pairs = spanish.pairs(200)
    counts = cut(tmp_path / "cut", pairs)
    found = [pair for name in SPLITS for pair in read(tmp_path / "cut", name)]
    assert len(found) + counts[REPEATED] == len(pairs)
    assert set(found) <= set(pairs)
    assert all(counts[name] == len(read(tmp_path / "cut", name)) for name in SPLITS)
    assert (counts["val"], counts["test"]) == (20, 20)


def test_a_corpus_that_changes_meanwhile_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = spanish.pairs(100)
    readings = iter([first, spanish.pairs(99)])

    def read_once(_: ParallelText) -> Iterator[tuple[bytes, bytes]]:
        for src, tgt in next(readings):
            yield src.encode(), tgt.encode()

    monkeypatch.setattr(ParallelText, "pairs", read_once)
    with pytest.raises(DataError, match="changed while being read"):
        cut(tmp_path / "cut", first)


@pytest.mark.parametrize("side", [0, 1], ids=["source", "target"])
def test_nothing_of_a_held_out_pair_stays_in_training(tmp_path: Path, side: int) -> None:
    pairs = spanish.pairs(100)
    # Each pair again in other letters and spaces, with another target, and with another source.
    again = [(f" {src.upper()}", tgt.replace(" ", "  ")) for src, tgt in pairs]
    again += [(src, f"{tgt} {i}") for i, (src, tgt) in enumerate(pairs)]
    again += [(f"{src} {i}", tgt) for i, (src, tgt) in enumerate(pairs)]
    cut(tmp_path / "cut", pairs + again)
    splits = {name: read(tmp_path / "cut", name) for name in SPLITS}
    train, val, test = (
        [" ".join(pair[side].lower().split()) for pair in splits[name]] for name in SPLITS
    )
    assert set(train).isdisjoint(val + test)
    assert len({*val, *test}) == len(val + test)


def test_too_few_pairs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"corpus\.es: only 10 different pairs"):
        cut(tmp_path / "cut", spanish.pairs(10) * 5)


@pytest.mark.parametrize(
    ("num_pairs", "expected"), [(20, 2), (775, 50), (29_000, 1450), (5_000_000, 2000)]
)
def test_small_corpora_give_a_tenth_and_large_ones_no_more_than_a_score_needs(
    num_pairs: int, expected: int
) -> None:
    assert num_held_out(num_pairs) == expected
