"""`FewShapes`: a model for search whose batches are filled up, so that its products come in few shapes.

Searched like the model it holds; what it adds is cut off again. Letters: B sentences, P of them with those
that fill up, N beams, S source length, V target vocabulary.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mt_cli.model.backend import DecoderState
from mt_cli.model.ensemble import Ensemble
from mt_cli.model.translation_model import TranslationModel


class FewShapes(nn.Module):
    """As `model`, computed for as many sentences and source positions as `round_up` makes of them."""

    def __init__(
        self, model: TranslationModel | Ensemble, *, pad_id: int, round_up: Callable[[int], int]
    ) -> None:
        super().__init__()
        self.model = model
        self.max_len = model.max_len
        self._pad_id, self._round_up = pad_id, round_up

    def start(self, src_ids: Tensor) -> DecoderState:
        """Encode `src_ids` (B, S) for a search."""
        B, S = src_ids.shape
        more_rows = self._round_up(B) - B
        more_places = min(self._round_up(S), self.max_len) - S
        # Copies of the last sentence, because a row of padding alone would be no number.
        filled = torch.cat([src_ids, src_ids[-1:].expand(more_rows, -1)])  # (P, S)
        filled = F.pad(filled, (0, more_places), value=self._pad_id)
        return FilledState(self.model.start(filled), len(filled), self._round_up)

    def step(self, ids: Tensor, state: DecoderState) -> Tensor:
        """What the model's step gives, (B, N, V), after `ids` (B, N); advances `state`."""
        assert isinstance(state, FilledState)
        filled = F.pad(ids, (0, 0, 0, state.num_rows - len(ids)))  # (P, N)
        scores: Tensor = self.model.step(filled, state.inner)
        return scores[: len(ids)]


class FilledState:
    """A model's state, whose last rows nobody looks at."""

    def __init__(self, inner: DecoderState, num_rows: int, round_up: Callable[[int], int]) -> None:
        self.inner, self.num_rows = inner, num_rows
        self._round_up = round_up

    @property
    def length(self) -> int:
        """Target positions seen so far."""
        return self.inner.length

    def keep(self, rows: Tensor) -> None:
        """Go on with the sentences `rows` (M,) only, in that order."""
        self.num_rows = min(self.num_rows, self._round_up(len(rows)))
        rest = torch.arange(len(rows), self.num_rows, device=rows.device)  # as they are
        self.inner.keep(torch.cat([rows, rest]))

    def arrange(self, beams: Tensor) -> None:
        """Let beam n of sentence b go on from its beam `beams[b, n]`, (B, N)."""
        self.inner.arrange(F.pad(beams, (0, 0, 0, self.num_rows - len(beams))))
