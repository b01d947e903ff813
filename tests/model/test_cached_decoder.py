"""Decoding with a cache: what it holds on to. That it computes the same is for `test_translation_model`."""

import gc
import weakref

import torch
from tiny import random_ids, tiny_model

from mt_cli.model.cached_decoder import CachedState


def test_state_is_freed_as_soon_as_nobody_needs_it() -> None:
    """Waiting for the garbage collector, it would take twice the memory."""
    model = tiny_model().eval()
    gc.disable()
    try:
        with torch.inference_mode():
            state = model.start(random_ids(2, 3))
            model.step(random_ids(2, 1), state)
        assert isinstance(state, CachedState)
        layer = weakref.ref(state.layers[0])
        del state
        assert layer() is None
    finally:
        gc.enable()
