"""`mt-cli inspect`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from mt_cli.flags import Checkpoint, Json, Quiet, RunPath, Verbose
from mt_cli.terminal import decode_argument, exit_codes, print_json, print_lines, set_up_logging

SENTENCE = "Ein Mann schläft auf einer Bank."


@exit_codes
def inspect(
    run: RunPath,
    shapes: Annotated[
        bool,
        typer.Option("--shapes", help="Send a sentence through the model and show its tensors' shapes."),
    ] = False,
    level: Annotated[
        Literal["model", "layer", "block", "head", "attention"],
        typer.Option("--level", help="How near --shapes looks; each shows those before it too."),
    ] = "attention",
    masks: Annotated[
        Path | None,
        typer.Option("--masks", metavar="FILE", help="Draw who may attend to whom, as .png or .svg."),
    ] = None,
    text: Annotated[str, typer.Option("--text", help="The sentence for --shapes and --masks.")] = SENTENCE,
    checkpoint: Checkpoint = "best",
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Show what is in a run folder, or a sentence's way through its model."""
    set_up_logging(is_quiet=quiet, is_verbose=verbose)
    if shapes or masks is not None:
        from mt_cli.stages.drawing import PICTURES, check_ending
        from mt_cli.stages.shapes import draw_masks, trace_sentence
        from mt_cli.translator import Translator

        if masks is not None:
            check_ending(masks, PICTURES)
        trace = trace_sentence(
            Translator.load(run, checkpoint=checkpoint, device="cpu"), decode_argument(text), level=level
        )
        if shapes and as_json:
            print_json(trace.as_json())
        elif shapes:
            print_lines(str(trace))
        if masks is not None:
            draw_masks(masks, trace.pair)
        return
    from mt_cli.stages.inspect import describe_run, report_as_text

    report = describe_run(run, checkpoint=checkpoint)
    if as_json:
        print_json(report)
    else:
        print_lines(report_as_text(report, run))
