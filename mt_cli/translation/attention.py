"""`Attention`: how much each token attends to each other one, for a sentence and its translation.

Letters: S source length, T target length, L layers, H heads.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from mt_cli.errors import Option, UsageError
from mt_cli.machine.files import write_json
from mt_cli.model.attention_maps import MapKind, attention_maps
from mt_cli.model.model import TranslationModel
from mt_cli.pictures.figures import PICTURES, Panel, check_ending, write_picture
from mt_cli.text import BOS_ID, EOS_ID, SPECIALS
from mt_cli.text.tokenizers import Tokenizers

TITLES: Mapping[MapKind, str] = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "cross-attention",
}
ENDINGS = (*PICTURES, ".json")
"""Endings of the files that maps can be written to."""


@dataclass(frozen=True, eq=False)
class TeacherForced:
    """A sentence and a translation, as the model is given them in training: one row each."""

    source: str
    translation: str
    src_ids: Tensor = field(repr=False)
    """(1, S), ending in `</s>`."""
    tgt_in: Tensor = field(repr=False)
    """(1, T), beginning with `<s>`."""
    src_tokens: tuple[str, ...] = field(repr=False)
    """The token at each of the S source positions."""
    tgt_tokens: tuple[str, ...] = field(repr=False)
    """The token at each of the T target positions."""
    predicted_tokens: tuple[str, ...] = field(repr=False)
    """The token that is predicted at each of them: the next one."""

    @classmethod
    def of(
        cls,
        source: str,
        translation: str,
        *,
        src_ids: Sequence[int],
        tgt_ids: Sequence[int],
        is_complete: bool,
        tokenizers: Tokenizers,
        device: torch.device,
    ) -> "TeacherForced":
        """The pair as tensors on `device`, and its tokens.

        A translation that `is_complete` has one more position, which predicts `</s>`.
        """
        tokens = tokenizers.tgt.tokens(tgt_ids)
        num_positions = len(tgt_ids) + is_complete
        return cls(
            source=source,
            translation=translation,
            src_ids=torch.tensor([[*src_ids, EOS_ID]], device=device),
            tgt_in=torch.tensor([[BOS_ID, *tgt_ids][:num_positions]], device=device),
            src_tokens=(*tokenizers.src.tokens(src_ids), SPECIALS[EOS_ID]),
            tgt_tokens=(SPECIALS[BOS_ID], *tokens)[:num_positions],
            predicted_tokens=(*tokens, SPECIALS[EOS_ID])[:num_positions],
        )


@dataclass(frozen=True, eq=False)
class AttentionMaps:
    """Maps of one layer."""

    pair: TeacherForced = field(repr=False)
    kind: MapKind
    layer: int
    """From 1."""
    title: str = field(repr=False)
    heads: Sequence[int | str]
    """From 1, or `mean`."""
    panels: list[Panel] = field(repr=False)
    """One for each of `heads`."""

    def as_json(self) -> dict[str, object]:
        """The content of a .json file."""
        maps = []
        for head, panel in zip(self.heads, self.panels, strict=True):
            maps.append(
                {
                    "attention": self.kind,
                    "layer": self.layer,
                    "head": head,
                    "rows": panel.rows,
                    "columns": panel.columns,
                    "weights": panel.values.tolist(),
                }
            )
        return {"source": self.pair.source, "translation": self.pair.translation, "maps": maps}

    def write(self, path: str | Path) -> None:
        """Write a picture or JSON; the ending of `path` says which.

        Raises:
            UsageError: the ending is none of `ENDINGS`.
        """
        path = Path(path)
        check_ending(path, ENDINGS)
        if path.suffix.lower() == ".json":
            write_json(path, self.as_json())
        else:
            write_picture(path, self.panels, title=self.title)


@dataclass(frozen=True, eq=False)
class Attention:
    """The attention of one sentence and its translation."""

    pair: TeacherForced
    weights: Mapping[MapKind, Tensor]
    """`encoder` (L, H, S, S), `decoder` (L, H, T, T), `cross` (L, H, T, S)."""

    @classmethod
    def of(cls, model: TranslationModel, pair: TeacherForced) -> "Attention":
        """The attention of `model` when it is given `pair`."""
        maps = attention_maps(model, pair.src_ids, pair.tgt_in)
        return cls(pair, {kind: weights[:, 0].cpu() for kind, weights in maps.items()})

    def labels(self, kind: MapKind) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Tokens of the rows, which attend, and of the columns, which are attended to.

        A row of the cross-attention is labelled with the token that was predicted there.
        """
        if kind == "encoder":
            return self.pair.src_tokens, self.pair.src_tokens
        if kind == "decoder":
            return self.pair.tgt_tokens, self.pair.tgt_tokens
        return self.pair.predicted_tokens, self.pair.src_tokens

    def maps(
        self, kind: MapKind = "cross", *, layer: int | None = None, head: int | str = "mean"
    ) -> AttentionMaps:
        """The maps of `layer` (from 1; the last if None) and `head`.

        A head is a number from 1, `mean` or `all`.

        Raises:
            UsageError: there is no such kind, layer or head.
        """
        if kind not in TITLES:
            raise UsageError(Option("kind"), f": expected {', '.join(TITLES)}, found {kind!r}")
        num_layers, num_heads = self.weights[kind].shape[:2]
        layer = num_layers if layer is None else layer
        if type(layer) is not int or not 1 <= layer <= num_layers:
            raise UsageError(
                Option("layer", layer), f": the model's {TITLES[kind]} has layers 1 to {num_layers}"
            )
        weights = self.weights[kind][layer - 1].numpy()  # (H, queries, keys)
        rows, columns = self.labels(kind)
        by_name: dict[str, int] = {str(number): number for number in range(1, num_heads + 1)}
        heads: list[int | str]
        if head == "mean":
            heads = ["mean"]
            panels = [Panel(f"mean of {num_heads} heads", rows, columns, weights.mean(0))]
        elif head == "all" or str(head) in by_name:
            numbers = list(by_name.values()) if head == "all" else [by_name[str(head)]]
            heads = [*numbers]
            panels = [Panel(f"head {i}", rows, columns, weights[i - 1]) for i in numbers]
        else:
            raise UsageError(
                Option("head", head), f": expected a number from 1 to {num_heads}, mean or all"
            )
        title = f"{TITLES[kind]}, layer {layer} of {num_layers}: rows attend to columns"
        return AttentionMaps(self.pair, kind, layer, title, heads, panels)

    def __repr__(self) -> str:
        num_layers, num_heads = self.weights["cross"].shape[:2]
        return (
            f"<Attention of {self.pair.source!r} and {self.pair.translation!r}: {num_heads} heads "
            f"in {len(self.weights['encoder'])} encoder and {num_layers} decoder layers>"
        )
