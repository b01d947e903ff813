"""`mt-cli translate`."""

import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mt_cli.cli.app import app, command
from mt_cli.cli.flags import DecodingFlags, ModelPaths, OutputFlags, RerankingFlags
from mt_cli.config.messages import command_line
from mt_cli.decoding.sampling import Sampling
from mt_cli.errors import UsageError
from mt_cli.machine.progress import progress_shown
from mt_cli.machine.terminal import is_terminal, json_text, write_bytes

if TYPE_CHECKING:  # torch is imported when something is translated
    from mt_cli.translation.lines import Translation
    from mt_cli.translation.options import DecodingOptions

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
    is_detailed = with_score or with_alignment or n_best > 1 or output.as_json
    if options.reranking is not None and (is_detailed or sample):
        raise UsageError(
            "--rerank-with gives one translation a line, as text; leave out --n-best, "
            "--with-score, --with-alignment, --sample and --json"
        )
    _check_runs(runs)
    options = _with_sampling(
        options, sample=sample, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed
    )
    from mt_cli.runs.opening import open_models
    from mt_cli.translation.streams import (
        count_lines,
        line_chunks,
        open_source,
        open_target,
        typed_lines,
    )
    from mt_cli.translation.translator import Translator

    models = open_models(runs)
    with open_source(source, text=text) as lines_in, open_target(target) as lines_out:
        translator = Translator.of_models(models, options)
        is_typed = lines_in.isatty()
        if is_typed:
            lang = models[0].config.data.src_lang
            log.info("type a sentence (%s) and press Enter; Ctrl-D ends", lang)
        chunks = line_chunks(lines_in)
        if is_typed and target == "-" and is_terminal(sys.stdout):
            chunks = typed_lines()
        with progress_shown(
            "translating",
            unit="lines",
            total=count_lines(lines_in),
            # There the translations themselves show how far it is, and a bar would run into them.
            is_hidden=is_typed or lines_out.file.isatty(),
        ) as on_progress:
            first_line = 1
            has_warned = False
            for lines in chunks:
                if is_detailed:
                    found = translator.translate_n_best(
                        lines,
                        n_best=n_best,
                        with_alignment=output.as_json or with_alignment,
                        on_progress=on_progress,
                    )
                    if output.as_json:
                        written = list(map(_as_json, lines, found))
                    else:
                        written = [
                            _as_text(translation, with_score, with_alignment)
                            for translation in chain.from_iterable(found)
                        ]
                else:
                    written = translator.translate(lines, on_progress=on_progress)
                data = "".join(f"{line}\n" for line in written).encode()
                if target == "-":
                    write_bytes(data)
                else:
                    lines_out.write(data)
                # After the translations, which nobody should have to wait for.
                if not has_warned:
                    warning = translator.input_warning(lines, first_line=first_line)
                    if warning is not None:
                        has_warned = True
                        log.warning("%s", warning)
                first_line += len(lines)
        warning = translator.limit_warning()
        if warning is not None:
            log.warning("%s", warning)


def _with_sampling(
    options: "DecodingOptions",
    *,
    sample: bool,
    temperature: float | None,
    top_k: int | None,
    top_p: float | None,
    seed: int | None,
) -> "DecodingOptions":
    """`options` with what the flags of sampling say."""
    flags = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
    chosen: dict[str, Any] = {name: value for name, value in flags.items() if value is not None}
    if not sample:
        for name in chosen:
            raise UsageError(f"--{name.replace('_', '-')} is an option of --sample; give that too")
        return options
    seed = chosen.pop("seed", 1)
    return replace(options, sampling=Sampling(**chosen), seed=seed)


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
