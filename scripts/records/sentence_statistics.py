"""BLEU's counts of each sentence, small enough to be kept: scores and paired tests need no more than them.

Knows lines and numbers, nothing of runs. Letters: N sentences.

Kept of a sentence: its length, its reference's, and how many of its 1- to 4-grams the reference has. How many
n-grams there are in it follows from its length.
"""

import base64
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.significance import Result

from mt_cli.errors import DataError
from mt_cli.translation.randomisation import PairedRandomisation
from mt_cli.translation.scoring import bleu_metric
from mt_cli.translation.significance import TRIALS

Counts = NDArray[np.int64]
"""(N, 10), the columns as sacreBLEU has them: both lengths, matches by order, n-grams by order."""

NUM_KEPT = 6
"""Columns that the others follow from."""
ORDERS = np.arange(4)


def statistics_of(hyps: Sequence[str], refs: Sequence[str], *, lowercase: bool) -> Counts:
    """The counts of each of `hyps`."""
    metric = bleu_metric(lowercase=lowercase)
    return np.array(metric._extract_corpus_statistics(list(hyps), [list(refs)]), dtype=np.int64)


def pack(counts: Counts) -> str:
    """`counts` as text: 16 bits a number, column by column, compressed, base64."""
    columns = counts[:, :NUM_KEPT].T.astype("<u2")
    if not np.array_equal(_with_totals(columns.T.astype(np.int64)), counts):
        raise ValueError("counts that no lines of this length have")
    return base64.b64encode(zlib.compress(columns.tobytes(), 9)).decode()


def unpack(text: str, *, n: int) -> Counts:
    """The counts of `n` sentences in `text`.

    Raises:
        DataError: they are not in it.
    """
    try:
        data = zlib.decompress(base64.b64decode(text, validate=True))
        columns = np.frombuffer(data, dtype="<u2").reshape(NUM_KEPT, n)
    except (ValueError, zlib.error) as error:
        raise DataError(f"no statistics of {n} sentences: {error}") from error
    return _with_totals(columns.T.astype(np.int64))


def _with_totals(kept: Counts) -> Counts:
    """`kept` (N, 6) with the number of n-grams of each order, (N, 10)."""
    return np.hstack([kept, np.maximum(kept[:, :1] - ORDERS, 0)])


def bleu_of(counts: Counts) -> float:
    """Corpus BLEU."""
    return float(_KeptBLEU()._compute_score_from_stats(counts.sum(0).tolist()).score)


def p_value(baseline: Counts, system: Counts, *, trials: int = TRIALS) -> float | None:
    """How often chance makes a difference of BLEU as large: paired approximate randomisation.

    None where the scores are equal, and there is nothing to test.
    """
    if bleu_of(baseline) == bleu_of(system):
        return None
    named = [("baseline", baseline), ("system", system)]
    test = PairedRandomisation(named, {"BLEU": _KeptBLEU()}, None, trials=trials)  # type: ignore[arg-type]
    result = test()[1]["BLEU"][1]
    assert isinstance(result, Result)
    assert result.p_value is not None
    return float(result.p_value)


class _KeptBLEU(BLEU):
    """sacreBLEU's BLEU over counts in place of sentences."""

    def __init__(self) -> None:
        super().__init__(force=True)
        self.num_refs = 1

    def _extract_corpus_statistics(self, hypotheses, references):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        return hypotheses
