"""Which attention maps are chosen, and what stands at their rows and columns."""

import json
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from workspace import Workspace

from mt_cli.errors import UsageError
from mt_cli.model.attention_maps import MapKind
from mt_cli.stages.inspect.attention_files import choose_maps
from mt_cli.text.symbols import SPECIALS, UNK_ID
from mt_cli.text.vocabulary import Vocabulary
from mt_cli.text.words import JOINER, WordTokenizer
from mt_cli.translation.teacher_forcing import Attention, TeacherForced
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


# Which maps


def test_mean_of_the_last_cross_attention_is_the_default() -> None:
    attention = random_attention()
    maps = choose_maps(attention)
    (panel,) = maps.panels
    assert (maps.kind, maps.layer) == ("cross", 3)
    assert panel.title == "mean of 4 heads"
    np.testing.assert_allclose(panel.values, sum(attention.weights["cross"][2].numpy()) / 4, rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_last_layer_is_each_stacks_own(kind: MapKind) -> None:
    assert choose_maps(random_attention(), kind=kind).layer == LAYERS[kind]


@pytest.mark.parametrize("head", [1, 2, 4])
@pytest.mark.parametrize(
    ("kind", "layer"), [("encoder", 1), ("encoder", 2), ("decoder", 3), ("cross", 1), ("cross", 2)]
)
def test_layers_and_heads_are_counted_from_one(kind: MapKind, layer: int, head: int) -> None:
    attention = random_attention()
    maps = choose_maps(attention, kind=kind, layer=layer, head=str(head))
    (panel,) = maps.panels
    assert (maps.kind, maps.layer, panel.title) == (kind, layer, f"head {head}")
    np.testing.assert_array_equal(panel.values, attention.weights[kind][layer - 1, head - 1].numpy())


@pytest.mark.parametrize("kind", KINDS)
def test_mean_is_that_of_all_heads(kind: MapKind) -> None:
    (mean,) = choose_maps(random_attention(), kind=kind, layer=1).panels
    heads = [panel.values for panel in choose_maps(random_attention(), kind=kind, layer=1, head="all").panels]
    np.testing.assert_allclose(mean.values, (heads[0] + heads[1] + heads[2] + heads[3]) / 4, rtol=1e-6)


def test_all_gives_each_head_a_panel_in_order() -> None:
    attention = random_attention()
    panels = choose_maps(attention, kind="decoder", layer=2, head="all").panels
    assert [panel.title for panel in panels] == ["head 1", "head 2", "head 3", "head 4"]
    np.testing.assert_array_equal([panel.values for panel in panels], attention.weights["decoder"][1].numpy())


@pytest.mark.parametrize(
    ("kind", "title"),
    [
        ("encoder", "encoder self-attention, layer 1 of 2: rows attend to columns"),
        ("decoder", "decoder self-attention, layer 1 of 3: rows attend to columns"),
        ("cross", "cross-attention, layer 1 of 3: rows attend to columns"),
    ],
)
def test_title_names_attention_and_layer(kind: MapKind, title: str) -> None:
    assert choose_maps(random_attention(), kind=kind, layer=1).title == title


@pytest.mark.parametrize(
    ("kind", "layer", "message"),
    [
        ("encoder", 3, "--layer 3: the model's encoder self-attention has layers 1 to 2"),
        ("decoder", 4, "--layer 4: the model's decoder self-attention has layers 1 to 3"),
        ("cross", 99, "--layer 99: the model's cross-attention has layers 1 to 3"),
    ],
)
def test_layer_beyond_the_last_is_refused(kind: MapKind, layer: int, message: str) -> None:
    with pytest.raises(UsageError, match=f"^{re.escape(message)}$"):
        choose_maps(random_attention(), kind=kind, layer=layer)


@pytest.mark.parametrize(
    "head", ["0", "5", "-1", "x", "²", "٣", "1.0", "01", " 1", "", "1,2", "Mean", "ALL", "None"]
)
def test_head_that_is_none_is_refused(head: str) -> None:
    message = f"--head {head}: expected a number from 1 to 4, mean or all"
    with pytest.raises(UsageError, match=f"^{re.escape(message)}$"):
        choose_maps(random_attention(), head=head)


# Labels


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
    (panel,) = choose_maps(random_attention(), kind=kind).panels
    assert (panel.rows, panel.columns) == (rows, columns)


@SENTENCES
@pytest.mark.parametrize("kind", KINDS)
def test_each_row_and_column_has_a_label(translator: Translator, line: str, kind: MapKind) -> None:
    attention = translator.attention(line)
    rows, columns = attention.labels(kind)
    assert attention.weights[kind].shape == (1, 2, len(rows), len(columns))
    assert "" not in (*rows, *columns)


@SENTENCES
def test_source_tokens_spell_the_source_and_end(translator: Translator, line: str) -> None:
    pair = translator.teacher_force(line)
    ids = pair.src_ids[0].tolist()
    assert (ids[-1], pair.src_tokens[-1]) == (SPECIALS.index("</s>"), "</s>")
    assert len(ids) == len(pair.src_tokens) <= translator.model.max_len


def test_source_tokens_are_the_words_pieces(translator: Translator) -> None:
    *pieces, end = translator.teacher_force("Ein Mann schläft.").src_tokens
    assert "".join(pieces).replace("▁", " ").strip() == "Ein Mann schläft."
    assert end == "</s>"


def test_unknown_characters_are_shown_as_their_bytes(translator: Translator) -> None:
    tokens = translator.teacher_force("犬").src_tokens
    assert tokens == ("▁", *(f"<0x{byte:02X}>" for byte in "犬".encode()), "</s>")


@SENTENCES
def test_target_is_the_translation_that_translate_gives(translator: Translator, line: str) -> None:
    pair = translator.teacher_force(line)
    assert pair.translation == translator.translate([pair.source])[0]


def test_of_a_line_in_parts_the_first_is_looked_at(translator: Translator) -> None:
    assert translator.teacher_force(TOO_LONG).source == "Ein Mann schläft."


@SENTENCES
def test_target_tokens_are_the_predicted_ones_a_place_later(translator: Translator, line: str) -> None:
    pair = translator.teacher_force(line)
    assert pair.tgt_tokens == ("<s>", *pair.predicted_tokens[:-1])
    assert pair.tgt_in.shape == (1, len(pair.tgt_tokens))


def test_translation_cut_at_its_limit_has_no_end(workspace: Workspace, translator: Translator) -> None:
    lines = workspace.corpus("test.de").read_text(encoding="utf-8").splitlines()[:40]
    pairs = [
        translator.teacher_force(line) for line in [*lines, "Ein Mann.", "Zwei", "Ein Ein Ein", "Rot rot"]
    ]
    endless = [pair for pair in pairs if pair.predicted_tokens[-1] != "</s>"]
    assert 0 < len(endless) < len(pairs)
    for pair in endless:
        limit = min(int(1.5 * (len(pair.src_tokens) - 1)) + 10, translator.model.max_len - 1)
        assert len(pair.predicted_tokens) == limit


@SENTENCES
def test_predicted_tokens_are_the_models_choice_there(translator: Translator, line: str) -> None:
    pair = translator.teacher_force(line)
    with torch.no_grad():
        logits = translator.model(pair.src_ids, pair.tgt_in)[0]  # (T, V)
    logits[:, :3] = -torch.inf  # <pad>, <unk> and <s> are never said
    ids = logits.argmax(-1).tolist()
    assert ids[:-1] == pair.tgt_in[0, 1:].tolist()


@pytest.mark.parametrize("line", ["", " \t", "\u200b\ufeff", "\x00"], ids=ascii)
def test_empty_line_has_nothing_to_look_at(translator: Translator, line: str) -> None:
    with pytest.raises(UsageError, match=r"^the text is empty: there is nothing to look at; give a sentence"):
        translator.attention(line)


def test_words_are_labels_without_marks_and_unknown_ones_say_so() -> None:
    tokenizer = WordTokenizer("de", Vocabulary([*SPECIALS, "Ein", f"{JOINER}Hund", f"{JOINER}."]))
    assert tokenizer.tokens([4, UNK_ID, 5, 6]) == ["Ein", "<unk>", "Hund", "."]


def test_a_model_in_training_mode_is_looked_at_without_dropout(workspace: Workspace) -> None:
    translator = Translator.load(workspace.run, device="cpu", precision="fp32", threads=1)
    expected = translator.attention("Ein Hund.").weights["cross"]
    translator.model.train()
    assert torch.equal(translator.attention("Ein Hund.").weights["cross"], expected)


# As text and as JSON


def test_text_has_a_title_and_a_grid_for_each_panel() -> None:
    text = choose_maps(random_attention(), head="all").as_text(is_ascii=True)
    title, *grids = text.split("\n\n")
    assert title == "cross-attention, layer 3 of 3: rows attend to columns"
    assert [grid.split("\n")[0] for grid in grids] == ["head 1", "head 2", "head 3", "head 4"]
    assert [grid.split("\n")[-1].split()[0] for grid in grids] == ["</s>"] * 4


def test_json_holds_texts_labels_and_weights(tmp_path: Path) -> None:
    attention = random_attention()
    choose_maps(attention, kind="cross", layer=2, head="all").write(tmp_path / "a.json")
    document = json.loads(tmp_path.joinpath("a.json").read_bytes())
    weights = [one.pop("weights") for one in document["maps"]]
    np.testing.assert_array_equal(np.array(weights, np.float32), attention.weights["cross"][1].numpy())
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


def test_json_of_the_mean_says_so() -> None:
    document = choose_maps(random_attention()).as_json()
    assert json.loads(json.dumps(document))["maps"][0]["head"] == "mean"


def test_json_is_readable_utf8_and_ends_in_a_line_end(tmp_path: Path) -> None:
    choose_maps(random_attention()).write(tmp_path / "a.JSON")
    content = tmp_path.joinpath("a.JSON").read_bytes()
    assert "▁Ein".encode() in content
    assert content.endswith(b"}\n")


@pytest.mark.parametrize(("name", "start"), [("a.png", b"\x89PNG"), ("a.SVG", b"<?xml")])
def test_other_endings_are_pictures(tmp_path: Path, name: str, start: bytes) -> None:
    choose_maps(random_attention()).write(tmp_path / name)
    assert tmp_path.joinpath(name).read_bytes().startswith(start)
