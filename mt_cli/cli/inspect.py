"""`mt-cli inspect`."""

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from mt_cli.cli.app import app, command
from mt_cli.cli.flags import Checkpoint, OutputFlags, RunPath
from mt_cli.errors import UsageError
from mt_cli.machine.terminal import print_result, width_of

SENTENCE = "Ein Mann schläft auf einer Bank."


@dataclass(frozen=True)
class AttentionFlags:
    """Which attention is drawn, and where."""

    attention: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Draw the attention of --text, as .png or .svg; .json has numbers."
        ),
    ] = None
    attention_of: Annotated[
        Literal["encoder", "decoder", "cross"],
        typer.Option(help="Source to source, target to target, or target to source (cross)."),
    ] = "cross"
    layer: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Layer that --attention shows; by default the last."),
    ] = None
    head: Annotated[
        str, typer.Option(metavar="N|mean|all", help="Head that --attention shows.")
    ] = "mean"


@command(
    app,
    "inspect runs/sample",
    "inspect runs/sample --shapes",
    "inspect runs/sample --attention maps.png --head all",
)
def inspect(
    run: RunPath,
    drawing: AttentionFlags,
    output: OutputFlags,
    shapes: Annotated[
        bool,
        typer.Option(
            "--shapes", help="Send a sentence through the model and show its tensors' shapes."
        ),
    ] = False,
    text: Annotated[
        str | None, typer.Option(metavar="TEXT", help=f"Sentence to look at, such as {SENTENCE!r}.")
    ] = None,
    checkpoint: Checkpoint = "best",
) -> None:
    """Show a run, or a sentence inside its model."""
    if drawing.attention is None and drawing != AttentionFlags():
        raise UsageError("--attention-of, --layer and --head are options of --attention FILE")
    from mt_cli.runs.opening import check_is_there

    check_is_there(run)
    from mt_cli.evaluation.inspect import describe_run, facts_as_text, shapes_as_text

    if not shapes and drawing.attention is None:
        if text is not None:
            raise UsageError("--text: a sentence is shown by --shapes, or by --attention FILE")
        facts = describe_run(run, checkpoint=checkpoint)
        print_result(
            facts_as_text(facts, width=width_of(sys.stdout)), facts, as_json=output.as_json
        )
        return
    from mt_cli.model.shapes import trace_shapes
    from mt_cli.pictures.figures import check_ending
    from mt_cli.translation.attention import ENDINGS, Attention
    from mt_cli.translation.translator import Translator

    if drawing.attention is not None:
        check_ending(drawing.attention, ENDINGS)
    text = SENTENCE if text is None else text
    if "\n" in text:
        raise UsageError("one sentence is looked at; give one line with --text")
    translator = Translator.load(run, checkpoint=checkpoint, device="cpu")
    pair = translator.teacher_force(text)
    document: dict[str, object] = {"source": pair.source, "translation": pair.translation}
    lines = []
    if drawing.attention is not None:
        maps = Attention.of(translator.model, pair).maps(
            drawing.attention_of, layer=drawing.layer, head=drawing.head
        )
        maps.write(drawing.attention)
        document |= maps.as_json()
    if shapes:
        traced = trace_shapes(translator.model, pair.src_ids, pair.tgt_in)
        document["shapes"] = [asdict(module) for module in traced]
        lines.append(f"source  {' '.join(pair.src_tokens)}")
        lines.append(f"target  {' '.join(pair.tgt_tokens)}")
        lines.append(shapes_as_text(traced))
    if lines or output.as_json:
        print_result("\n".join(lines), document, as_json=output.as_json)
