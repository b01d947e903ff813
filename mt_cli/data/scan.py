"""One pass over a split: statistics, hashes, and samples for checks and tokenizers."""

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
from mt_cli.text.normalize import Hashes, decode_line, hash_texts, is_valid_utf8, key_of, normalize
from mt_cli.text.sentences import split_sentences
from mt_cli.text.tokenizers import Sample, TextOptions

log = logging.getLogger(__name__)

KEPT = ""
EMPTY = "empty"
DUPLICATE = "duplicates"
REASONS = (KEPT, EMPTY, "copies", "max_ratio", "languages", DUPLICATE)
"""Why a pair is dropped: a side is empty, or a key of [data.filter]; arrays have the indices."""
PAIRS_PER_JOB = 2000
NUM_CHECKED = 10_000
"""Number of lines of a split for the checks."""
NUM_LEARNED_FROM = 500_000
"""Maximum pairs to learn tokenizers from; more would change little and cost memory."""
COUNTED = 10
"""Sentences are counted in every tenth pair only, because counting is slow; in groups of fewer than
`FEW_PAIRS`, in every pair.
"""
FEW_PAIRS = 500
Pair = tuple[str, str]


def text_options(data: DataConfig) -> TextOptions:
    """The options of the text in `[data]`."""
    return TextOptions(data.src_lang, data.tgt_lang, data.lowercase)


def drop_reason(src: str, tgt: str, config: FilterConfig, options: TextOptions) -> str:
    """Why this normalized pair is dropped, regardless of other pairs; `KEPT` if it is not."""
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
    """Statistics of raw pairs; no hashes are kept of those with an empty side."""

    lines: int = 0
    invalid: int = 0
    """Lines with a side that is not valid UTF-8."""
    drops: NDArray[np.uint8] = field(default_factory=lambda: np.empty(0, np.uint8))
    """For each line, why its pair is dropped, as an index into `REASONS`; 0 is kept."""
    src_hashes: Hashes = field(default_factory=lambda: np.empty(0, np.uint64))
    """Of the key of each kept source."""
    pair_hashes: Hashes = field(default_factory=lambda: np.empty(0, np.uint64))
    """Of each kept pair."""
    num_sentences: Counter[int] = field(default_factory=Counter)
    """Approximate number of kept sources, by number of sentences."""
    pairs: list[Pair] = field(default_factory=list)
    """Kept pairs, normalized, or a sample of them; empty unless tokenizers are learned."""
    sample: list[tuple[int, RawPair]] = field(default_factory=list)
    """A sample of lines for checks, in order, with line numbers from 0."""

    def dropped(self) -> Counter[str]:
        """The number of dropped pairs, by reason."""
        counts = Counter(self.drops.tolist())
        return Counter({REASONS[code]: count for code, count in counts.items() if code})


