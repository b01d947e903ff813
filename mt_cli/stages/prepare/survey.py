"""The first pass over a corpus: counts what there is and gathers what tokenizers learn from.

Knows raw and normalised pairs, never ids.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from mt_cli.artefacts.corpora import CorpusSplit, RawPair, read_pairs
from mt_cli.machine.progress import progress_bar
from mt_cli.machine.workers import ordered_map
from mt_cli.text.hashes import Hashes, hash_texts
from mt_cli.text.learning import SAMPLE_SIZE, PairSample, WordCounts, count_pairs
from mt_cli.text.normalize import decode_line, is_valid_utf8, normalize
from mt_cli.text.tokenizer import TextOptions

PAIRS_PER_JOB = 2000


@dataclass
class Survey:
    """What was found in some raw pairs; those with an empty side count as lines only."""

    lines: int = 0
    invalid: int = 0
    """Lines with a side that is not valid UTF-8."""
    src_hashes: Hashes = field(default_factory=lambda: np.empty(0, np.uint64))
    pair_hashes: Hashes = field(default_factory=lambda: np.empty(0, np.uint64))
    """Of each filled pair: eight bytes a pair."""
    counts: WordCounts = field(default_factory=WordCounts)
    pairs: list[tuple[str, str]] = field(default_factory=list)
    """The normalised pairs, or a sample of them."""

    @property
    def duplicates(self) -> int:
        """Pairs that repeat an earlier one."""
        return len(self.pair_hashes) - len(np.unique(self.pair_hashes))


@dataclass(frozen=True)
class SurveyJob:
    """What has to be known of some raw pairs."""

    options: TextOptions
    counts_words: bool
    samples_pairs: bool

    def __call__(self, raw: Sequence[RawPair]) -> Survey:
        """Survey `raw`."""
        pairs = [(self._normalize(src), self._normalize(tgt)) for src, tgt in raw]
        filled = [(src, tgt) for src, tgt in pairs if src and tgt]
        return Survey(
            lines=len(raw),
            invalid=sum(not (is_valid_utf8(src) and is_valid_utf8(tgt)) for src, tgt in raw),
            src_hashes=hash_texts(src for src, _ in filled),
            pair_hashes=hash_texts(f"{src}\n{tgt}" for src, tgt in filled),
            counts=count_pairs(filled, self.options) if self.counts_words else WordCounts(),
            pairs=filled if self.samples_pairs else [],
        )

    def _normalize(self, raw: bytes) -> str:
        return normalize(decode_line(raw), lowercase=self.options.lowercase)


def survey_split(split: CorpusSplit, job: SurveyJob, *, label: str, workers: int) -> Survey:
    """Read `split` once, holding no more of it than sorted hashes, counts and a sample."""
    whole, sample = Survey(), PairSample(SAMPLE_SIZE, seed=0)
    src_hashes, pair_hashes = [whole.src_hashes], [whole.pair_hashes]
    for part in ordered_map(job, read_groups(split, label=label), workers=workers):
        whole.lines += part.lines
        whole.invalid += part.invalid
        src_hashes.append(part.src_hashes)
        pair_hashes.append(part.pair_hashes)
        whole.counts.update(part.counts)
        for pair in part.pairs:
            sample.add(pair)
    whole.src_hashes = np.sort(np.concatenate(src_hashes))
    whole.pair_hashes = np.sort(np.concatenate(pair_hashes))
    whole.pairs = sample.pairs
    return whole


def count_common(hashes: Hashes, known: Sequence[Hashes]) -> int:
    """How many of `hashes` occur in one of the sorted `known`."""
    found = np.zeros(len(hashes), bool)
    for each in (each for each in known if len(each)):
        found |= each[np.minimum(np.searchsorted(each, hashes), len(each) - 1)] == hashes
    return int(found.sum())


def read_groups(split: CorpusSplit, *, label: str) -> Iterator[list[RawPair]]:
    """A split's raw pairs, `PAIRS_PER_JOB` at a time, with a progress bar where it takes long.

    Groups are the same however many workers take them, and so are the results.
    """
    pairs = read_pairs(split)
    # delay: a bar that would be gone at once is no help
    with progress_bar(label=label, unit=" lines", delay_s=1) as bar:
        while group := list(islice(pairs, PAIRS_PER_JOB)):
            yield group
            bar.update(len(group))
