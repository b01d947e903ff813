"""One pass over a split: counts what there is, and gathers what tokenizers learn from."""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from mt_cli.config.schema import DataConfig, FilterConfig
from mt_cli.data.corpora import PairSource, RawPair, is_trained_on
from mt_cli.errors import DataError
from mt_cli.machine.terminal import progress_shown
from mt_cli.machine.workers import ordered_map
from mt_cli.text.language import other_language
from mt_cli.text.normalize import Hashes, decode_line, gist, hash_texts, is_valid_utf8, normalize
from mt_cli.text.sentences import split_sentences
from mt_cli.text.tokenizers import SAMPLE_SIZE, TextOptions, sampled

log = logging.getLogger(__name__)

KEPT = ""
EMPTY = "empty"
DUPLICATE = "duplicates"
REASONS = (KEPT, EMPTY, "copies", "max_ratio", "languages", DUPLICATE)
"""Why a pair is left out: a side is empty, or a key of [data.filter]; arrays hold their places."""
PAIRS_PER_JOB = 2000
COUNTED = 10
"""Every tenth pair tells how many sentences are in a line, for counting takes longest; in groups of
fewer than `FEW_PAIRS`, every pair.
"""
FEW_PAIRS = 500
Pair = tuple[str, str]


def text_options(data: DataConfig) -> TextOptions:
    """The options of the text in `[data]`."""
    return TextOptions(data.src_lang, data.tgt_lang, data.lowercase)


def drop_reason(src: str, tgt: str, config: FilterConfig, options: TextOptions) -> str:
    """Why this normalized pair is left out, judged alone; `KEPT` if it stays."""
    shorter, longer = sorted((len(src), len(tgt)))
    if not shorter:
        return EMPTY
    if config.copies and src == tgt:
        return "copies"
    if config.max_ratio and longer > config.max_ratio * shorter:
        return "max_ratio"
    if config.languages and (
        other_language(src, options.src_lang) or other_language(tgt, options.tgt_lang)
    ):
        return "languages"
    return KEPT


@dataclass
class SplitStatistics:
    """What was found in some raw pairs; those with an empty side count as lines only."""

    lines: int = 0
    invalid: int = 0
    """Lines with a side that is not valid UTF-8."""
    drops: NDArray[np.uint8] = field(default_factory=lambda: np.empty(0, np.uint8))
    """For each line, why its pair is left out, as a place in `REASONS`; 0 is kept."""
    src_hashes: Hashes = field(default_factory=lambda: np.empty(0, np.uint64))
    pair_hashes: Hashes = field(default_factory=lambda: np.empty(0, np.uint64))
    """Of each pair that is kept, eight bytes a pair; of its source, the gist."""
    num_sentences: Counter[int] = field(default_factory=Counter)
    """About as many sources as are kept, by their number of sentences."""
    pairs: list[Pair] = field(default_factory=list)
    """Kept pairs, normalized, or a sample of them; empty unless tokenizers are learned."""

    def dropped(self) -> Counter[str]:
        """How many pairs are left out, by reason."""
        counts = Counter(self.drops.tolist())
        return Counter({REASONS[code]: count for code, count in counts.items() if code})


