"""Validation and test pairs cut off a corpus, so that training sees nothing of them.

Works on raw lines and hashes of their normalised text; the choice depends on the text alone, not on the order
of the lines.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mt_cli.artefacts.corpora import TRAIN, CorpusSplit, read_pairs
from mt_cli.errors import DataError
from mt_cli.text.hashes import Hashes, hash_texts
from mt_cli.text.normalize import decode_line, normalize, strip_line_end

SHARE = 0.05
FEWEST, MOST = 50, 2000
"""Pairs of a split: fewer give a score that says little, more cost training pairs and time."""
MOST_OF_A_SMALL_CORPUS = 0.1
SMALLEST_CORPUS = 20
"""Pairs that differ on both sides, without which there is nothing to cut off."""


@dataclass
class CutReport:
    """What became of a corpus's pairs."""

    pairs: dict[str, int] = field(default_factory=dict)
    """Pairs written, by split."""
    num_empty: int = 0
    """Pairs left out because a side has no text."""
    num_repeated: int = 0
    """Pairs left out because a held-out pair has the same source or the same target."""


def cut_off(
    corpus: CorpusSplit, names: Sequence[str], *, paths: Mapping[str, tuple[Path, Path]]
) -> CutReport:
    """Write the pairs of `corpus` to the `paths` (source, target) of `train` and of the new splits `names`.

    A pair stays out of training if its source or its target is that of a held-out pair, whatever its case
    and spaces.

    Raises:
        DataError: the corpus is too small, or its files do not align.
    """
    src_hashes, tgt_hashes, is_filled = _hash_sides(corpus)
    place_of = _choose(src_hashes, tgt_hashes, is_filled, names, origin=corpus.src.path)
    held_out = np.array(sorted(place_of), np.int64)
    repeats = np.isin(src_hashes, src_hashes[held_out]) | np.isin(tgt_hashes, tgt_hashes[held_out])
    report = CutReport(dict.fromkeys((TRAIN, *names), 0))
    with ExitStack() as stack:
        files = {
            name: [stack.enter_context(path.open("wb")) for path in paths[name]] for name in report.pairs
        }
        for index, pair in enumerate(read_pairs(corpus)):
            name = place_of.get(index, TRAIN)
            if not is_filled[index]:
                report.num_empty += 1
            elif name == TRAIN and repeats[index]:
                report.num_repeated += 1
            else:
                report.pairs[name] += 1
                for file, line in zip(files[name], pair, strict=True):
                    file.write(strip_line_end(line) + b"\n")
    if not report.pairs[TRAIN]:
        raise DataError(f"{corpus.src.path}: every pair repeats a held-out one; nothing is left to train on")
    return report


def _hash_sides(corpus: CorpusSplit) -> tuple[Hashes, Hashes, NDArray[np.bool_]]:
    """The hash of each normalised source and target, and whether both have text."""
    lines = (line for pair in read_pairs(corpus) for line in pair)
    columns = hash_texts(normalize(decode_line(line), lowercase=True) for line in lines).reshape(-1, 2)
    (empty,) = hash_texts([""])
    return columns[:, 0], columns[:, 1], (columns != empty).all(axis=1)


def _choose(
    src_hashes: Hashes,
    tgt_hashes: Hashes,
    is_filled: NDArray[np.bool_],
    names: Sequence[str],
    *,
    origin: Path,
) -> dict[int, str]:
    """The split of each pair that is held out: pairs that have no side in common, in the hashes' order."""
    num_different = min(len(np.unique(hashes[is_filled])) for hashes in (src_hashes, tgt_hashes))
    size = num_held_out(num_different)
    chosen = list(islice(_different(src_hashes, tgt_hashes, is_filled), size * len(names)))
    if num_different < SMALLEST_CORPUS or len(chosen) < size * len(names):
        raise DataError(
            f"{origin}: only {num_different} different pairs, too few to cut off {' and '.join(names)}; "
            f"{SMALLEST_CORPUS} at least are needed"
        )
    return {index: name for i, name in enumerate(names) for index in chosen[i * size : (i + 1) * size]}


def num_held_out(num_pairs: int) -> int:
    """Pairs of a held-out split, of `num_pairs` that differ."""
    wanted = min(MOST, max(FEWEST, round(num_pairs * SHARE)))
    return max(1, min(wanted, int(num_pairs * MOST_OF_A_SMALL_CORPUS)))


def _different(src_hashes: Hashes, tgt_hashes: Hashes, is_filled: NDArray[np.bool_]) -> Iterator[int]:
    """Indices of pairs of which no two share a side, as if drawn at random: by the hash of their source."""
    sources: set[int] = set()
    targets: set[int] = set()
    # Both sides decide, so that of several pairs with one source it is not the file's order.
    for index in np.lexsort((tgt_hashes, src_hashes)).tolist():
        src, tgt = int(src_hashes[index]), int(tgt_hashes[index])
        if is_filled[index] and src not in sources and tgt not in targets:
            sources.add(src)
            targets.add(tgt)
            yield index
