"""`Ensemble`: several models that predict each next token together.

It is searched like one model and never trained.
Letters: B batch, N beams, S source length, V target vocabulary.
"""

import math
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from mt_cli.model.backend import DecoderState
from mt_cli.model.translation_model import TranslationModel


class Ensemble(nn.Module):
    """The mean of the members' predicted probabilities (Sutskever et al. 2014, 3.6)."""

    def __init__(self, members: Sequence[TranslationModel]) -> None:
        """The `members` must share one vocabulary; all else may differ."""
        super().__init__()
        self.members = nn.ModuleList(members)
        self.max_len = min(member.max_len for member in members)
        self.pad_id = members[0].pad_id

    @property
    def longest_sentence(self) -> int:
        """Length in ids of the longest sentence that every member can take."""
        return self.max_len - 1

    @property
    def first(self) -> TranslationModel:
        """The member to use where only one model can be used."""
        return cast("TranslationModel", self.members[0])

    def start(self, src_ids: Tensor) -> DecoderState:
        """Encode `src_ids` (B, S) for a search."""
        return EnsembleState([member.start(src_ids) for member in self._models()])

    def step(self, ids: Tensor, state: DecoderState) -> Tensor:
        """Log-probabilities (B, N, V) of the token after `ids` (B, N), the latest of each beam.

        Advances `state`.
        """
        assert isinstance(state, EnsembleState)
        total: Tensor | None = None
        for member, own in zip(self._models(), state.states, strict=True):
            log_p = torch.log_softmax(member.step(ids, own).float(), dim=-1)
            total = log_p if total is None else torch.logaddexp(total, log_p)
        assert total is not None
        return total - math.log(len(state.states))

    def _models(self) -> Sequence[TranslationModel]:
        return cast("Sequence[TranslationModel]", self.members)


class EnsembleState:
    """What each member remembers between steps."""

    def __init__(self, states: Sequence[DecoderState]) -> None:
        self.states = states

    @property
    def length(self) -> int:
        """Target positions seen so far."""
        return self.states[0].length

    def keep(self, rows: Tensor) -> None:
        """Keep only the sentences `rows` (M,), in that order."""
        for state in self.states:
            state.keep(rows)

    def arrange(self, beams: Tensor) -> None:
        """Let beam n of sentence b continue its present beam `beams[b, n]`; `beams` is (B, N)."""
        for state in self.states:
            state.arrange(beams)
