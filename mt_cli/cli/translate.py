"""`mt-cli translate`."""

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from itertools import chain
from typing import TYPE_CHECKING, Annotated

import typer

from mt_cli.cli.app import app, command
from mt_cli.cli.flags import (
    DECODING_FLAGS,
    RARE_DECODING_FLAGS,
    Checkpoint,
    OptionalModelPaths,
    decoding_options,
)
from mt_cli.errors import UsageError
from mt_cli.machine.terminal import json_text, progress_shown

if TYPE_CHECKING:  # torch is imported when something is translated
    from mt_cli.runs.run import Run
    from mt_cli.translation.lines import Translation
    from mt_cli.translation.translator import Translator

log = logging.getLogger(__name__)


@command(
    app,
    "translate de-en --text 'Ein Hund rennt durch den Schnee.'",
    "translate runs/sample -i german.txt -o english.txt",
    "translate runs/sample < german.txt --n-best 3 --beam-size 5",
    flags=DECODING_FLAGS,
    rare_flags=RARE_DECODING_FLAGS,
    settings="decoding.KEY=VALUE",
)
def translate(
    settings: list[str],
    as_json: bool,
    runs: OptionalModelPaths = None,
    sources: Annotated[
        list[str] | None,
        typer.Option("-i", "--input", metavar="FILE", help="Lines to translate; - is stdin."),
    ] = None,
    target: Annotated[
        str,
        typer.Option("-o", "--output", metavar="FILE", help="Where translations go; - is stdout."),
    ] = "-",
    texts: Annotated[
        list[str] | None,
        typer.Option("--text", metavar="TEXT", help="Text to translate in place of a file."),
    ] = None,
    prefix: Annotated[
        str,
        typer.Option(
            "--prefix", metavar="TEXT", help="Text that each translation has to begin with."
        ),
    ] = "",
    n_best: Annotated[
        int,
        typer.Option("--n-best", min=1, metavar="N", help="Translations of each line."),
    ] = 1,
    with_score: Annotated[
        bool, typer.Option("--with-score", help="Score and a tab before each translation.")
    ] = False,
    with_alignment: Annotated[
        bool,
        typer.Option(
            "--with-alignment", help="Append a tab and the word alignment, as source-target."
        ),
    ] = False,
    checkpoint: Checkpoint = "best",
) -> None:
    """Translate text line by line.

    One line out for each line in, in order. --n-best N writes N lines for each, or with --json one
    object that holds all N. Without -i and --text, lines are read from stdin; Ctrl-D ends them.
    """
    options = decoding_options(settings, checkpoint)
    is_detailed = as_json or with_score or with_alignment or n_best > 1
    if texts and sources:
        raise UsageError("give either --text or --input, not both")
    from mt_cli.runs.run import check_is_there, models_named, open_models

    folders = models_named(runs or [])
    for folder in folders:
        check_is_there(folder)
    from mt_cli.translation.streams import count_lines, open_source, open_target, portions
    from mt_cli.translation.translator import Translator

    models = open_models(folders)
    if is_detailed and options.config_of(models[0]).rerank_with is not None:
        raise UsageError("reranking gives one text a line: no --n-best, --with-…, --json")

    def translated(lines: Sequence[str], on_progress: Callable[[int], None]) -> list[str]:
        """The lines to write for `lines`."""
        if not is_detailed:
            return translator.translate(lines, prefix=prefix, on_progress=on_progress)
        found = translator.translate_n_best(
            lines,
            n_best=n_best,
            prefix=prefix,
            with_alignment=as_json or with_alignment,
            with_words=as_json,
            on_progress=on_progress,
        )
        if as_json:
            return [_as_json(translator, *each) for each in zip(lines, found, strict=True)]
        written = []
        for of_line in found:
            for each in of_line:
                score = f"{each.score:.4f}\t" if with_score else ""
                pairs = " ".join(f"{src}-{tgt}" for src, tgt in each.alignment)
                written.append(f"{score}{each.text}" + (f"\t{pairs}" if with_alignment else ""))
        return written

    with ExitStack() as stack:
        if texts:
            files = [stack.enter_context(open_source("-", text="\n".join(texts)))]
        else:
            files = [stack.enter_context(open_source(name)) for name in sources or ("-",)]
        lines_out = stack.enter_context(open_target(target))
        translator = Translator.of_models(models, options)
        is_typed = any(file.isatty() for file in files)
        if is_typed:
            lang = models[0].config.data.src_lang
            log.info("type a sentence (%s) and press Enter; Ctrl-D ends", lang)
        # If lines are typed or shown, the translations themselves show the progress.
        has_no_bar = is_typed or lines_out.isatty()
        counts = [count_lines(file) for file in files]
        total = None if None in counts else sum(filter(None, counts))
        with progress_shown(
            "translating", unit="lines", total=total, is_hidden=has_no_bar
        ) as on_progress:
            for_gpu = translator.engine.device == "cuda"
            read = chain.from_iterable(portions(file, for_gpu=for_gpu) for file in files)
            for lines in _checked(read, translator, models[0], min_lines=1 if is_typed else 2):
                written = translated(lines, on_progress)
                lines_out.write("".join(f"{line}\n" for line in written).encode())


def _checked(
    portions: Iterable[Sequence[str]], translator: "Translator", run: "Run", *, min_lines: int
) -> Iterable[Sequence[str]]:
    """`portions`; after each, when its translation is written, what looks wrong is warned of.

    That the text is not for the model is told once.
    """
    from mt_cli.translation.lines import MAX_LINES, input_warning

    warning = None
    latest: list[str] = []
    for lines in portions:
        yield lines
        latest = [*latest, *lines][-MAX_LINES:]
        if warning is None:
            warning = input_warning(latest, run, min_lines=min_lines)
            if warning is not None:
                log.warning("%s", warning)
    for each in translator.take_warnings():
        log.warning("%s", each)


def _as_json(translator: "Translator", source: str, translations: "list[Translation]") -> str:
    best = translations[0]
    document = {
        "source": source,
        "translation": best.text,
        "score": best.score,
        "n_best": [{"translation": each.text, "score": each.score} for each in translations],
        "tokens": {"source": best.src_tokens, "translation": best.tokens},
        "alignment": best.alignment,
        "mean_log_prob": best.mean_log_prob,
        "words": [{"word": word, "log_prob": log_prob} for word, log_prob in best.words],
    }
    if translator.glossary is not None:
        document["missing_terms"] = translator.missing_terms(source, best.text)
    return json_text(document)
