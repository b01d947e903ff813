"""Attention maps of one sentence: which ones, and how they become a file or text.

The translator makes the maps and `drawing` draws them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mt_cli.artefacts.files import write_json
from mt_cli.errors import UsageError
from mt_cli.model.attention_maps import MapKind
from mt_cli.stages.inspect.drawing import ASCII_SHADES, PICTURES, SHADES, Panel, heat_map, write_picture
from mt_cli.translation.teacher_forcing import Attention, TeacherForced

TITLES: Mapping[MapKind, str] = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "cross-attention",
}
ENDINGS = (*PICTURES, ".json")
"""Endings of the files that maps can be written to."""


@dataclass(frozen=True)
class AttentionMaps:
    """Maps of one layer."""

    pair: TeacherForced
    kind: MapKind
    layer: int
    """From 1."""
    title: str
    heads: Sequence[int | str]
    """From 1, or `mean`."""
    panels: list[Panel]
    """One for each of `heads`."""

    def as_text(self, *, is_ascii: bool = False, width: int | None = None) -> str:
        """For a terminal of `width` columns, perhaps one without block characters."""
        shades = ASCII_SHADES if is_ascii else SHADES
        maps = (heat_map(panel, shades=shades, width=width) for panel in self.panels)
        return "\n\n".join([self.title, *maps])

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

    def write(self, path: Path) -> None:
        """Write a picture or JSON, by the ending of `path`, which is one of `ENDINGS`."""
        if path.suffix.lower() == ".json":
            write_json(path, self.as_json())
        else:
            write_picture(path, self.panels, title=self.title)


def choose_maps(
    attention: Attention, *, kind: MapKind = "cross", layer: int | None = None, head: str = "mean"
) -> AttentionMaps:
    """The maps of `layer` (from 1; the last if None) and `head`: a number from 1, `mean`, or `all` of them.

    Raises:
        UsageError: there is no such layer or head.
    """
    maps = attention.weights[kind]  # (L, H, queries, keys)
    num_layers, num_heads = maps.shape[:2]
    layer = num_layers if layer is None else layer
    if layer > num_layers:
        raise UsageError(f"--layer {layer}: the model's {TITLES[kind]} has layers 1 to {num_layers}")
    weights = maps[layer - 1].numpy()  # (H, queries, keys)
    rows, columns = attention.labels(kind)
    title = f"{TITLES[kind]}, layer {layer} of {num_layers}: rows attend to columns"
    if head == "mean":
        mean = Panel(f"mean of {num_heads} heads", rows, columns, weights.mean(0))
        return AttentionMaps(attention.pair, kind, layer, title, ["mean"], [mean])
    heads = _heads(head, num_heads)
    panels = [Panel(f"head {i}", rows, columns, weights[i - 1]) for i in heads]
    return AttentionMaps(attention.pair, kind, layer, title, heads, panels)


def _heads(head: str, num_heads: int) -> list[int]:
    numbers = list(range(1, num_heads + 1))
    if head == "all":
        return numbers
    if head not in map(str, numbers):
        raise UsageError(f"--head {head}: expected a number from 1 to {num_heads}, mean or all")
    return [int(head)]
