"""`Attention`: who attends to whom in a sentence and its translation, as numbers, text, pictures and files.

Letters: S source length, T target length, L layers, H heads.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from mt_cli.errors import Option, UsageError
from mt_cli.machine.files import write_json
from mt_cli.machine.pictures import PICTURES, Panel, check_ending, heat_map, render_panels, write_picture
from mt_cli.model.inside import MapKind
from mt_cli.text import BOS_ID, EOS_ID, SPECIALS
from mt_cli.text.tokenizer import Tokenizers
from mt_cli.translation.lines import Part


@dataclass(frozen=True, eq=False)
class TeacherForced:
    """A sentence and a translation, as the model is given them when it is taught: one row each."""

    source: str
    translation: str
    src_ids: Tensor = field(repr=False)
    """(1, S), ending in `</s>`."""
    tgt_in: Tensor = field(repr=False)
    """(1, T), beginning with `<s>`."""
    src_tokens: tuple[str, ...] = field(repr=False)
    """What stands at each of the S source positions."""
    tgt_tokens: tuple[str, ...] = field(repr=False)
    """What stands at each of the T target positions."""
    predicted_tokens: tuple[str, ...] = field(repr=False)
    """What is predicted at each of them: the next token."""

    @classmethod
    def of(
        cls,
        part: Part,
        hyp: list[int],
        translation: str,
        *,
        is_complete: bool,
        tokenizers: Tokenizers,
        device: torch.device,
    ) -> "TeacherForced":
        """`part` and its `translation` with the ids `hyp`, which `</s>` follows if it `is_complete`."""
        tokens = tokenizers.tgt.tokens(hyp)
        end = [SPECIALS[EOS_ID]] if is_complete else []
        tgt_in = [BOS_ID, *hyp] if is_complete else [BOS_ID, *hyp[:-1]]
        return cls(
            source=part.text,
            translation=translation,
            src_ids=torch.tensor([[*part.ids, EOS_ID]], device=device),
            tgt_in=torch.tensor([tgt_in], device=device),
            src_tokens=(*tokenizers.src.tokens(part.ids), SPECIALS[EOS_ID]),
            tgt_tokens=(SPECIALS[BOS_ID], *tokens)[: len(tgt_in)],
            predicted_tokens=(*tokens, *end),
        )


TITLES: Mapping[MapKind, str] = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "cross-attention",
}
ENDINGS = (*PICTURES, ".json")
"""Endings of the files that maps can be written to."""


@dataclass(frozen=True, eq=False)
class AttentionMaps:
    """Maps of one layer. A notebook shows them as a picture."""

    pair: TeacherForced = field(repr=False)
    kind: MapKind
    layer: int
    """From 1."""
    title: str = field(repr=False)
    heads: Sequence[int | str]
    """From 1, or `mean`."""
    panels: list[Panel] = field(repr=False)
    """One for each of `heads`."""

    def as_text(self, *, width: int | None = None) -> str:
        """For a terminal of `width` columns."""
        return "\n\n".join([self.title, *(heat_map(panel, width=width) for panel in self.panels)])

    def as_json(self) -> dict[str, object]:
        """The content of a .json file."""
        maps = [
            {
                "attention": self.kind,
                "layer": self.layer,
                "head": head,
                "rows": panel.rows,
                "columns": panel.columns,
                "weights": panel.values.tolist(),
            }
            for head, panel in zip(self.heads, self.panels, strict=True)
        ]
        return {"source": self.pair.source, "translation": self.pair.translation, "maps": maps}

    def write(self, path: str | Path) -> None:
        """Write a picture or JSON, by the ending of `path`.

        Raises:
            UsageError: the ending is none of `ENDINGS`.
        """
        path = Path(path)
        check_ending(path, ENDINGS)
        if path.suffix.lower() == ".json":
            write_json(path, self.as_json())
        else:
            write_picture(path, self.panels, title=self.title)

    def _repr_png_(self) -> bytes:
        return render_panels(self.panels, title=self.title, image_format="png")


@dataclass(frozen=True, eq=False)
class Attention:
    """The attention of one sentence and its translation. A notebook shows the last cross-attention."""

    pair: TeacherForced
    weights: Mapping[MapKind, Tensor]
    """`encoder` (L, H, S, S), `decoder` (L, H, T, T), `cross` (L, H, T, S)."""

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
        """The maps of `layer` (from 1; the last if None) and `head`: a number from 1, `mean`, or `all`.

        Raises:
            UsageError: there is no such kind, layer or head.
        """
        if kind not in tuple(TITLES):
            raise UsageError(Option("kind"), f": expected {', '.join(TITLES)}, found {kind!r}")
        maps = self.weights[kind]  # (L, H, queries, keys)
        num_layers, num_heads = maps.shape[:2]
        layer = num_layers if layer is None else layer
        if type(layer) is not int or not 1 <= layer <= num_layers:
            raise UsageError(
                Option("layer", layer), f": the model's {TITLES[kind]} has layers 1 to {num_layers}"
            )
        weights = maps[layer - 1].numpy()  # (H, queries, keys)
        rows, columns = self.labels(kind)
        title = f"{TITLES[kind]}, layer {layer} of {num_layers}: rows attend to columns"
        if head == "mean":
            mean = Panel(f"mean of {num_heads} heads", rows, columns, weights.mean(0))
            return AttentionMaps(self.pair, kind, layer, title, ["mean"], [mean])
        numbers = range(1, num_heads + 1)
        if head != "all" and str(head) not in map(str, numbers):
            raise UsageError(Option("head", head), f": expected a number from 1 to {num_heads}, mean or all")
        heads = list(numbers) if head == "all" else [int(head)]
        panels = [Panel(f"head {i}", rows, columns, weights[i - 1]) for i in heads]
        return AttentionMaps(self.pair, kind, layer, title, heads, panels)

    def __repr__(self) -> str:
        num_layers, num_heads = self.weights["cross"].shape[:2]
        return (
            f"<Attention of {self.pair.source!r} and {self.pair.translation!r}: {num_heads} heads in "
            f"{len(self.weights['encoder'])} encoder and {num_layers} decoder layers>"
        )

    def _repr_png_(self) -> bytes:
        return self.maps()._repr_png_()
