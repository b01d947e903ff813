"""Encoding raw lines: normalise, tokenise, and leave out unusable training pairs.

Knows bytes and ids, never files.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from mt_cli.data.split import EncodedSplit, Sentences
from mt_cli.text.normalize import decode_line, normalize, strip_line_end
from mt_cli.text.tokenizer import Tokenizers


@dataclass(frozen=True)
class EncodedPairs:
    """Some raw pairs, encoded."""

    split: EncodedSplit
    kept: list[tuple[bytes, bytes]]
    """The raw lines of `split`, without their line ends."""
    dropped: dict[str, int]
    """Pairs left out, by reason."""


@dataclass(frozen=True)
class PairEncoder:
    """Normalises and encodes raw pairs; can be sent to a worker process."""

    tokenizers: Tokenizers
    max_len: int | None
    """Pairs with a side that is empty or has more ids are dropped; with None, every pair is kept."""
    tag: str = ""
    """A word put before each source that is not empty."""

    def __call__(self, raw: Sequence[tuple[bytes, bytes]]) -> EncodedPairs:
        """Encode `raw` lines, with or without their line ends."""
        lines = [(strip_line_end(src), strip_line_end(tgt)) for src, tgt in raw]
        sources = [self._normalize(src) for src, _ in lines]
        if self.tag:
            sources = [f"{self.tag} {src}" if src else src for src in sources]
        src_ids = self.tokenizers.src.encode(sources)
        tgt_ids = self.tokenizers.tgt.encode([self._normalize(tgt) for _, tgt in lines])
        reasons = [self._drop_reason(src, tgt) for src, tgt in zip(src_ids, tgt_ids, strict=True)]
        rows = [i for i, reason in enumerate(reasons) if reason is None]
        split = EncodedSplit(
            Sentences.of([src_ids[i] for i in rows], vocab_size=self.tokenizers.src.vocab_size),
            Sentences.of([tgt_ids[i] for i in rows], vocab_size=self.tokenizers.tgt.vocab_size),
        )
        dropped = Counter(reason for reason in reasons if reason)
        return EncodedPairs(split, [lines[i] for i in rows], dict(dropped))

    def _normalize(self, line: bytes) -> str:
        return normalize(decode_line(line), lowercase=self.tokenizers.options.lowercase)

    def _drop_reason(self, src: Sequence[int], tgt: Sequence[int]) -> str | None:
        if self.max_len is None:
            return None
        if not src or not tgt:
            return "empty"
        return "too long" if max(len(src), len(tgt)) > self.max_len else None
