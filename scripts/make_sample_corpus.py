"""Write the sample corpus: German captions with English translations, from a small grammar.

Owns the splits, and which combinations of words training never shows. What is drawn is in
`sample_corpus.sentences`, forms and order in `sample_corpus.grammar`, the words in `sample_corpus.lexicon`
and `sample_corpus.verbs`.
"""

import argparse
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

from sample_corpus.grammar import Combination
from sample_corpus.sentences import Pair, Sampler

SEED = 1
SIZES = {"train": 5000, "val": 200, "test": 200}
HELD_OUT_PERCENT = 12
MIN_HELD_OUT = 2
"""Held-out combinations in every sentence of val and test."""
MIN_COUNT = 5
"""Times that training shows every word of val and test."""
MAX_WORDS = 18
DEFAULT_OUT = Path(__file__).resolve().parent.parent / "data" / "sample"


def make_corpus(*, seed: int = SEED) -> dict[str, list[Pair]]:
    """All splits: training without any held-out combination, val and test with at least two."""
    sampler = Sampler(Random(seed))
    seen: set[str] = set()
    train = _draw(sampler, SIZES["train"], seen, lambda pair: count_held_out(pair) == 0)
    de_counts = Counter(word for pair in train for word in bare_words(pair.de))
    en_counts = Counter(word for pair in train for word in bare_words(pair.en))

    def is_fit(pair: Pair) -> bool:
        is_known = all(de_counts[word] >= MIN_COUNT for word in bare_words(pair.de))
        is_known = is_known and all(en_counts[word] >= MIN_COUNT for word in bare_words(pair.en))
        return is_known and count_held_out(pair) >= MIN_HELD_OUT

    return {"train": train} | {name: _draw(sampler, SIZES[name], seen, is_fit) for name in ("val", "test")}


def write_corpus(corpus: dict[str, list[Pair]], folder: Path) -> None:
    """Write `<split>.de` and `<split>.en`, one sentence a line."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, pairs in corpus.items():
        (folder / f"{name}.de").write_bytes("".join(f"{pair.de}\n" for pair in pairs).encode())
        (folder / f"{name}.en").write_bytes("".join(f"{pair.en}\n" for pair in pairs).encode())


def count_held_out(pair: Pair) -> int:
    """How many of a sentence's combinations training must not show."""
    return sum(is_held_out(combination) for combination in pair.combinations)


def is_held_out(combination: Combination) -> bool:
    """Whether only val and test may show a combination: a fixed choice by checksum, the same everywhere."""
    return zlib.crc32(" ".join(combination).encode()) % 100 < HELD_OUT_PERCENT


def bare_words(line: str) -> list[str]:
    """Words without punctuation, case kept."""
    return [word.strip(".,") for word in line.split()]


def _draw(sampler: Sampler, size: int, seen: set[str], is_wanted: Callable[[Pair], bool]) -> list[Pair]:
    """Draw pairs with new source sentences, and note those in `seen`."""
    pairs: list[Pair] = []
    while len(pairs) < size:
        pair = sampler.pair()
        if pair.de not in seen and len(pair.de.split()) <= MAX_WORDS and is_wanted(pair):
            seen.add(pair.de)
            pairs.append(pair)
    return pairs


def main() -> None:
    """Write the corpus into a folder."""
    parser = argparse.ArgumentParser(description="Write the sample corpus.")
    parser.add_argument("folder", nargs="?", type=Path, default=DEFAULT_OUT, help="where to write it")
    write_corpus(make_corpus(), parser.parse_args().folder)


if __name__ == "__main__":
    main()
