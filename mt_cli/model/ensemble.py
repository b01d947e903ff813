"""`Ensemble`: several models that predict as one."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
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
        self.longest_sentence = min(member.longest_sentence for member in members)

    @property
    def models(self) -> Sequence[TranslationModel]:
        """The members; where only one model can be used, it is the first."""
        return cast("Sequence[TranslationModel]", self.members)

    def start(self, src_ids: Tensor) -> DecoderState:
        """Encode `src_ids` (B, S) for a search."""
        return EnsembleState([model.start(src_ids) for model in self.models])

    def step(self, ids: Tensor, state: DecoderState) -> Tensor:
        """Log-probabilities (B, N, V) of the token after `ids` (B, N), the latest of each beam.

        Advances `state`.
        """
        assert isinstance(state, EnsembleState)
        log_probs = (
            torch.log_softmax(model.step(ids, own).float(), dim=-1)
            for model, own in zip(self.models, state.states, strict=True)
        )
        return reduce(torch.logaddexp, log_probs) - math.log(len(state.states))


@dataclass
class EnsembleState:
    """What each member remembers between steps."""

    states: Sequence[DecoderState]

    @property
    def length(self) -> int:
        """Target positions seen so far."""
        return self.states[0].length

    def select(self, sentences: Tensor) -> None:
        """Keep only `sentences` (M,), in that order."""
        for state in self.states:
            state.select(sentences)

    def reorder(self, parents: Tensor) -> None:
        """Let beam n of sentence b continue its present beam `parents[b, n]`, of (B, N)."""
        for state in self.states:
            state.reorder(parents)
