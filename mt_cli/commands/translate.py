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
from mt_cli.terminal import exit_codes, for_stderr, print_aside, set_up_logging


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
    if is_drawn and (text is None or "\n" in text):
        raise UsageError("attention is shown for one sentence; give it with --text")
    picture = _picture(attention, output)
    from mt_cli.stages.attention import choose_maps
    from mt_cli.stages.translate import decode_argument, open_source, open_target, translate_stream
    from mt_cli.translator import Translator

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
        print_aside(for_stderr(maps.as_text(is_ascii=for_stderr("█") != "█")))


def _picture(attention: str | None, output: str) -> Path | None:
    """The file that `--attention` names, if it names one that can be written beside `output`."""
    if attention in (None, "-"):
        return None
    from mt_cli.stages.attention import ENDINGS
    from mt_cli.stages.drawing import check_ending

    picture = Path(attention)
    check_ending(picture, ENDINGS)
    if output != "-" and picture.resolve() == Path(output).resolve():
        raise UsageError(f"{output}: --output and --attention name the same file; give two")
    return picture