def scan_split(
    split: PairSource,
    name: str,
    data: DataConfig,
    *,
    keeps_pairs: bool = False,
    is_share: bool = False,
    workers: int = 1,
) -> SplitStatistics:
    """Read `split` once, keeping only sorted hashes, counts, drops and samples.

    `[data.filter]` applies to training splits.

    Raises:
        DataError: the split is empty, or all pairs of a training split are dropped, unless it is
            a shard's share.
    """
    filtered = data.filter if is_trained_on(name) else FilterConfig()
    job = partial(
        scan_pairs, options=text_options(data), filtered=filtered, keeps_pairs=keeps_pairs
    )
    lines: Sample[tuple[int, RawPair]] = Sample(NUM_CHECKED)

    def groups() -> Iterator[list[RawPair]]:
        begin = 0
        for group in read_groups(split, label=f"reading {name}"):
            lines.extend(enumerate(group, begin))
            begin += len(group)
            yield group

    statistics = SplitStatistics()
    src_hashes = [statistics.src_hashes]
    pair_hashes = [statistics.pair_hashes]
    drops = [statistics.drops]
    pairs: Sample[tuple[int, Pair]] = Sample(NUM_LEARNED_FROM)
    num_pairs = 0
    for part in ordered_map(job, groups(), workers=workers if is_trained_on(name) else 1):
        statistics.lines += part.lines
        statistics.invalid += part.invalid
        statistics.num_sentences += part.num_sentences
        src_hashes.append(part.src_hashes)
        pair_hashes.append(part.pair_hashes)
        drops.append(part.drops)
        pairs.extend(enumerate(part.pairs, num_pairs))
        num_pairs += len(part.pairs)
    statistics.src_hashes = np.concatenate(src_hashes)
    statistics.pair_hashes = np.concatenate(pair_hashes)
    statistics.drops = np.concatenate(drops)
    statistics.sample = sorted(lines.items)
    repeats = _drop_repeats(statistics) if filtered.duplicates else frozenset()
    statistics.pairs = [pair for number, pair in pairs.items if number not in repeats]
    statistics.src_hashes.sort()
    statistics.pair_hashes.sort()
    if statistics.invalid:
        log.warning(
            "%s: %d pairs are not valid UTF-8; skipped the invalid bytes",
            name,
            statistics.invalid,
        )
    if not statistics.lines and not is_share:
        raise DataError(f"{split}: the file is empty; '{name}' needs at least one line")
    if is_trained_on(name) and not is_share and statistics.drops.all():
        reasons = dict(statistics.dropped())
        raise DataError(f"{split}: every pair of '{name}' was dropped: {reasons}")
    return statistics


def _drop_repeats(statistics: SplitStatistics) -> frozenset[int]:
    """Drop pairs that repeat an earlier one; returns their indices among the kept pairs."""
    hashes = statistics.pair_hashes
    order = np.argsort(hashes, kind="stable")  # keeps the first of equal pairs first
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
    """The statistics of `raw` pairs; with `keeps_pairs`, pairs are kept to learn tokenizers."""
    statistics = SplitStatistics(lines=len(raw))
    counted = 1 if len(raw) < FEW_PAIRS else COUNTED
    kept: list[Pair] = []
    reasons = []
    for raw_src, raw_tgt in raw:
        statistics.invalid += not (is_valid_utf8(raw_src) and is_valid_utf8(raw_tgt))
        src = normalized(raw_src, options)
        tgt = normalized(raw_tgt, options)
        reason = drop_reason(src, tgt, filtered, options)
        reasons.append(REASONS.index(reason))
        if reason == KEPT:
            kept.append((src, tgt))
            if len(kept) % counted == 0:
                # In the file's case, as in translation.
                sentences = split_sentences(normalize(decode_line(raw_src)), options.src_lang)
                statistics.num_sentences[len(sentences)] += counted
    statistics.drops = np.array(reasons, np.uint8)
    statistics.src_hashes = hash_texts(key_of(src) for src, _ in kept)
    statistics.pair_hashes = hash_texts(f"{src}\n{tgt}" for src, tgt in kept)
    if keeps_pairs:
        statistics.pairs = kept
    return statistics


def normalized(raw: bytes, options: TextOptions) -> str:
    """The text of a raw line, as the model sees it."""
    return normalize(decode_line(raw), lowercase=options.lowercase)


def count_common(hashes: Hashes, sorted_hashes: Iterable[Hashes]) -> int:
    """How many of `hashes` occur in any of `sorted_hashes`."""
    is_common = np.zeros(len(hashes), bool)
    for in_order in sorted_hashes:
        if len(in_order):
            places = np.minimum(np.searchsorted(in_order, hashes), len(in_order) - 1)
            is_common |= in_order[places] == hashes
    return int(is_common.sum())


def read_groups(split: PairSource, *, label: str) -> Iterator[list[RawPair]]:
    """A split's raw pairs in groups of `PAIRS_PER_JOB`, with a progress bar.

    The groups, and so the results, do not depend on the number of workers.
    """
    pairs = split.pairs()
    with progress_shown(label, unit="lines") as update:
        while group := list(islice(pairs, PAIRS_PER_JOB)):
            yield group
            update(len(group))
