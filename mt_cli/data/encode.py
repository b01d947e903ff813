"""Encoding raw lines: normalise, tokenise, and leave out training pairs that are of no use.

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


def encode_pairs(
    raw: Sequence[tuple[bytes, bytes]], tokenizers: Tokenizers, *, max_len: int | None, tag: str = ""
) -> EncodedPairs:
    """Normalise and encode raw lines; with a `max_len`, drop pairs with a side that is empty or longer.

    A `tag` is put before each source that is not empty.
    """
    lines = [(strip_line_end(src), strip_line_end(tgt)) for src, tgt in raw]
    sources = _normalize([src for src, _ in lines], tokenizers)
    if tag:
        sources = [f"{tag} {src}" if src else src for src in sources]
    src_ids = tokenizers.src.encode(sources)
    tgt_ids = tokenizers.tgt.encode(_normalize([tgt for _, tgt in lines], tokenizers))
    reasons: list[str | None] = [None] * len(raw)
    if max_len is not None:
        reasons = [_drop_reason(src, tgt, max_len) for src, tgt in zip(src_ids, tgt_ids, strict=True)]
    rows = [i for i, reason in enumerate(reasons) if reason is None]
    split = EncodedSplit(
        Sentences.of([src_ids[i] for i in rows], vocab_size=tokenizers.src.vocab_size),
        Sentences.of([tgt_ids[i] for i in rows], vocab_size=tokenizers.tgt.vocab_size),
    )
    dropped = Counter(reason for reason in reasons if reason)
    return EncodedPairs(split, [lines[i] for i in rows], dict(dropped))


def _normalize(lines: Sequence[bytes], tokenizers: Tokenizers) -> list[str]:
    return [normalize(decode_line(line), lowercase=tokenizers.options.lowercase) for line in lines]


def _drop_reason(src: Sequence[int], tgt: Sequence[int], max_len: int) -> str | None:
    if not src or not tgt:
        return "empty"
    return "too long" if max(len(src), len(tgt)) > max_len else None
