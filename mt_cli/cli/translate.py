"""`mt-cli translate` and `mt-cli score`."""

import logging
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mt_cli.cli.app import app, command
from mt_cli.cli.flags import DecodingFlags, ModelPaths, OutputFlags, RerankingFlags, RunPaths
from mt_cli.decoding import Sampling
from mt_cli.errors import UsageError, command_line
from mt_cli.machine.terminal import is_terminal, json_text, print_lines, progress_shown, write_bytes

if TYPE_CHECKING:  # torch is imported when something is translated
    from mt_cli.translation.lines import Translation

log = logging.getLogger(__name__)


@command(
    app,
    "translate runs/sample --text 'Ein Hund bellt.'",
    "translate runs/sample -i german.txt -o english.txt",
    "translate runs/sample < german.txt --n-best 3 --beam-size 5",
)
def translate(
    runs: ModelPaths,
    decoding: DecodingFlags,
    reranking: RerankingFlags,
    output: OutputFlags,
    source: Annotated[
        str, typer.Option("-i", "--input", metavar="FILE", help="Lines to translate; - is stdin.")
    ] = "-",
    target: Annotated[
        str,
        typer.Option(
            "-o", "--output", metavar="FILE", help="Where the translations go; - is stdout."
        ),
    ] = "-",
    text: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Text to translate in place of a file.")
    ] = None,
    n_best: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="N",
            help="Translations of each line, the best first; needs as many beams, or --sample.",
        ),
    ] = 1,
    with_score: Annotated[
        bool, typer.Option("--with-score", help="Score and a tab before each translation.")
    ] = False,
    with_alignment: Annotated[
        bool,
        typer.Option(
            "--with-alignment",
            help="A tab and the alignment after each: token positions source-target, from 0.",
        ),
    ] = False,
    sample: Annotated[
        bool,
        typer.Option("--sample", help="Draw translations at random in place of the likeliest."),
    ] = False,
    temperature: Annotated[
        float | None,
        typer.Option(
            min=0.01, max=100, metavar="X", help="For --sample: below 1 prefers likely tokens."
        ),
    ] = None,
    top_k: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="K", help="For --sample: draw from the K likeliest tokens; 0 is all."
        ),
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=1.0,
            metavar="P",
            help="For --sample: draw from the fewest tokens of this probability.",
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Random seed for --sample. [default: 1]")
    ] = None,
) -> None:
    """Translate text line by line.

    One line out for each line in, in order; N lines with --n-best N. Without -i and --text, lines
    are read from stdin; Ctrl-D ends them.
    """
    options = reranking.added_to(decoding.options())
    is_detailed = with_score or with_alignment or n_best > 1
    if options.reranking is not None and (is_detailed or sample or output.as_json):
        raise UsageError(
            "--rerank-with gives one translation a line, as text; leave out --n-best, "
            "--with-score, --with-alignment, --sample and --json"
        )
    _check_runs(runs)
    drawn = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
    given: dict[str, Any] = {name: value for name, value in drawn.items() if value is not None}
    if given and not sample:
        raise UsageError(
            f"--{next(iter(given)).replace('_', '-')} is an option of --sample; give that too"
        )
    seed = given.pop("seed", 1)
    if sample:
        options = replace(options, sampling=Sampling(**given), seed=seed)
    from mt_cli.runs.run import open_runs
    from mt_cli.translation.lines import (
        count_lines,
        line_chunks,
        open_source,
        open_target,
        typed_lines,
    )
    from mt_cli.translation.translator import Translator

    opened = open_runs(runs, may_be_exported=True)
    with ExitStack() as stack:
        lines_in = stack.enter_context(open_source(source, text=text))
        lines_out = stack.enter_context(open_target(target))
        translator = Translator.of_runs(opened, options)
        if lines_in.isatty():
            log.info(
                "type a sentence (%s) and press Enter; Ctrl-D ends", opened[0].config.data.src_lang
            )
        update = stack.enter_context(
            progress_shown(
                "translating",
                unit="lines",
                total=count_lines(lines_in),
                # There the translations themselves show how far it is, and a bar would run into
                # them.
                is_hidden=lines_in.isatty() or lines_out.file.isatty(),
            )
        )
        is_told, number = False, 1
        is_dialogue = lines_in.isatty() and target == "-" and is_terminal(sys.stdout)
        for lines in typed_lines() if is_dialogue else line_chunks(lines_in):
            if not (output.as_json or is_detailed):
                written = translator.translate(lines, on_progress=update)
            else:
                found = translator.translate_n_best(
                    lines,
                    n_best=n_best,
                    with_alignment=output.as_json or with_alignment,
                    on_progress=update,
                )
                written = (
                    list(map(_as_json, lines, found))
                    if output.as_json
                    else [
                        _as_text(one, with_score, with_alignment) for each in found for one in each
                    ]
                )
            data = "".join(f"{line}\n" for line in written).encode()
            if target == "-":
                write_bytes(data)
            else:
                lines_out.write(data)
            # Last: to know languages takes half a second.
            if not is_told and (doubt := translator.doubt(lines, first_line=number)):
                is_told = True
                log.warning("%s", doubt)
            number += len(lines)
        if warning := translator.limit_warning():
            log.warning("%s", warning)


