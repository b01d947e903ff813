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

from mt_cli.errors import UsageError, WrongTypeError
from mt_cli.model.attention_maps import MapKind
from mt_cli.text.symbols import SPECIALS, UNK_ID
from mt_cli.text.vocabulary import Vocabulary
from mt_cli.text.words import JOINER, WordTokenizer
from mt_cli.translation.sentence_attention import Attention
from mt_cli.translation.teacher_forcing import TeacherForced
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
    maps = attention.maps()
    (panel,) = maps.panels
    assert (maps.kind, maps.layer) == ("cross", 3)
    assert panel.title == "mean of 4 heads"
    np.testing.assert_allclose(panel.values, sum(attention.weights["cross"][2].numpy()) / 4, rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_last_layer_is_each_stacks_own(kind: MapKind) -> None:
    assert random_attention().maps(kind=kind).layer == LAYERS[kind]


@pytest.mark.parametrize("head", [1, 2, 4])
@pytest.mark.parametrize(
    ("kind", "layer"), [("encoder", 1), ("encoder", 2), ("decoder", 3), ("cross", 1), ("cross", 2)]
)
def test_layers_and_heads_are_counted_from_one(kind: MapKind, layer: int, head: int) -> None:
    attention = random_attention()
    maps = attention.maps(kind=kind, layer=layer, head=str(head))
    (panel,) = maps.panels
    assert (maps.kind, maps.layer, panel.title) == (kind, layer, f"head {head}")
    np.testing.assert_array_equal(panel.values, attention.weights[kind][layer - 1, head - 1].numpy())


@pytest.mark.parametrize("kind", KINDS)
def test_mean_is_that_of_all_heads(kind: MapKind) -> None:
    (mean,) = random_attention().maps(kind=kind, layer=1).panels
    heads = [panel.values for panel in random_attention().maps(kind=kind, layer=1, head="all").panels]
    np.testing.assert_allclose(mean.values, (heads[0] + heads[1] + heads[2] + heads[3]) / 4, rtol=1e-6)


def test_all_gives_each_head_a_panel_in_order() -> None:
    attention = random_attention()
    panels = attention.maps(kind="decoder", layer=2, head="all").panels
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
    assert random_attention().maps(kind=kind, layer=1).title == title


@pytest.mark.parametrize(
    ("kind", "layer", "message"),
    [
        ("encoder", 3, "--layer 3: the model's encoder self-attention has layers 1 to 2"),
        ("decoder", 4, "--layer 4: the model's decoder self-attention has layers 1 to 3"),
        ("cross", 99, "--layer 99: the model's cross-attention has layers 1 to 3"),
    ],
)
def test_layer_beyond_the_last_is_refused(kind: MapKind, layer: int, message: str) -> None:
    with pytest.raises(UsageError, match=f"^layer={layer}: ") as caught:
        random_attention().maps(kind=kind, layer=layer)
    assert caught.value.with_flags() == message


@pytest.mark.parametrize("layer", [0, -1, True, 1.0, "1"], ids=repr)
def test_layer_that_is_no_number_from_one_is_refused(layer: Any) -> None:  # noqa: ANN401
    message = f"layer={layer!r}: the model's cross-attention has layers 1 to 3"
    with pytest.raises(UsageError, match=f"^{re.escape(message)}$"):
        random_attention().maps(layer=layer)


@pytest.mark.parametrize("kind", ["self", None, ["cross"]], ids=repr)
def test_kind_that_is_none_is_refused(kind: Any) -> None:  # noqa: ANN401
    message = f"kind: expected encoder, decoder, cross, found {kind!r}"
    with pytest.raises(UsageError, match=f"^{re.escape(message)}$"):
        random_attention().maps(kind)


@pytest.mark.parametrize(
    "head", ["0", "5", "-1", "x", "²", "٣", "1.0", "01", " 1", "", "1,2", "Mean", "ALL", "None"]
)
def test_head_that_is_none_is_refused(head: str) -> None:
    complaint = "expected a number from 1 to 4, mean or all"
    with pytest.raises(UsageError, match=f"^head={head!r}: {complaint}$") as caught:
        random_attention().maps(head=head)
    assert caught.value.with_flags() == f"--head {head}: {complaint}"


def test_head_may_be_a_number() -> None:
    by_number, by_text = (random_attention().maps(head=head) for head in (2, "2"))
    assert by_number.heads == by_text.heads == [2]
    np.testing.assert_array_equal(by_number.panels[0].values, by_text.panels[0].values)


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
    (panel,) = random_attention().maps(kind=kind).panels
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


# Of a translation by somebody else


def test_attention_to_the_translators_own_words_is_the_same_however_they_come(
    workspace: Workspace, translator: Translator
) -> None:
    # Known by heart, so that its translation ends.
    line = min(workspace.corpus("train.de").read_text(encoding="utf-8").splitlines(), key=len)
    (own,) = translator.translate([line])
    given, found = translator.attention(line, target=own), translator.attention(line)
    assert given.pair.predicted_tokens == found.pair.predicted_tokens
    torch.testing.assert_close(given.weights, found.weights, atol=0, rtol=0)


def test_given_translation_is_what_is_looked_at(translator: Translator) -> None:
    pair = translator.teacher_force("Ein Hund.", target=" A\u00a0man  sleeps. ")
    assert pair.translation == "A man sleeps."
    *pieces, end = pair.predicted_tokens
    assert "".join(pieces).replace("▁", " ").strip() == "A man sleeps."
    assert end == "</s>"
    assert pair.tgt_tokens == ("<s>", *pieces)
    assert pair.tgt_in.shape == (1, len(pieces) + 1)


def test_longest_translation_that_the_model_takes_is_looked_at(translator: Translator) -> None:
    weights = translator.attention("Ein Hund.", target="犬" * 15 + "A").weights["decoder"]
    assert weights.shape[-1] == translator.model.max_len == 48


@pytest.mark.parametrize(
    ("target", "found"), [("", 0), ("\u200b ", 0), ("犬" * 16, 49)], ids=["empty", "blank", "too long"]
)
def test_translation_that_the_model_cannot_take_is_refused(
    translator: Translator, target: str, found: int
) -> None:
    message = f"^target: expected 1 to 47 tokens, found {found}$"
    with pytest.raises(UsageError, match=message):
        translator.attention("Ein Hund.", target=target)


def test_translation_of_a_line_in_parts_is_refused(translator: Translator) -> None:
    with pytest.raises(UsageError, match=r"^the line is longer than the model takes; leave out target$"):
        translator.attention(TOO_LONG, target="A man sleeps.")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"line": None}, "line: expected a str, found None"),
        ({"line": ["Ein Hund."]}, "line: expected a str, found ['Ein Hund.']"),
        ({"line": "Ein Hund.", "target": 7}, "target: expected a str, found 7"),
    ],
    ids=str,
)
def test_line_of_another_type_is_refused(
    translator: Translator, arguments: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(WrongTypeError, match=f"^{re.escape(complaint)}$"):
        translator.attention(**arguments)


# In a notebook


def test_notebook_shows_the_picture_that_write_writes(tmp_path: Path) -> None:
    maps = random_attention().maps("decoder", layer=2, head="all")
    maps.write(str(tmp_path / "a.png"))
    assert maps._repr_png_() == tmp_path.joinpath("a.png").read_bytes()


def test_notebook_shows_the_mean_of_the_last_cross_attention() -> None:
    attention = random_attention()
    assert attention._repr_png_() == attention.maps("cross", layer=3, head="mean")._repr_png_()
    assert attention._repr_png_() != attention.maps("cross", layer=2)._repr_png_()


def test_representations_are_one_line_without_tensors() -> None:
    attention = random_attention()
    assert repr(attention) == (
        "<Attention of 'Ein Hund.' and 'A dog': 4 heads in 2 encoder and 3 decoder layers>"
    )
    assert repr(attention.maps(head=2)) == "AttentionMaps(kind='cross', layer=3, heads=[2])"
    assert repr(attention.pair) == "TeacherForced(source='Ein Hund.', translation='A dog')"


# As text and as JSON


def test_text_has_a_title_and_a_grid_for_each_panel() -> None:
    text = random_attention().maps(head="all").as_text(is_ascii=True)
    title, *grids = text.split("\n\n")
    assert title == "cross-attention, layer 3 of 3: rows attend to columns"
    assert [grid.split("\n")[0] for grid in grids] == ["head 1", "head 2", "head 3", "head 4"]
    assert [grid.split("\n")[-1].split()[0] for grid in grids] == ["</s>"] * 4


def test_json_holds_texts_labels_and_weights(tmp_path: Path) -> None:
    attention = random_attention()
    attention.maps(kind="cross", layer=2, head="all").write(tmp_path / "a.json")
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
    document = random_attention().maps().as_json()
    assert json.loads(json.dumps(document))["maps"][0]["head"] == "mean"


def test_json_is_readable_utf8_and_ends_in_a_line_end(tmp_path: Path) -> None:
    random_attention().maps().write(tmp_path / "a.JSON")
    content = tmp_path.joinpath("a.JSON").read_bytes()
    assert "▁Ein".encode() in content
    assert content.endswith(b"}\n")


def test_file_of_another_kind_is_refused_and_not_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"a\.gif: the file's ending says how to draw; use \.png,"):
        random_attention().maps().write(tmp_path / "a.gif")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("name", "start"), [("a.png", b"\x89PNG"), ("a.SVG", b"<?xml")])
def test_other_endings_are_pictures(tmp_path: Path, name: str, start: bytes) -> None:
    random_attention().maps().write(tmp_path / name)
    assert tmp_path.joinpath(name).read_bytes().startswith(start)
