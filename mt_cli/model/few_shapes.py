"""`FewShapes`: pads a model's batches to a few sizes during a search (see `machine.ladder`).

Callers never see the padding or its results.
Letters: B sentences, P sentences after padding, N beams, S source length, V target vocabulary.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mt_cli.machine.ladder import rung
from mt_cli.model.backend import DecoderState
from mt_cli.model.ensemble import Ensemble
from mt_cli.model.translation_model import TranslationModel


class FewShapes(nn.Module):
    """Pads the inputs of `model` and drops the padding from its outputs."""

    def __init__(self, model: TranslationModel | Ensemble) -> None:
        super().__init__()
        self.model = model

    def start(self, src_ids: Tensor) -> DecoderState:
        """Encode `src_ids` (B, S) for a search."""
        B, S = src_ids.shape
        # Copies of the last sentence: a row of padding alone would give NaN.
        padded = torch.cat([src_ids, src_ids[-1:].expand(rung(B) - B, -1)])  # (P, S)
        padded = F.pad(padded, (0, min(rung(S), self.model.max_len) - S), value=self.model.pad_id)
        return PaddedState(self.model.start(padded), len(padded))

    def step(self, ids: Tensor, state: DecoderState) -> Tensor:
        """Output (B, N, V) of the model's step after `ids` (B, N); advances `state`."""
        assert isinstance(state, PaddedState)
        scores: Tensor = self.model.step(_pad_rows(ids, state.num_rows), state.inner)  # (P, N, V)
        return scores[: len(ids)]


@dataclass
class PaddedState:
    """A model's state whose last rows are padding."""

    inner: DecoderState
    num_rows: int
    """P."""

    @property
    def length(self) -> int:
        """Target positions seen so far."""
        return self.inner.length

    def keep(self, rows: Tensor) -> None:
        """Keep only the sentences `rows` (M,), in that order."""
        self.num_rows = min(self.num_rows, rung(len(rows)))
        rest = torch.arange(len(rows), self.num_rows, device=rows.device)  # padding: any rows will do
        self.inner.keep(torch.cat([rows, rest]))

    def arrange(self, beams: Tensor) -> None:
        """Let beam n of sentence b continue its present beam `beams[b, n]`; `beams` is (B, N)."""
        self.inner.arrange(_pad_rows(beams, self.num_rows))


def _pad_rows(x: Tensor, num_rows: int) -> Tensor:
    """`x` (B, N) with rows of zeros after it: (`num_rows`, N)."""
    return F.pad(x, (0, 0, 0, num_rows - len(x)))
