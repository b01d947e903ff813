"""Which attention maps are chosen, and what stands at their rows and columns."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from workspace import Outcome, Workspace

from mt_cli.errors import UsageError
from mt_cli.model.attention_maps import MapKind
from mt_cli.translation.attention import Attention, TeacherForced
from mt_cli.translation.translator import Translator

KINDS: tuple[MapKind, ...] = ("encoder", "decoder", "cross")
TOO_LONG = "Ein Mann schläft. " * 20

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


# Maps


@pytest.mark.parametrize("head", [1, 4])
@pytest.mark.parametrize(("kind", "layer"), [("encoder", 2), ("decoder", 3), ("cross", 1)])
def test_layers_and_heads_are_counted_from_one(kind: MapKind, layer: int, head: int) -> None:
    attention = random_attention()
    maps = attention.maps(kind=kind, layer=layer, head=str(head))
    (panel,) = maps.panels
    assert (maps.kind, maps.layer, panel.title) == (kind, layer, f"head {head}")
    expected = attention.weights[kind][layer - 1, head - 1].numpy()
    np.testing.assert_array_equal(panel.values, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_mean_is_that_of_all_heads(kind: MapKind) -> None:
    attention = random_attention()
    (mean,) = attention.maps(kind=kind, layer=1).panels
    heads = [panel.values for panel in attention.maps(kind=kind, layer=1, head="all").panels]
    assert len(heads) == HEADS
    np.testing.assert_allclose(mean.values, sum(heads) / HEADS, rtol=1e-6)


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


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"kind": "encoder", "layer": 3}, "layer=3: .* 1 to 2"),
        ({"layer": 0}, "layer=0: .* 1 to 3"),
        ({"layer": "1"}, "layer='1': .* 1 to 3"),
        ({"head": "5"}, "head='5': .* 1 to 4"),
        ({"head": "x"}, "head='x': .* 1 to 4"),
        ({"kind": "self"}, "kind: .*'self'"),
    ],
    ids=str,
)
def test_map_that_there_is_not_is_refused(options: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError, match=f"^{named}"):
        random_attention().maps(**options)


def test_json_holds_texts_labels_and_weights(tmp_path: Path) -> None:
    attention = random_attention()
    attention.maps(kind="cross", layer=2, head="all").write(tmp_path / "a.json")
    document = json.loads(tmp_path.joinpath("a.json").read_bytes())
    assert (document["source"], document["translation"]) == ("Ein Hund.", "A dog")
    assert [one["head"] for one in document["maps"]] == [1, 2, 3, 4]
    first = document["maps"][0]
    assert (first["attention"], first["layer"]) == ("cross", 2)
    assert (first["rows"], first["columns"]) == ([*PAIR.predicted_tokens], [*PAIR.src_tokens])
    weights = np.array([one["weights"] for one in document["maps"]], np.float32)
    np.testing.assert_array_equal(weights, attention.weights["cross"][1].numpy())


# Sentences


@pytest.mark.parametrize(
    "line",
    ["Ein Mann schläft auf einer Bank.", "an", "Ein 犬 🐶.", TOO_LONG, "<s> </s> <pad> <unk>"],
    ids=["usual", "one word", "unknown characters", "too long", "special symbols"],
)
def test_target_is_the_translation_which_the_model_chooses(
    translator: Translator, line: str
) -> None:
    pair = translator.teacher_force(line)
    assert pair.translation == translator.translate([pair.source])[0]
    with torch.no_grad():
        logits = translator.model(pair.src_ids, pair.tgt_in)[0]  # (T, V)
    logits[:, :3] = -torch.inf  # <pad>, <unk> and <s> are never said
    assert logits.argmax(-1)[:-1].tolist() == pair.tgt_in[0, 1:].tolist()


@pytest.mark.parametrize(
    ("line", "target", "named"),
    [
        ("", None, "text"),
        (" \t", None, "text"),
        ("Ein Hund.", "", "target: .* 1 to 47 .* 0"),
        ("Ein Hund.", "犬" * 16, "target: .* 1 to 47 .* 49"),
        (TOO_LONG, "A man sleeps.", "target"),
        (["Ein Hund."], None, "line: "),
    ],
    ids=["no line", "blank", "no target", "long target", "line in parts", "list"],
)
def test_what_cannot_be_looked_at_is_refused(
    translator: Translator,
    line: Any,  # noqa: ANN401
    target: str | None,
    named: str,
) -> None:
    with pytest.raises(UsageError, match=named):
        translator.attention(line, target=target)


# `inspect --attention`


def inspect(workspace: Workspace, *args: object) -> Outcome:
    return workspace.call("inspect", workspace.run, "--text", "Er schläft.", *args)


@pytest.mark.parametrize("name", ["a.png", "a.json"])
def test_command_writes_a_file_and_prints_nothing(
    workspace: Workspace, tmp_path: Path, name: str
) -> None:
    assert inspect(workspace, "--attention", tmp_path / name) == Outcome(0, b"", "")
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_command_prints_the_numbers_as_json_too(workspace: Workspace, tmp_path: Path) -> None:
    flags = ("--attention", tmp_path / "a.png", "--head", 2, "--json")
    document = json.loads(inspect(workspace, *flags).out)
    assert document["source"] == "Er schläft."
    assert [one["head"] for one in document["maps"]] == [2]


def test_command_refuses_another_kind_of_file_and_writes_nothing(
    workspace: Workspace, tmp_path: Path
) -> None:
    assert inspect(workspace, "--attention", tmp_path / "a.gif").code == 2
    assert list(tmp_path.iterdir()) == []
