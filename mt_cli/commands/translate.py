"""`mt-cli translate`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from mt_cli.errors import UsageError
from mt_cli.flags import (
    AttentionFile,
    AttentionOf,
    BackendFlag,
    BatchSize,
    Checkpoint,
    DeviceFlag,
    Head,
    Json,
    Layer,
    PrecisionFlag,
    Quiet,
    RunPath,
    Threads,
    Verbose,
)
from mt_cli.terminal import decode_argument, exit_codes, for_stderr, print_aside, set_up_logging


@exit_codes
def translate(
    run: RunPath,
    source: Annotated[
        str, typer.Option("-i", "--input", metavar="FILE", help="Lines to translate; - is stdin.")
    ] = "-",
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="FILE", help="Where the translations go; - is stdout.")
    ] = "-",
    text: Annotated[str | None, typer.Option("--text", help="Text to translate in place of a file.")] = None,
    backend: BackendFlag = "scratch",
    checkpoint: Checkpoint = "best",
    attention: AttentionFile = None,
    attention_of: AttentionOf = None,
    layer: Layer = None,
    head: Head = None,
    batch_size: BatchSize = None,
    device: DeviceFlag = None,
    threads: Threads = None,
    precision: PrecisionFlag = None,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Translate German lines into English, one line for one line."""
    set_up_logging(is_quiet=quiet, is_verbose=verbose)
    is_drawn = any(flag is not None for flag in (attention, attention_of, layer, head))
    picture = Path(attention) if attention not in (None, "-") else None
    if is_drawn and (text is None or "\n" in text):
        raise UsageError("attention is shown for one sentence; give it with --text")
    if picture is not None and output != "-" and picture.resolve() == Path(output).resolve():
        raise UsageError(f"{output}: --output and --attention name the same file; give two")
    from mt_cli.stages.attention import ENDINGS, choose_maps
    from mt_cli.stages.drawing import ASCII_SHADES, SHADES, check_ending
    from mt_cli.stages.translate import open_source, open_target, translate_stream
    from mt_cli.translator import Translator

    if picture is not None:
        check_ending(picture, ENDINGS)
    with open_source(source, text=text) as lines_in, open_target(output) as lines_out:
        translator = Translator.load(
            run,
            checkpoint=checkpoint,
            backend=backend,
            batch_size=batch_size,
            device=device or "auto",
            precision=precision or "auto",
            threads=threads or 0,
        )

        def write(sources: list[str], translations: list[str]) -> None:
            pairs = zip(sources, translations, strict=True)
            texts = [json.dumps({"source": s, "translation": t}, ensure_ascii=False) for s, t in pairs]
            lines_out.write("".join(f"{line}\n" for line in (texts if as_json else translations)).encode())
            lines_out.flush()

        if text is None or not is_drawn:
            translate_stream(translator, lines_in, write)
            return
        maps = choose_maps(
            translator.attention(decode_argument(text)),
            kind=attention_of or "cross",
            layer=layer,
            head="mean" if head is None else head,
        )
        write([maps.pair.source], [maps.pair.translation])
    if picture is not None:
        maps.write(picture)
    else:
        shades = SHADES if for_stderr(SHADES) == SHADES else ASCII_SHADES
        print_aside(for_stderr(maps.as_text(shades=shades)))
