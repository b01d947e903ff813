"""Encoding: write the pairs of a split as ids."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mt_cli.config.schema import TRAIN, Config
from mt_cli.data.corpora import PairSource, RawPair
from mt_cli.data.encoded import EncodedSplit, Sentences, id_type, write_split
from mt_cli.data.scan import REASONS, normalized, read_groups
from mt_cli.errors import DataError
from mt_cli.machine.workers import ordered_map
from mt_cli.text.normalize import strip_line_end
from mt_cli.text.tokenizers import Tokenizers


def encode_split(
    config: Config,
    parts: Mapping[str, PairSource],
    name: str,
    tokenizers: Tokenizers,
    folder: Path,
    *,
    drops: Mapping[str, NDArray[np.uint8]],
    workers: int,
) -> dict[str, Counter[str]]:
    """Write `parts`, one after the other, as the split `name`; returns dropped pairs per part.

    `drops` has, for each line of a part, an index into `REASONS`.
    """
    is_train = name == TRAIN
    job = partial(
        encode_pairs, tokenizers=tokenizers, max_len=config.data.max_len if is_train else None
    )
    dropped: dict[str, Counter[str]] = {part: Counter() for part in parts}

    def encoded() -> Iterator[tuple[EncodedSplit, list[RawPair]]]:
        for part, text in parts.items():
            groups = read_groups(text, label=f"encoding {part}")
            if is_train:
                groups = _kept(groups, drops[part], dropped[part], part=part)
            for split, lines, num_too_long in ordered_map(
                job, groups, workers=workers if is_train else 1
            ):
                if num_too_long:
                    dropped[part]["too long"] += num_too_long
                yield split, lines

    write_split(
        folder,
        name,
        encoded(),
        src_type=id_type(tokenizers.src.vocab_size),
        tgt_type=id_type(tokenizers.tgt.vocab_size),
    )
    return dropped


def _kept(
    groups: Iterable[list[RawPair]], drops: NDArray[np.uint8], dropped: Counter[str], *, part: str
) -> Iterator[list[RawPair]]:
    """The groups without dropped lines, which are counted by reason.

    Raises:
        DataError: the number of lines differs from the first reading.
    """
    begin = 0
    for group in groups:
        codes = drops[begin : begin + len(group)].tolist()
        begin += len(group)
        if len(codes) < len(group):
            break
        dropped.update(REASONS[code] for code in codes if code)
        yield [pair for pair, code in zip(group, codes, strict=True) if not code]
    if begin != len(drops):
        raise DataError(f"the files of {part} changed while being read; try again")


def encode_pairs(
    raw: Sequence[RawPair], *, tokenizers: Tokenizers, max_len: int | None
) -> tuple[EncodedSplit, list[RawPair], int]:
    """Normalize and encode `raw` lines, with or without their line ends.

    Returns ids and lines of the pairs that are kept, and the number of pairs dropped because a side
    has more than `max_len` ids, if there is such a limit.
    """
    lines = [(strip_line_end(src), strip_line_end(tgt)) for src, tgt in raw]
    all_src = tokenizers.src.encode([normalized(src, tokenizers.options) for src, _ in lines])
    all_tgt = tokenizers.tgt.encode([normalized(tgt, tokenizers.options) for _, tgt in lines])
    src_ids = []
    tgt_ids = []
    kept = []
    for src, tgt, line in zip(all_src, all_tgt, lines, strict=True):
        if max_len is None or max(len(src), len(tgt)) <= max_len:
            src_ids.append(src)
            tgt_ids.append(tgt)
            kept.append(line)
    split = EncodedSplit(Sentences.of(src_ids), Sentences.of(tgt_ids))
    return split, kept, len(lines) - len(kept)
