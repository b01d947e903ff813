"""One sentence on its way through the model: its tensors' shapes as text, and its masks.

Formats what `model.shape_trace` has traced; knows no layers.
"""

import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path

import torch

from mt_cli.model.masks import causal_mask, padding_mask
from mt_cli.model.shape_trace import LEVELS, Level, ShapeTrace, TracedTensor, trace_shapes
from mt_cli.text.symbols import PAD_ID, SPECIALS
from mt_cli.translation.drawing import Panel, write_picture
from mt_cli.translation.teacher_forcing import TeacherForced
from mt_cli.translation.translator import Translator

NAMES = {
    "B": "sentences",
    "S": "source positions",
    "T": "target positions",
    "D": "d_model",
    "H": "h, heads",
    "K": "d_k = d_v, a head's size",
    "F": "d_ff",
    "V": "target vocabulary",
}
"""The letters of the legend, in the paper's words."""
NUM_PADS = 3
"""As many as a longer sentence in the batch would need."""


@dataclass(frozen=True)
class SentenceTrace:
    """Shapes of the tensors that one sentence and its translation became."""

    pair: TeacherForced
    trace: ShapeTrace
    level: Level
    """Detail; each level has those before it."""

    @property
    def tensors(self) -> list[TracedTensor]:
        """Those of `level`, and of those before it."""
        shown = LEVELS[: LEVELS.index(self.level) + 1]
        return [tensor for tensor in self.trace.tensors if tensor.level in shown]

    def as_json(self) -> dict[str, object]:
        """The form that `inspect --shapes --json` prints."""
        return {
            "source": self.pair.source,
            "translation": self.pair.translation,
            "legend": self.trace.legend,
            "depths": self.trace.depths,
            "tensors": [asdict(tensor) for tensor in self.tensors],
        }

    def as_text(self, *, width: int | None = None) -> str:
        """For people; on a terminal of `width` columns, long sentences go on in a new line."""
        lines = [
            *_row("source", self.pair.src_tokens, width),
            *_row("target", self.pair.tgt_tokens, width),
            "",
            *(f"{letter} = {size:<6} {NAMES[letter]}" for letter, size in self.trace.legend.items()),
            *(f"N = {size:<6} {stack} layers, all alike" for stack, size in self.trace.depths.items()),
        ]
        widest = max(2 * LEVELS.index(each.level) + len(each.name) for each in self.tensors)
        for place, group in groupby(self.tensors, lambda tensor: tensor.place):
            lines += ["", place or "model"]
            for tensor in group:
                name = " " * 2 * LEVELS.index(tensor.level) + tensor.name
                letters = f"({', '.join(tensor.letters.split())})"
                lines.append(f"  {name:<{widest}}  {letters:<14}{' × '.join(map(str, tensor.shape))}")
        return "\n".join(lines)


def _row(name: str, tokens: Sequence[str], width: int | None) -> list[str]:
    text = " ".join(tokens)
    return (
        textwrap.wrap(text, width, initial_indent=f"{name}  ", subsequent_indent=" " * (len(name) + 2))
        if width
        else [f"{name}  {text}"]
    )


def trace_sentence(
    translator: Translator, pair: TeacherForced, *, level: Level = "attention"
) -> SentenceTrace:
    """The shapes when `pair` flows through the model of `translator`, down to `level`."""
    return SentenceTrace(pair, trace_shapes(translator.model, pair.src_ids, pair.tgt_in), level)


def draw_masks(path: Path, pair: TeacherForced) -> None:
    """Draw the masks of `pair`, padded as it would be beside a longer sentence."""
    write_picture(path, mask_panels(pair), title="masks: rows may attend to the dark columns")


def mask_panels(pair: TeacherForced) -> list[Panel]:
    """The masks of `pair` with `NUM_PADS` places of padding in the source: 1 where one may attend."""
    padding = torch.full((1, NUM_PADS), PAD_ID, device=pair.src_ids.device)
    src_mask = padding_mask(torch.cat([pair.src_ids, padding], dim=1), pad_id=PAD_ID)  # (1, S)
    tgt_mask = causal_mask(len(pair.tgt_tokens), device=pair.tgt_in.device)  # (T, T)
    src = (*pair.src_tokens, *[SPECIALS[PAD_ID]] * NUM_PADS)
    tgt = pair.tgt_tokens
    return [
        _panel("encoder self-attention", src, src, src_mask.expand(len(src), -1)),
        _panel("decoder self-attention", tgt, tgt, tgt_mask),
        _panel("cross-attention", tgt, src, src_mask.expand(len(tgt), -1)),
    ]


def _panel(title: str, rows: Sequence[str], columns: Sequence[str], mask: torch.Tensor) -> Panel:
    return Panel(title, rows, columns, mask.float().cpu().numpy())