def scan_split(
    split: PairSource,
    name: str,
    data: DataConfig,
    *,
    keeps_pairs: bool = False,
    is_whole: bool = True,
    workers: int,
) -> SplitStatistics:
    """Read `split` once, holding only sorted hashes, counts, drops and perhaps a sample of it.

    `[data.filter]` leaves pairs out of what is trained on.

    Raises:
        DataError: it is empty, and not a share that may be empty, but `is_whole`.
    """
    filtered = data.filter if is_trained_on(name) else FilterConfig()
    job = partial(
        scan_pairs, options=text_options(data), filtered=filtered, keeps_pairs=keeps_pairs
    )
    whole = SplitStatistics()
    src_hashes = [whole.src_hashes]
    pair_hashes = [whole.pair_hashes]
    drops = [whole.drops]
    groups = read_groups(split, label=f"reading {name}")

    def numbered_pairs() -> Iterator[tuple[int, Pair]]:
        number = 0
        for part in ordered_map(job, groups, workers=workers if is_trained_on(name) else 1):
            whole.lines += part.lines
            whole.invalid += part.invalid
            whole.num_sentences += part.num_sentences
            src_hashes.append(part.src_hashes)
            pair_hashes.append(part.pair_hashes)
            drops.append(part.drops)
            for pair in part.pairs:
                yield number, pair
                number += 1

    sample = sampled(numbered_pairs(), SAMPLE_SIZE, seed=0)
    whole.src_hashes = np.concatenate(src_hashes)
    whole.pair_hashes = np.concatenate(pair_hashes)
    whole.drops = np.concatenate(drops)
    repeats = _drop_repeats(whole) if filtered.duplicates else frozenset()
    whole.pairs = [pair for number, pair in sample if number not in repeats]
    whole.src_hashes.sort()
    whole.pair_hashes.sort()
    if whole.invalid:
        log.warning(
            "%s: %d pairs are not valid UTF-8; what could not be read is left out",
            name,
            whole.invalid,
        )
    if is_whole and not whole.lines:
        raise DataError(f"{split}: empty; '{name}' needs at least one line")
    if is_whole and is_trained_on(name) and whole.drops.all():
        raise DataError(f"{split}: every pair of '{name}' is left out: {dict(whole.dropped())}")
    return whole


def _drop_repeats(statistics: SplitStatistics) -> frozenset[int]:
    """Drop the pairs that repeat an earlier one; returns their places among the kept."""
    hashes = statistics.pair_hashes
    order = np.argsort(hashes, kind="stable")  # of equal ones, the first stays the first
    in_order = hashes[order]
    repeats = order[1:][in_order[1:] == in_order[:-1]]
    kept_lines = np.flatnonzero(statistics.drops == 0)
    statistics.drops[kept_lines[repeats]] = REASONS.index(DUPLICATE)
    statistics.src_hashes = np.delete(statistics.src_hashes, repeats)
    statistics.pair_hashes = np.delete(hashes, repeats)
    return frozenset(repeats.tolist())


def scan_pairs(
    raw: Sequence[RawPair], *, options: TextOptions, filtered: FilterConfig, keeps_pairs: bool
) -> SplitStatistics:
    """The statistics of the pairs `raw`; it `keeps_pairs` for tokenizers to learn from."""
    found = SplitStatistics(lines=len(raw))
    counted = 1 if len(raw) < FEW_PAIRS else COUNTED
    kept: list[Pair] = []
    reasons = []
    for raw_src, raw_tgt in raw:
        found.invalid += not (is_valid_utf8(raw_src) and is_valid_utf8(raw_tgt))
        src = normalized(raw_src, options)
        tgt = normalized(raw_tgt, options)
        reason = drop_reason(src, tgt, filtered, options)
        reasons.append(REASONS.index(reason))
        if reason == KEPT:
            kept.append((src, tgt))
            if len(kept) % counted == 0:
                # In the case of the file, as when a line is translated.
                sentences = split_sentences(normalize(decode_line(raw_src)), options.src_lang)
                found.num_sentences[len(sentences)] += counted
    found.drops = np.array(reasons, np.uint8)
    found.src_hashes = hash_texts(gist(src) for src, _ in kept)
    found.pair_hashes = hash_texts(f"{src}\n{tgt}" for src, tgt in kept)
    if keeps_pairs:
        found.pairs = kept
    return found


def normalized(raw: bytes, options: TextOptions) -> str:
    """The text of a raw line, as the model sees it."""
    return normalize(decode_line(raw), lowercase=options.lowercase)


def count_common(hashes: Hashes, known: Iterable[Hashes]) -> int:
    """How many of `hashes` occur in one of the sorted `known`."""
    found = np.zeros(len(hashes), bool)
    for each in known:
        if len(each):
            places = np.minimum(np.searchsorted(each, hashes), len(each) - 1)
            found |= each[places] == hashes
    return int(found.sum())


def read_groups(split: PairSource, *, label: str) -> Iterator[list[RawPair]]:
    """A split's raw pairs, `PAIRS_PER_JOB` at a time, with a progress bar.

    Groups are the same however many workers take them, and so are the results.
    """
    pairs = split.pairs()
    with progress_shown(label, unit="lines") as update:
        while group := list(islice(pairs, PAIRS_PER_JOB)):
            yield group
            update(len(group))
