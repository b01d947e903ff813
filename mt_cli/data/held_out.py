"""Splitting val and test off a corpus, so that training shares no side with them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mt_cli.config.schema import TRAIN
from mt_cli.data.corpora import ParallelText, SideFiles
from mt_cli.errors import DataError
from mt_cli.text.normalize import Hashes, decode_line, hash_texts, key_of, strip_line_end

SHARE = 0.05
MIN_PAIRS = 50
MAX_PAIRS = 2000
"""Size of a split: fewer pairs give unreliable scores, more cost training pairs and time."""
MAX_SHARE = 0.1
"""Maximum share of a small corpus per split."""
MIN_CORPUS = 20
"""Minimum number of pairs that differ on both sides."""
REPEATED = "whose source or target is in a held-out pair"
EMPTY = "because a side is empty"
"""Why pairs are skipped."""


def cut_off(corpus: ParallelText, files: Mapping[str, tuple[Path, Path]]) -> Counter[str]:
    """Write the pairs of `corpus` to the `files` of `train` and the new splits; returns the counts.

    A pair is excluded from training if its source or its target equals that of a held-out pair,
    ignoring case, spaces and final marks. Skipped pairs are counted as `REPEATED` or `EMPTY`.

    Raises:
        DataError: the corpus is too small, or its files do not align.
    """
    keys = []
    for src, tgt in corpus.pairs():
        keys += [key_of(decode_line(src)), key_of(decode_line(tgt))]
    hashes = hash_texts(keys).reshape(-1, 2)  # (N, 2)
    del keys
    is_filled = (hashes != hash_texts([""])).all(axis=1)
    new_splits = [name for name in files if name != TRAIN]
    split_of = _choose(hashes, is_filled, new_splits, origin=corpus.src)
    held_out = hashes[sorted(split_of)]
    is_repeated = np.isin(hashes[:, 0], held_out[:, 0]) | np.isin(hashes[:, 1], held_out[:, 1])
    counts: Counter[str] = Counter()
    changed = DataError(f"{corpus.src}: changed while being read; try again")
    with ExitStack() as stack:
        opened = {}
        for name, (src_path, tgt_path) in files.items():
            src_file = stack.enter_context(src_path.open("wb"))
            opened[name] = (src_file, stack.enter_context(tgt_path.open("wb")))
        for i, (src, tgt) in enumerate(corpus.pairs()):
            if i == len(hashes):
                raise changed
            if not is_filled[i]:
                name = EMPTY
            elif i in split_of:
                name = split_of[i]
            else:
                name = REPEATED if is_repeated[i] else TRAIN
            counts[name] += 1
            if name in opened:
                src_file, tgt_file = opened[name]
                src_file.write(strip_line_end(src) + b"\n")
                tgt_file.write(strip_line_end(tgt) + b"\n")
    if counts.total() < len(hashes):
        raise changed
    if not counts[TRAIN]:
        raise DataError(
            f"{corpus.src}: every pair repeats a held-out pair; nothing is left to train"
        )
    return counts


def _choose(
    hashes: Hashes, is_filled: NDArray[np.bool_], names: Sequence[str], *, origin: SideFiles
) -> dict[int, str]:
    """Choose random held-out pairs, no two of which share a side, and their splits."""
    src, tgt = hashes[is_filled].T
    num_different = min(len(np.unique(src)), len(np.unique(tgt)))
    size = num_held_out(num_different)
    chosen: dict[int, str] = {}
    src_seen: set[int] = set()
    tgt_seen: set[int] = set()
    # In hash order, source first, then target, so that the choice does not depend on file order.
    for i in np.lexsort((hashes[:, 1], hashes[:, 0])).tolist():
        if len(chosen) == size * len(names):
            break
        src_hash, tgt_hash = hashes[i].tolist()
        if is_filled[i] and src_hash not in src_seen and tgt_hash not in tgt_seen:
            src_seen.add(src_hash)
            tgt_seen.add(tgt_hash)
            chosen[i] = names[len(chosen) // size]
    if num_different < MIN_CORPUS or len(chosen) < size * len(names):
        raise DataError(
            f"{origin}: only {num_different} different pairs; splitting off val and test needs "
            f"{MIN_CORPUS}"
        )
    return chosen


def num_held_out(num_pairs: int) -> int:
    """Size of a held-out split for `num_pairs` different pairs."""
    wanted = min(MAX_PAIRS, max(MIN_PAIRS, round(num_pairs * SHARE)))
    return max(1, min(wanted, int(num_pairs * MAX_SHARE)))
