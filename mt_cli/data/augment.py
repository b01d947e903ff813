"""`[data.augment]`: noisy copies of training pairs, so that a model holds for what people type."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
from numpy.typing import NDArray

from mt_cli.config.schema import MORE, TRAIN, DataConfig
from mt_cli.data.corpora import Corpus, ParallelText, RawPair, tagged
from mt_cli.text.noise import joined, make_noise
from mt_cli.text.normalize import decode_line

MAX_JOINED = 3
NO_DROPS: Mapping[str, NDArray[np.uint8]] = {}


@dataclass(frozen=True)
class NoisyPairs:
    """Noisy copies of the pairs of some `parts` of a corpus, with the tags of these parts.

    Which pairs are copied, and how, depends on the seed, the part and the line alone. Of a pair
    that is left out, nothing is copied.
    """

    parts: Mapping[str, ParallelText]
    drops: Mapping[str, NDArray[np.uint8]]
    """By part, for each line: 0 if its pair is kept. Of other parts, all pairs are copied."""
    data: DataConfig
    has_tags: bool = True
    """Filters see the copies without tags, like the pairs themselves."""

    @staticmethod
    def of(
        corpus: Corpus, data: DataConfig, *, drops: Mapping[str, NDArray[np.uint8]] = NO_DROPS
    ) -> "NoisyPairs | None":
        """What `[data.augment]` adds to `corpus`; None if it is off.

        Parts that are not made yet are not in `corpus`, and not copied.
        """
        if not data.augment.shares:
            return None
        names = [name if name == TRAIN else f"{MORE}{name}" for name in data.augment.parts]
        return NoisyPairs({name: corpus[name] for name in names if name in corpus}, drops, data)

    def __str__(self) -> str:
        return f"noisy copies of {', '.join(map(str, self.parts.values()))}"

    def pairs(self) -> Iterator[RawPair]:
        """The copies, as raw lines."""
        for number, name in enumerate(self.parts):
            yield from self._copies(name, seed=f"{self.data.augment.seed} {number}")

    def _copies(self, name: str, *, seed: str) -> Iterator[RawPair]:
        latest: deque[RawPair] = deque(maxlen=MAX_JOINED)
        drops = self.drops.get(name)
        tag = self.data.tag_of(name) if self.has_tags else ""
        for number, pair in enumerate(self.parts[name].pairs()):
            if drops is not None and drops[number]:
                continue
            latest.append(pair)
            rng = Random(f"{seed} {number}")
            for kind, share in self.data.augment.shares.items():
                if rng.random() >= share:
                    continue
                if kind == "join":
                    count = rng.randint(2, MAX_JOINED)
                    if len(latest) >= count:
                        yield self._joined(list(latest)[-count:], tag=tag)
                else:
                    src, tgt = pair
                    text = make_noise(decode_line(src), kind, self.data.src_lang, rng)
                    yield tagged(text.encode(), tag), tgt

    def _joined(self, pairs: Sequence[RawPair], *, tag: str) -> RawPair:
        src = joined([decode_line(src) for src, _ in pairs], self.data.src_lang)
        tgt = joined([decode_line(tgt) for _, tgt in pairs], self.data.tgt_lang)
        return tagged(src.encode(), tag), tgt.encode()
