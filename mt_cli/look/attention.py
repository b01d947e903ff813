"""`Attention`: the attention weights of a model for a sentence and its translation.

Letters: S source length, T target length, L layers, H heads.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from mt_cli.errors import UsageError
from mt_cli.look.figures import PICTURES, Panel, check_ending, write_picture
from mt_cli.machine.files import write_json
from mt_cli.model.inside import MapKind, attention_maps
from mt_cli.text import BOS_ID, EOS_ID, SPECIALS
from mt_cli.text.normalize import normalize
from mt_cli.translation.reading import checked_line, read_lines
from mt_cli.translation.translator import Translator
from mt_cli.translation.writing import write_parts

TITLES: Mapping[MapKind, str] = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "cross-attention",
}
ENDINGS = (*PICTURES, ".json")
"""File endings for writing attention maps."""


@dataclass(frozen=True, eq=False)
class TeacherForced:
    """A sentence and a translation as model inputs, as in training, with a batch size of 1."""

    source: str
    translation: str
    src_ids: Tensor = field(repr=False)
    """(1, S), ending with `</s>`."""
    tgt_in: Tensor = field(repr=False)
    """(1, T), beginning with `<s>`."""
    src_tokens: tuple[str, ...] = field(repr=False)
    """The token at each of the S source positions."""
    tgt_tokens: tuple[str, ...] = field(repr=False)
    """The token at each of the T target positions."""
    predicted_tokens: tuple[str, ...] = field(repr=False)
    """The token predicted at each target position: the next one."""

    @classmethod
    def of(cls, translator: Translator, line: str, *, target: str | None = None) -> "TeacherForced":
        """Prepare `line` and a translation for one pass of the model.

        The translation is `target`, or the translator's own. If the line is translated in parts,
        only the first is used.

        Raises:
            UsageError: `line` or `target` is empty or too long for the model, or the model is
                exported.
        """
        model = translator.model
        tokenizers = translator.tokenizers
        engine = translator.engine
        (read,) = read_lines([checked_line(line, name="line")], engine, tokenizers)
        parts = read.parts
        if not parts:
            raise UsageError("the text has no words; give a sentence")
        src_ids = parts[0].ids
        is_complete = True
        if target is None:
            [[best]] = translator.search(parts[:1], is_scored=False)
            tgt_ids = best.ids
            (written,) = write_parts([(parts[0], best)], engine, tokenizers, is_aligned=[False])
            translation = written.text
            is_complete = not written.is_cut
        elif len(parts) > 1:
            raise UsageError("target: the line is too long for the model; give a shorter one")
        else:
            translation = normalize(checked_line(target, name="target"))
            (tgt_ids,) = tokenizers.encode([translation], "tgt")
            if not 0 < len(tgt_ids) <= model.longest_sentence:
                raise UsageError(
                    f"target: {len(tgt_ids)} tokens, expected 1 to {model.longest_sentence}"
                )
        device = next(model.parameters()).device
        tokens = tokenizers.tgt.tokens(tgt_ids)
        num_positions = len(tgt_ids) + is_complete  # the last one predicts `</s>`
        return cls(
            source=parts[0].text,
            translation=translation,
            src_ids=torch.tensor([[*src_ids, EOS_ID]], device=device),
            tgt_in=torch.tensor([[BOS_ID, *tgt_ids][:num_positions]], device=device),
            src_tokens=(*tokenizers.src.tokens(src_ids), SPECIALS[EOS_ID]),
            tgt_tokens=(SPECIALS[BOS_ID], *tokens)[:num_positions],
            predicted_tokens=(*tokens, SPECIALS[EOS_ID])[:num_positions],
        )


@dataclass(frozen=True, eq=False)
class Attention:
    """The attention of one sentence and its translation."""

    pair: TeacherForced
    weights: Mapping[MapKind, Tensor]
    """`encoder` (L, H, S, S), `decoder` (L, H, T, T), `cross` (L, H, T, S)."""

    @classmethod
    def of(cls, translator: Translator, line: str, *, target: str | None = None) -> "Attention":
        """Compute the attention for `line` and the translation `target`, in fp32.

        By default, `target` is the translator's own translation; see `TeacherForced.of`.
        """
        pair = TeacherForced.of(translator, line, target=target)
        maps = attention_maps(translator.model, pair.src_ids, pair.tgt_in)
        return cls(pair, {kind: weights[:, 0].cpu() for kind, weights in maps.items()})

    def labels(self, kind: MapKind) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Tokens of the rows (which attend) and of the columns (which are attended to).

        Rows of cross-attention are labelled with the token predicted there.
        """
        if kind == "encoder":
            return self.pair.src_tokens, self.pair.src_tokens
        if kind == "decoder":
            return self.pair.tgt_tokens, self.pair.tgt_tokens
        return self.pair.predicted_tokens, self.pair.src_tokens

    def maps(
        self, kind: MapKind = "cross", *, layer: int | None = None, head: int | str = "mean"
    ) -> dict[str, Panel]:
        """The maps of `layer` (from 1; the last if None), by head: its number, or `mean`.

        `head` is a number from 1, `mean` or `all`.

        Raises:
            UsageError: the kind, layer or head does not exist.
        """
        if kind not in TITLES:
            raise UsageError(f"kind {kind!r}: expected {', '.join(TITLES)}")
        layer = self._layer(kind, layer)
        weights = self.weights[kind][layer - 1].numpy()  # (H, queries, keys)
        rows, columns = self.labels(kind)
        panels = {"mean": Panel(f"mean of {len(weights)} heads", rows, columns, weights.mean(0))}
        for number, of_head in enumerate(weights, 1):
            panels[str(number)] = Panel(f"head {number}", rows, columns, of_head)
        if head == "all":
            return {name: panel for name, panel in panels.items() if name != "mean"}
        if str(head) not in panels:
            raise UsageError(f"head {head!r}: expected 1 to {len(weights)}, mean or all")
        return {str(head): panels[str(head)]}

    def as_json(
        self, kind: MapKind = "cross", *, layer: int | None = None, head: int | str = "mean"
    ) -> dict[str, object]:
        """The content of a .json file with these maps."""
        maps = []
        for name, panel in self.maps(kind, layer=layer, head=head).items():
            maps.append(
                {
                    "attention": kind,
                    "layer": self._layer(kind, layer),
                    "head": int(name) if name.isdecimal() else name,
                    "rows": panel.rows,
                    "columns": panel.columns,
                    "weights": panel.values.tolist(),
                }
            )
        return {"source": self.pair.source, "translation": self.pair.translation, "maps": maps}

    def write(
        self,
        path: str | Path,
        kind: MapKind = "cross",
        *,
        layer: int | None = None,
        head: int | str = "mean",
    ) -> None:
        """Write these maps as a picture or JSON, by the ending of `path`.

        Raises:
            UsageError: the ending is not in `ENDINGS`; or as in `maps`.
        """
        path = Path(path)
        check_ending(path, ENDINGS)
        if path.suffix.lower() == ".json":
            write_json(path, self.as_json(kind, layer=layer, head=head))
            return
        panels = self.maps(kind, layer=layer, head=head)
        place = f"layer {self._layer(kind, layer)} of {len(self.weights[kind])}"
        title = f"{TITLES[kind]}, {place}: rows attend to columns"
        write_picture(path, list(panels.values()), title=title)

    def _layer(self, kind: MapKind, layer: int | None) -> int:
        """The number of a layer; the last one by default."""
        num_layers = len(self.weights[kind])
        if layer is None:
            return num_layers
        if type(layer) is not int or not 1 <= layer <= num_layers:
            raise UsageError(f"layer {layer!r}: expected 1 to {num_layers}")
        return layer

    def __repr__(self) -> str:
        num_layers, num_heads = self.weights["cross"].shape[:2]
        return (
            f"<Attention of {self.pair.source!r} and {self.pair.translation!r}: {num_heads} heads "
            f"in {len(self.weights['encoder'])} encoder and {num_layers} decoder layers>"
        )
