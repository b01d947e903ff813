"""`mt-cli inspect`."""

import logging
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from mt_cli.commands.attention_view import AttentionView
from mt_cli.commands.flags import (
    AttentionFile,
    AttentionOf,
    Checkpoint,
    HeadFlag,
    Json,
    LayerFlag,
    Quiet,
    RunPath,
    Verbose,
)
from mt_cli.commands.terminal import (
    exit_codes,
    print_json,
    print_lines,
    print_result,
    set_up_logging,
    width_of,
)

log = logging.getLogger(__name__)

SENTENCE = "Ein Mann schläft auf einer Bank."


@exit_codes
def inspect(
    run: RunPath,
    shapes: Annotated[
        bool,
        typer.Option("--shapes", help="Send a sentence through the model and show its tensors' shapes."),
    ] = False,
    level: Annotated[
        Literal["model", "layer", "block", "head", "attention"] | None,
        typer.Option("--level", help="Detail of --shapes; each level has those before it."),
    ] = None,
    masks: Annotated[
        Path | None,
        typer.Option("--masks", metavar="FILE", help="Draw who may attend to whom, as .png or .svg."),
    ] = None,
    text: Annotated[
        str | None,
        typer.Option("--text", help=f"Sentence to look at; by default {SENTENCE!r}."),
    ] = None,
    attention: AttentionFile = None,
    attention_of: AttentionOf = None,
    layer: LayerFlag = None,
    head: HeadFlag = None,
    seal: Annotated[
        bool,
        typer.Option("--seal", help="Check the whole run, and seal what an early version left unsealed."),
    ] = False,
    checkpoint: Checkpoint = "best",
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Show a run, or a sentence inside its model."""
    set_up_logging(is_quiet=quiet, is_verbose=verbose)
    if seal:
        _seal(run)
    view = AttentionView(attention, attention_of, layer, head)
    is_drawn = view.is_wanted or masks is not None
    traces_shapes = shapes or level is not None or (text is not None and not is_drawn)
    if not traces_shapes and not is_drawn:
        _describe(run, checkpoint=checkpoint, as_json=as_json)
        return
    from mt_cli.artefacts.pictures import PICTURES, check_ending
    from mt_cli.stages.inspect.sentence_shapes import draw_masks, trace_sentence
    from mt_cli.stages.translate import decode_argument
    from mt_cli.translation.translator import Translator

    sentence = SENTENCE if text is None else text
    view.check(sentence, taken=masks)
    if masks is not None:
        check_ending(masks, PICTURES)
    translator = Translator.load(run, checkpoint=checkpoint, device="cpu")
    pair = translator.teacher_force(decode_argument(sentence)) if traces_shapes or masks is not None else None
    if masks is not None and pair is not None:
        draw_masks(masks, pair)
    document: dict[str, object] = {} if masks is None else {"masks": str(masks)}
    if view.is_wanted:
        maps = view.choose(translator, sentence)
        document |= maps.as_json()
        if view.picture is not None or not as_json:
            view.show(maps, is_result=True)
    if traces_shapes and pair is not None:
        trace = trace_sentence(translator, pair, level=level or "attention")
        document |= trace.as_json()
        if not as_json:
            print_lines(trace.as_text(width=width_of(sys.stdout)))
    if as_json:
        print_json(document)


def _seal(run: Path) -> None:
    from mt_cli.artefacts.run_seals import seal_run

    documents = [str(path.relative_to(run)) for path in seal_run(run)]
    log.info("%s: whole; %s", run, f"sealed: {', '.join(documents)}" if documents else "all of it is sealed")


def _describe(run: Path, *, checkpoint: str, as_json: bool) -> None:
    from mt_cli.stages.inspect.inspect import describe_run
    from mt_cli.stages.inspect.run_as_text import facts_as_text, facts_that_fit

    facts = describe_run(run, checkpoint=checkpoint)
    width = width_of(sys.stdout)
    text = facts_as_text(facts) if width is None else facts_that_fit(facts, width=width)
    print_result(text, facts, as_json=as_json)
