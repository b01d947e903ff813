"""The published designs of configs/classic: names, sizes and numbers of parameters."""

from pathlib import Path

import pytest
import torch

from mt_cli.config.load import load_config
from mt_cli.model.model import TranslationModel

CLASSIC = Path(__file__).resolve().parents[2] / "configs" / "classic"
# The notebook says only that 8 heads of 20 make 160; the page and the thread name no longest
# sentence.
PUBLISHED = {
    "slides-torch": (256, 8, 3, 3, 512, 100, "post", True, "learned", True, 0.1),
    "slides-scratch": (256, 8, 3, 3, 512, 100, "post", False, "learned", True, 0.1),
    "notebook": (160, 8, 3, 3, 640, 256, "post", False, "sinusoidal", True, 0.1),
    "page": (512, 8, 6, 6, 2048, 256, "post", False, "sinusoidal", True, 0.0),
    "note": (512, 8, 3, 3, 512, 50, "pre", True, "learned", False, 0.1),
    "thread": (512, 8, 6, 6, 2048, 256, "post", False, "learned", True, 0.3),
}
"""d_model, heads, layers of encoder and decoder, d_ff, and the longest sentence; where the norms
are, whether one follows each stack, the positions, embeddings times √D, and the dropout.
"""


@pytest.mark.parametrize("name", PUBLISHED)
def test_config_has_the_sizes_and_options_of_its_source(name: str) -> None:
    config = load_config(CLASSIC / f"{name}.toml").model
    layers = (config.encoder_layers, config.decoder_layers)
    sizes = (config.d_model, config.num_heads, *layers, config.d_ff, config.max_len)
    options = (config.norm, config.final_norm, config.positions, config.scale_embeddings)
    assert (*sizes, *options, config.dropout) == PUBLISHED[name]
    assert config.attention_dropout == config.dropout
    assert config.activation_dropout == (0.0 if name == "notebook" else config.dropout)


def test_note_has_as_many_parameters_as_published() -> None:
    config = load_config(CLASSIC / "note.toml").model
    with torch.device("meta"):  # without memory for its weights
        note = TranslationModel(config, 10_000, 8_200, generator=torch.default_generator)
    assert sum(parameter.numel() for parameter in note.parameters()) == 26_201_096
