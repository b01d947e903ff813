"""Masks: True means "may be attended"."""

import torch

from mt_cli.model.masks import causal_mask, padding_mask


def test_padding_mask_is_true_at_real_tokens() -> None:
    ids = torch.tensor([[5, 6, 3], [7, 0, 0]])
    assert padding_mask(ids, pad_id=0).tolist() == [[True, True, True], [True, False, False]]


def test_causal_mask_lets_each_position_see_itself_and_the_past() -> None:
    mask = causal_mask(3, device=torch.device("cpu"))
    assert mask.tolist() == [[True, False, False], [True, True, False], [True, True, True]]
