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
        Literal["model", "layer", "block", "head", "attention"] | None,
        typer.Option("--level", help="How near --shapes looks: each shows those before it; attention."),
    ] = None,
    masks: Annotated[
        Path | None,
        typer.Option("--masks", metavar="FILE", help="Draw who may attend to whom, as .png or .svg."),
    ] = None,
    text: Annotated[
        str | None, typer.Option("--text", help=f"The sentence for --shapes and --masks; {SENTENCE}")
    ] = None,
    checkpoint: Checkpoint = "best",
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Show what is in a run folder, or a sentence's way through its model."""
    set_up_logging(is_quiet=quiet, is_verbose=verbose)
    if shapes or level is not None or text is not None or masks is not None:
        from mt_cli.stages.drawing import PICTURES, check_ending
        from mt_cli.stages.shapes import draw_masks, trace_sentence
        from mt_cli.translator import Translator

        if masks is not None:
            check_ending(masks, PICTURES)
        translator = Translator.load(run, checkpoint=checkpoint, device="cpu")
        line = SENTENCE if text is None else decode_argument(text)
        trace = trace_sentence(translator, line, level=level or "attention")
        if masks is not None:
            draw_masks(masks, trace.pair)
        if as_json:
            print_json(trace.as_json())
        elif shapes or masks is None:
            print_lines(str(trace))
        return
    from mt_cli.stages.inspect import describe_run, report_as_text

    report = describe_run(run, checkpoint=checkpoint)
    if as_json:
        print_json(report)
    else:
        print_lines(report_as_text(report, run))
