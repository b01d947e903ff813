"""`mt-cli translate`."""

import logging
from collections.abc import Iterable, Iterator, Sequence
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
    from mt_cli.translation.result import Translation

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
    if texts and sources:
        raise UsageError("give either --text or --input, not both")
    from mt_cli.runs.run import check_is_there, models_named, open_models

    folders = models_named(runs or [])
    for folder in folders:
        check_is_there(folder)
    from mt_cli.translation.result import MAX_LINES, unlike_training, warnings_of
    from mt_cli.translation.streams import count_lines, open_source, open_target, portions
    from mt_cli.translation.translator import Translator

    models = open_models(folders)
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
        for_gpu = translator.engine.device == "cuda"
        read = chain.from_iterable(portions(file, for_gpu=for_gpu) for file in files)

        def written() -> "Iterator[Translation]":
            """The best translation of each line, after it has been written."""
            unlike = None
            latest: list[str] = []
            with progress_shown(
                "translating", unit="lines", total=total, is_hidden=has_no_bar
            ) as on_progress:
                for lines in read:
                    found = translator.translate_n_best(
                        lines,
                        n_best=n_best,
                        prefix=prefix,
                        is_scored=as_json or with_score or with_alignment or n_best > 1,
                        with_alignment=as_json or with_alignment,
                        with_words=as_json,
                        on_progress=on_progress,
                    )
                    text = ""
                    for of_line in found:
                        if as_json:
                            text += f"{_as_json(of_line)}\n"
                        else:
                            text += _as_text(of_line, with_score, with_alignment)
                    lines_out.write(text.encode())
                    yield from (of_line[0] for of_line in found)
                    latest = [*latest, *lines][-MAX_LINES:]
                    if unlike is None:
                        unlike = unlike_training(latest, models[0])
                        _log_warnings([unlike] if unlike else [])

        if is_typed:  # each line is told what is wrong with it
            for result in written():
                _log_warnings(warnings_of([result]))
        else:
            _log_warnings(warnings_of(written(), translator.glossary))


def _log_warnings(warnings: "Iterable[str]") -> None:
    """Log what is wrong with translations."""
    for warning in warnings:
        log.warning("%s", warning)


def _as_text(translations: "Sequence[Translation]", with_score: bool, with_alignment: bool) -> str:
    text = ""
    for each in translations:
        score = f"{each.score:.4f}\t" if with_score else ""
        pairs = " ".join(f"{src}-{tgt}" for src, tgt in each.alignment)
        text += f"{score}{each.text}" + (f"\t{pairs}" if with_alignment else "") + "\n"
    return text


def _as_json(translations: "Sequence[Translation]") -> str:
    best = translations[0]
    document = {
        "source": best.source,
        "translation": best.text,
        "score": best.score,
        "n_best": [{"translation": each.text, "score": each.score} for each in translations],
        "tokens": {"source": best.src_tokens, "translation": best.tokens},
        "alignment": best.alignment,
        "mean_log_prob": best.mean_log_prob,
        "words": [{"word": word, "log_prob": log_prob} for word, log_prob in best.words],
        **best.facts,
    }
    return json_text(document)
