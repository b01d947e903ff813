"""Which attention maps are chosen, and what stands at their rows and columns."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from workspace import Workspace

from mt_cli.errors import UsageError
from mt_cli.model.inside import MapKind
from mt_cli.translation.attention import Attention, TeacherForced
from mt_cli.translation.translator import Translator

KINDS: tuple[MapKind, ...] = ("encoder", "decoder", "cross")
UNKNOWN = "Ein 犬 läuft 🐶."
TOO_LONG = "Ein Mann schläft. " * 20
SENTENCES = pytest.mark.parametrize(
    "line",
    ["Ein Mann schläft auf einer Bank.", ".", UNKNOWN, TOO_LONG, "<s> </s> <pad> <unk>"],
    ids=["usual", "one token", "unknown characters", "too long", "special symbols"],
)

# Sizes that all differ, so that a map taken for another shows.
LAYERS: Mapping[MapKind, int] = {"encoder": 2, "decoder": 3, "cross": 3}
HEADS = 4
PAIR = TeacherForced(
    source="Ein Hund.",
    translation="A dog",
    src_ids=torch.tensor([[4, 5, 6, 7, 3]]),
    tgt_in=torch.tensor([[2, 8, 9]]),
    src_tokens=("▁Ein", "▁Hu", "nd", ".", "</s>"),
    tgt_tokens=("<s>", "▁A", "▁dog"),
    predicted_tokens=("▁A", "▁dog", "</s>"),
)


def random_attention() -> Attention:
    """Maps of a model with several layers, as no model made them."""
    generator = torch.Generator().manual_seed(0)
    sizes = {"encoder": (5, 5), "decoder": (3, 3), "cross": (3, 5)}
    weights: dict[MapKind, Tensor] = {
        kind: torch.randn(LAYERS[kind], HEADS, *sizes[kind], generator=generator).softmax(-1)
        for kind in KINDS
    }
    return Attention(PAIR, weights)


@pytest.fixture(scope="module")
def translator(workspace: Workspace) -> Translator:
    return Translator.load(workspace.run, device="cpu", precision="fp32", threads=1)


@pytest.mark.parametrize("head", [1, 2, 4])
@pytest.mark.parametrize(
    ("kind", "layer"), [("encoder", 1), ("encoder", 2), ("decoder", 3), ("cross", 1), ("cross", 2)]
)
def test_layers_and_heads_are_counted_from_one(kind: MapKind, layer: int, head: int) -> None:
    attention = random_attention()
    maps = attention.maps(kind=kind, layer=layer, head=str(head))
    (panel,) = maps.panels
    assert (maps.kind, maps.layer, panel.title) == (kind, layer, f"head {head}")
    np.testing.assert_array_equal(
        panel.values, attention.weights[kind][layer - 1, head - 1].numpy()
    )


@pytest.mark.parametrize("kind", KINDS)
def test_mean_is_that_of_all_heads(kind: MapKind) -> None:
    (mean,) = random_attention().maps(kind=kind, layer=1).panels
    heads = [
        panel.values for panel in random_attention().maps(kind=kind, layer=1, head="all").panels
    ]
    np.testing.assert_allclose(
        mean.values, (heads[0] + heads[1] + heads[2] + heads[3]) / 4, rtol=1e-6
    )


@pytest.mark.parametrize(
    ("kind", "rows", "columns"),
    [
        ("encoder", PAIR.src_tokens, PAIR.src_tokens),
        ("decoder", PAIR.tgt_tokens, PAIR.tgt_tokens),
        ("cross", PAIR.predicted_tokens, PAIR.src_tokens),
    ],
    ids=KINDS,
)
def test_cross_rows_are_labelled_with_what_was_predicted_there(
    kind: MapKind, rows: tuple[str, ...], columns: tuple[str, ...]
) -> None:
    (panel,) = random_attention().maps(kind=kind).panels
    assert (panel.rows, panel.columns) == (rows, columns)


@SENTENCES
def test_target_is_the_translation_that_translate_gives(translator: Translator, line: str) -> None:
    pair = translator.teacher_force(line)
    assert pair.translation == translator.translate([pair.source])[0]


@SENTENCES
def test_predicted_tokens_are_the_models_choice_there(translator: Translator, line: str) -> None:
    pair = translator.teacher_force(line)
    with torch.no_grad():
        logits = translator.model(pair.src_ids, pair.tgt_in)[0]  # (T, V)
    logits[:, :3] = -torch.inf  # <pad>, <unk> and <s> are never said
    ids = logits.argmax(-1).tolist()
    assert ids[:-1] == pair.tgt_in[0, 1:].tolist()


def test_json_holds_texts_labels_and_weights(tmp_path: Path) -> None:
    attention = random_attention()
    attention.maps(kind="cross", layer=2, head="all").write(tmp_path / "a.json")
    document = json.loads(tmp_path.joinpath("a.json").read_bytes())
    weights = [one.pop("weights") for one in document["maps"]]
    np.testing.assert_array_equal(
        np.array(weights, np.float32), attention.weights["cross"][1].numpy()
    )
    assert document == {
        "source": "Ein Hund.",
        "translation": "A dog",
        "maps": [
            {
                "attention": "cross",
                "layer": 2,
                "head": head,
                "rows": ["▁A", "▁dog", "</s>"],
                "columns": ["▁Ein", "▁Hu", "nd", ".", "</s>"],
            }
            for head in (1, 2, 3, 4)
        ],
    }


def test_file_of_another_kind_is_refused_and_not_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"a\.gif: the file's ending says how to draw; use \.png,"):
        random_attention().maps().write(tmp_path / "a.gif")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (
            {"kind": "encoder", "layer": 3},
            "layer=3: the model's encoder self-attention has layers 1 to 2",
        ),
        ({"layer": 0}, "layer=0: the model's cross-attention has layers 1 to 3"),
        ({"layer": "1"}, "layer='1': the model's cross-attention has layers 1 to 3"),
        ({"head": "5"}, "head='5': expected a number from 1 to 4, mean or all"),
        ({"head": "x"}, "head='x': expected a number from 1 to 4, mean or all"),
        ({"kind": "self"}, "kind: expected encoder, decoder, cross, found 'self'"),
    ],
    ids=str,
)
def test_map_that_there_is_not_is_refused(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UsageError, match=f"^{re.escape(complaint)}$"):
        random_attention().maps(**options)


@pytest.mark.parametrize(
    ("line", "target", "complaint"),
    [
        ("", None, "the text is empty"),
        (" \t", None, "the text is empty"),
        ("Ein Hund.", "", "target: expected 1 to 47 tokens, found 0"),
        ("Ein Hund.", "犬" * 16, "target: expected 1 to 47 tokens, found 49"),
        (TOO_LONG, "A man sleeps.", "the line is longer than the model takes; leave out target"),
        (["Ein Hund."], None, "line: expected a str"),
    ],
    ids=["no line", "blank", "no target", "long target", "line in parts", "list"],
)
def test_what_cannot_be_looked_at_is_refused(
    translator: Translator,
    line: Any,  # noqa: ANN401
    target: str | None,
    complaint: str,
) -> None:
    with pytest.raises(UsageError, match=f"^{re.escape(complaint)}"):
        translator.attention(line, target=target)
