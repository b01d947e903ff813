"""Which attention maps are chosen, and what stands at their rows and columns."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from workspace import Outcome, Workspace

from mt_cli.errors import UsageError
from mt_cli.look.attention import Attention, TeacherForced
from mt_cli.model.inside import MapKind
from mt_cli.translation.translator import Translator

TOO_LONG = "Ein Mann schläft. " * 20

# Sizes that all differ, so that a map taken for another shows.
LAYERS: Mapping[MapKind, int] = {"encoder": 2, "decoder": 3, "cross": 3}
SIZES: Mapping[MapKind, tuple[int, int]] = {"encoder": (5, 5), "decoder": (3, 3), "cross": (3, 5)}
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


@pytest.fixture
def attention() -> Attention:
    """Maps of a model with several layers, as no model made them."""
    generator = torch.Generator().manual_seed(0)
    weights = {
        kind: torch.randn(LAYERS[kind], HEADS, *size, generator=generator).softmax(-1)
        for kind, size in SIZES.items()
    }
    return Attention(PAIR, weights)


@pytest.fixture(scope="module")
def translator(workspace: Workspace) -> Translator:
    return Translator.load(workspace.run, device="cpu", precision="fp32", threads=1)


@pytest.mark.parametrize(
    ("kind", "rows", "columns"),
    [
        ("encoder", PAIR.src_tokens, PAIR.src_tokens),
        ("decoder", PAIR.tgt_tokens, PAIR.tgt_tokens),
        ("cross", PAIR.predicted_tokens, PAIR.src_tokens),
    ],
    ids=LAYERS,
)
def test_mean_is_that_of_all_heads_beside_the_tokens_that_attend_or_are_predicted(
    attention: Attention, kind: MapKind, rows: tuple[str, ...], columns: tuple[str, ...]
) -> None:
    mean = attention.maps(kind)["mean"]
    heads = [panel.values for panel in attention.maps(kind, head="all").values()]
    assert len(heads) == HEADS
    np.testing.assert_allclose(mean.values, sum(heads) / HEADS, rtol=1e-6)
    assert (mean.rows, mean.columns) == (rows, columns)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"kind": "encoder", "layer": 3}, "layer.*3.* 1 to 2"),
        ({"layer": 0}, "layer.*0.* 1 to 3"),
        ({"head": "x"}, "head.*x.* 1 to 4"),
        ({"kind": "self"}, "kind.*self"),
    ],
    ids=str,
)
def test_map_that_there_is_not_is_refused(
    attention: Attention, options: dict[str, Any], named: str
) -> None:
    with pytest.raises(UsageError, match=f"^{named}"):
        attention.maps(**options)


def test_json_holds_texts_labels_and_weights(attention: Attention, tmp_path: Path) -> None:
    attention.write(tmp_path / "a.json", "cross", layer=2, head="all")
    document = json.loads(tmp_path.joinpath("a.json").read_bytes())
    assert (document["source"], document["translation"]) == ("Ein Hund.", "A dog")
    assert [one["head"] for one in document["maps"]] == [1, 2, 3, 4]
    first = document["maps"][0]
    assert (first["attention"], first["layer"]) == ("cross", 2)
    assert (first["rows"], first["columns"]) == ([*PAIR.predicted_tokens], [*PAIR.src_tokens])
    weights = np.array([one["weights"] for one in document["maps"]], np.float32)
    np.testing.assert_array_equal(weights, attention.weights["cross"][1].numpy())


@pytest.mark.parametrize(
    "line",
    ["Ein Mann schläft auf einer Bank.", "Ein 犬 🐶.", TOO_LONG],
    ids=["usual", "unknown characters", "too long"],
)
def test_target_is_the_translation_which_the_model_chooses(
    translator: Translator, line: str
) -> None:
    pair = Attention.of(translator, line).pair
    assert pair.translation == translator.translate([pair.source])[0]
    with torch.no_grad():
        logits = translator.model(pair.src_ids, pair.tgt_in)[0]  # (T, V)
    logits[:, :3] = -torch.inf  # <pad>, <unk> and <s> are never said
    assert logits.argmax(-1)[:-1].tolist() == pair.tgt_in[0, 1:].tolist()


@pytest.mark.parametrize(
    ("line", "target", "named"),
    [
        (" \t", None, "text"),
        ("Ein Hund.", "", "target: .*1 to 47"),
        ("Ein Hund.", "犬" * 16, "target: .*1 to 47"),
        (TOO_LONG, "A man sleeps.", "target"),
    ],
    ids=["blank", "no target", "long target", "line in parts"],
)
def test_what_cannot_be_looked_at_is_refused(
    translator: Translator, line: str, target: str | None, named: str
) -> None:
    with pytest.raises(UsageError, match=named):
        Attention.of(translator, line, target=target)


def test_command_writes_a_file_and_prints_its_numbers_if_asked_to(
    workspace: Workspace, tmp_path: Path
) -> None:
    picture = tmp_path / "a.png"
    command = ("inspect", workspace.run, "--text", "Er schläft.", "--attention", picture)
    assert workspace.call(*command) == Outcome(0, b"", "")
    assert [*tmp_path.iterdir()] == [picture]
    document = json.loads(workspace.call(*command, "--head", 2, "--json").out)
    assert document["source"] == "Er schläft."
    assert [one["head"] for one in document["maps"]] == [2]


def test_maps_of_another_ending_are_refused(workspace: Workspace, tmp_path: Path) -> None:
    outcome = workspace.call("inspect", workspace.run, "--attention", "maps.gif", cwd=tmp_path)
    assert (outcome.code, outcome.out) == (2, b"")
    assert outcome.err.startswith("error: maps.gif: ")
    assert not any(tmp_path.iterdir())
