"""`mt-cli translate`."""

import io
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mt_cli.cli.app import app, command
from mt_cli.cli.flags import DECODING_FLAGS, Checkpoint, OptionalModelPaths, decoding_options
from mt_cli.errors import UsageError
from mt_cli.machine.terminal import json_text, progress_shown

if TYPE_CHECKING:  # torch is imported only when something is translated
    from mt_cli.translation.result import Translation

    Portion = tuple[list[str], Sequence[Sequence[str]]]
    """Lines, and the other cells of their rows."""

log = logging.getLogger(__name__)
COMPARED_LINES = 100
"""Maximum lines that are compared with the training text."""
SHEETS = (".csv", ".tsv")
"""File endings for which the output is a table."""


@command(
    app,
    "translate de-en --text 'Ein Hund rennt durch den Schnee.'",
    "translate runs/sample -i german.txt -o english.txt",
    "translate de-en -i job.csv --columns German -o review.csv",
    "translate runs/sample < german.txt --n-best 3 --beam-size 5",
    flags=DECODING_FLAGS,
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
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="Output file; - is stdout. A .csv or .tsv file becomes a table for review.",
        ),
    ] = "-",
    columns: Annotated[
        str | None,
        typer.Option(
            "--columns",
            metavar="NAME",
            help="Column to translate of a .csv or .tsv --input: its name in the first row, or its "
            "number from 1.",
        ),
    ] = None,
    texts: Annotated[
        list[str] | None,
        typer.Option("--text", metavar="TEXT", help="Text to translate instead of a file."),
    ] = None,
    prefix: Annotated[
        str,
        typer.Option(
            "--prefix", metavar="TEXT", help="Text that each translation must begin with."
        ),
    ] = "",
    n_best: Annotated[
        int,
        typer.Option("--n-best", min=1, metavar="N", help="Number of translations per line."),
    ] = 1,
    with_score: Annotated[
        bool, typer.Option("--with-score", help="Put the score and a tab before each translation.")
    ] = False,
    with_alignment: Annotated[
        bool,
        typer.Option(
            "--with-alignment", help="Append a tab and the word alignment, as source-target pairs."
        ),
    ] = False,
    checkpoint: Checkpoint = "best",
) -> None:
    """Translate text line by line.

    Writes one line for each input line, in order. --n-best N writes N lines for each, or with
    --json one object with all N. Without -i and --text, it reads lines from stdin up to Ctrl-D.
    """
    options = decoding_options(settings, checkpoint)
    if texts and sources:
        raise UsageError("give either --text or --input, not both")
    if columns is not None and len(sources or ()) != 1:
        raise UsageError("--columns needs exactly one --input")
    makes_sheet = _makes_sheet(target, is_other=as_json or with_score or with_alignment)
    from mt_cli.cli.sheets import Sheet, SourceTable
    from mt_cli.runs.opening import check_is_there, models_named, open_models

    folders = models_named(runs or [])
    for folder in folders:
        check_is_there(folder)
    from mt_cli.translation.result import Problems, unlike_training
    from mt_cli.translation.streams import count_lines, open_source, open_target, portions
    from mt_cli.translation.translator import Translator

    models = open_models(folders)
    table = SourceTable.open(Path(sources[0]), columns) if sources and columns is not None else None
    sheet = Sheet(Path(target), table.head if table else ()) if makes_sheet else None
    with ExitStack() as stack:
        files: list[io.BufferedIOBase] = []
        if texts:
            files = [stack.enter_context(open_source("-", text="\n".join(texts)))]
        elif table is None:
            files = [stack.enter_context(open_source(name)) for name in sources or ("-",)]
        lines_out = stack.enter_context(open_target(target))
        translator = Translator.of_models(models, options)
        is_typed = any(file.isatty() for file in files)
        if is_typed:
            log.info(
                "type a sentence (%s) and press Enter; Ctrl-D ends", models[0].config.data.src_lang
            )
        of_files = chain.from_iterable(
            portions(file, for_gpu=translator.engine.device == "cuda") for file in files
        )
        read = table.portions() if table else ((lines, [()] * len(lines)) for lines in of_files)
        counts = [count_lines(file) for file in files]
        on_progress = stack.enter_context(
            progress_shown(
                "translating",
                unit="lines",
                total=None if None in counts or table else sum(filter(None, counts)),
                # Lines that are typed in or printed on a terminal show the progress themselves.
                is_hidden=is_typed or lines_out.isatty(),
            )
        )
        has_details = as_json or sheet is not None
        as_text = partial(_as_text, with_score=with_score, with_alignment=with_alignment)
        text_of = _as_json if as_json else as_text
        problems = Problems(None if is_typed else translator.glossary)
        for lines, cells in _told_if_unlike(read, partial(unlike_training, run=models[0])):
            translations = translator.translate_n_best(
                lines,
                n_best=n_best,
                prefix=prefix,
                is_scored=has_details or with_score or with_alignment or n_best > 1,
                with_alignment=as_json or with_alignment,
                with_words=has_details,
                on_progress=on_progress,
            )
            if sheet is not None:
                text = sheet.rows(translations, cells)
            else:
                text = "".join(map(text_of, translations))
            lines_out.write(text.encode())
            for best, *_ in translations:
                problems.add(best)
                if is_typed:  # warn after each line
                    _log_warnings(problems.warnings())
                    problems = Problems()
        if sheet is not None:  # for an empty input, write the header
            lines_out.write(sheet.rows([], []).encode())
        _log_warnings(problems.warnings())


def _makes_sheet(target: str, *, is_other: bool) -> bool:
    """Whether `target` is a table; tables cannot be combined with `is_other` output flags."""
    makes_sheet = Path(target).suffix.lower() in SHEETS
    if makes_sheet and is_other:
        raise UsageError(
            f"{target}: tables have fixed columns; leave out --json, --with-score and "
            "--with-alignment"
        )
    return makes_sheet


def _told_if_unlike(
    read: "Iterable[Portion]", unlike: "Callable[[list[str]], str | None]"
) -> "Iterator[Portion]":
    """Pass on what is `read`, and warn once if it is `unlike` the training text."""
    latest: list[str] = []
    is_told = False
    for lines, cells in read:
        yield lines, cells
        latest = [*latest, *lines][-COMPARED_LINES:]
        warning = None if is_told else unlike(latest)
        is_told = is_told or warning is not None
        _log_warnings([warning] if warning else [])


def _log_warnings(warnings: "Iterable[str]") -> None:
    """Log warnings about translations."""
    for warning in warnings:
        log.warning("%s", warning)


def _as_text(
    translations: "Sequence[Translation]", *, with_score: bool, with_alignment: bool
) -> str:
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
    return f"{json_text(document)}\n"
