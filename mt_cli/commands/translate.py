"""`mt-cli translate`."""

import json
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mt_cli.errors import UsageError
from mt_cli.flags import (
    AttentionFile,
    AttentionOf,
    BackendFlag,
    BatchSize,
    BeamSize,
    Checkpoint,
    DeviceFlag,
    Head,
    Json,
    Layer,
    LengthPenalty,
    PrecisionFlag,
    Quiet,
    RunPath,
    Threads,
    Verbose,
)
from mt_cli.terminal import exit_codes, for_stderr, print_aside, set_up_logging

if TYPE_CHECKING:  # torch is imported when something is translated
    from mt_cli.translator import Translation


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
    beam_size: BeamSize = None,
    length_penalty: LengthPenalty = None,
    n_best: Annotated[
        int, typer.Option("--n-best", min=1, help="Translations of each line, the best first.")
    ] = 1,
    with_score: Annotated[
        bool, typer.Option("--with-score", help="Score and a tab before each translation.")
    ] = False,
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
    if is_drawn and (with_score or n_best > 1):
        raise UsageError("attention is shown for the best translation; leave out --n-best and --with-score")
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
            beam_size=beam_size,
            length_penalty=length_penalty,
            batch_size=batch_size,
            device=device or "auto",
            precision=precision or "auto",
            threads=threads or 0,
        )

        def write(texts: Iterable[str]) -> None:
            lines_out.write("".join(f"{line}\n" for line in texts).encode())
            lines_out.flush()

        def write_best(sources: list[str], translations: list[str]) -> None:
            write(map(_best_as_json, sources, translations) if as_json else translations)

        def write_scored(sources: list[str], translations: "list[list[Translation]]") -> None:
            if as_json:
                write(map(_scored_as_json, sources, translations))
            else:
                write(_as_text(each, with_score) for of_line in translations for each in of_line)

        if not is_drawn and (with_score or n_best > 1):
            translate_stream(partial(translator.translate_n_best, n_best=n_best), lines_in, write_scored)
            return
        if text is None or not is_drawn:
            translate_stream(translator.translate, lines_in, write_best)
            return
        maps = choose_maps(
            translator.attention(decode_argument(text)),
            kind=attention_of or "cross",
            layer=layer,
            head="mean" if head is None else head,
        )
        write_best([maps.pair.source], [maps.pair.translation])
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


def _as_text(translation: "Translation", with_score: bool) -> str:
    return f"{translation.score:.4f}\t{translation.text}" if with_score else translation.text


def _best_as_json(source: str, translation: str) -> str:
    return json.dumps({"source": source, "translation": translation}, ensure_ascii=False)


def _scored_as_json(source: str, translations: "list[Translation]") -> str:
    best = translations[0]
    document = {
        "source": source,
        "translation": best.text,
        "score": best.score,
        "n_best": [{"translation": each.text, "score": each.score} for each in translations],
    }
    return json.dumps(document, ensure_ascii=False)