def _check_runs(runs: Sequence[Path]) -> None:
    """Complain about text, or a file of it, that stands where only run folders may."""
    for place, path in enumerate(runs):
        if place == 0 or os.path.isdir(path):  # noqa: PTH112 — text may be too long for a name
            continue
        is_file = os.path.isfile(path)  # noqa: PTH113
        if is_file or " " in str(path) or "/" not in str(path):
            kind, flag = ("a file", "-i") if is_file else ("text", "--text")
            known = [each for each in runs if os.path.isdir(each)]  # noqa: PTH112
            words = path if is_file else " ".join(str(each) for each in runs if each not in known)
            advice = command_line("translate", *(known or [Path("RUN")]), flag, words)
            raise UsageError(f"{path}: not a run folder; to translate {kind}: {advice}")


def _as_text(translation: "Translation", with_score: bool, with_alignment: bool) -> str:
    fields = [f"{translation.score:.4f}"] if with_score else []
    fields.append(translation.text)
    if with_alignment:
        fields.append(" ".join(f"{src}-{tgt}" for src, tgt in translation.alignment))
    return "\t".join(fields)


def _as_json(source: str, translations: "list[Translation]") -> str:
    best = translations[0]
    document = {
        "source": source,
        "translation": best.text,
        "score": best.score,
        "n_best": [{"translation": each.text, "score": each.score} for each in translations],
        "tokens": {"source": best.src_tokens, "translation": best.tokens},
        "alignment": best.alignment,
    }
    return json_text(document)


@command(app, "score runs/sample --src german.txt --tgt english.txt --normalise")
def score(
    runs: RunPaths,
    src: Annotated[str, typer.Option(metavar="FILE", help="Sources; - is stdin.")],
    tgt: Annotated[
        str, typer.Option(metavar="FILE", help="Their translations, line by line; - is stdin.")
    ],
    decoding: DecodingFlags,
    output: OutputFlags,
    normalise: Annotated[
        bool,
        typer.Option("--normalise", help="Divide by the number of target tokens, </s> included."),
    ] = False,
) -> None:
    """Print the log-probability of given translations.

    Natural logarithms, line by line.
    """
    options = decoding.options()
    from mt_cli.runs.run import open_runs
    from mt_cli.translation.lines import LINES_AT_ONCE, check_aligned, line_chunks, open_source
    from mt_cli.translation.scorer import PairScorer

    if src == tgt == "-":
        raise UsageError(
            "sources and translations cannot both come from stdin; name a file for one"
        )
    with open_source(src) as of_src, open_source(tgt) as of_tgt:
        sources = [line for lines in line_chunks(of_src, side="source") for line in lines]
        targets = [line for lines in line_chunks(of_tgt, side="translation") for line in lines]
    check_aligned(Path(tgt), targets, src, sources)
    scorer = PairScorer.of_runs(open_runs(runs), options)
    # On a terminal the scores themselves show how far it is.
    is_hidden = is_terminal(sys.stdout)
    with progress_shown("scoring", unit="lines", total=len(sources), is_hidden=is_hidden) as update:
        for begin in range(0, len(sources), LINES_AT_ONCE):
            pairs = [side[begin : begin + LINES_AT_ONCE] for side in (sources, targets)]
            lines = []
            for source, target, found in zip(
                *pairs, scorer.score(*pairs, first_line=begin + 1), strict=True
            ):
                value = found.log_prob / found.num_tokens if normalise else found.log_prob
                document = {
                    "source": source,
                    "translation": target,
                    "score": value,
                    "log_prob": found.log_prob,
                    "tokens": found.num_tokens,
                }
                lines.append(json_text(document) if output.as_json else f"{value:.4f}")
            print_lines("\n".join(lines))
            update(len(lines))
