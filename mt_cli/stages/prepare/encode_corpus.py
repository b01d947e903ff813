"""The second pass over a corpus: its pairs as ids, on disk.

Knows raw pairs and tokenizers, not how these were learned.
"""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from mt_cli.artefacts.corpora import TRAIN, Corpus, is_trained_on
from mt_cli.artefacts.split_files import SplitWriter
from mt_cli.config import Config
from mt_cli.data.encode import PairEncoder
from mt_cli.data.split import id_type
from mt_cli.errors import DataError
from mt_cli.machine.workers import ordered_map
from mt_cli.stages.prepare.survey import read_groups
from mt_cli.text.tokenizer import Tokenizers


@dataclass
class PairCounts:
    """What became of the pairs of some files."""

    num_pairs: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    """How many, by reason."""


def encode_split(
    config: Config, corpus: Corpus, name: str, tokenizers: Tokenizers, folder: Path, *, workers: int
) -> dict[str, PairCounts]:
    """Write the encoded split, in which more pairs follow those of `train`: what became of each."""
    is_train = name == TRAIN
    max_len = config.data.max_len if is_train else None
    src_type, tgt_type = id_type(tokenizers.src.vocab_size), id_type(tokenizers.tgt.vocab_size)
    counts = {part: PairCounts() for part in corpus if part == name or (is_train and is_trained_on(part))}
    with SplitWriter(folder, name, src_type=src_type, tgt_type=tgt_type) as writer:
        for part, so_far in counts.items():
            encoder = PairEncoder(tokenizers, max_len, corpus[part].tag)
            groups = read_groups(corpus[part], label=f"encoding {part}")
            for pairs in ordered_map(encoder, groups, workers=workers if is_train else 1):
                writer.write(pairs)
                so_far.num_pairs += len(pairs.kept)
                so_far.dropped.update(pairs.dropped)
            if is_train and not so_far.num_pairs:
                path = corpus[part].src.path
                raise DataError(f"{path}: every training pair was dropped: {dict(so_far.dropped)}")
    return counts
