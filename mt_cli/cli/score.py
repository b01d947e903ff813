"""`mt-cli score`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from mt_cli.cli.app import app, command
from mt_cli.cli.flags import ModelFlags, OutputFlags, RunPaths
from mt_cli.errors import UsageError
from mt_cli.machine.terminal import is_terminal, json_text, print_lines, progress_shown


@command(app, "score runs/sample --src german.txt --tgt english.txt --normalize")
def score(
    runs: RunPaths,
    src: Annotated[str, typer.Option(metavar="FILE", help="Sources; - is stdin.")],
    tgt: Annotated[
        str, typer.Option(metavar="FILE", help="Their translations, line by line; - is stdin.")
    ],
    model: ModelFlags,
    output: OutputFlags,
    normalize: Annotated[
        bool,
        typer.Option(
            "--normalize",
            "--normalise",
            help="Divide by the number of target tokens, </s> included.",
        ),
    ] = False,
) -> None:
    """Print the log-probability of given translations.

    Natural logarithms, line by line.
    """
    options = model.options()
    from mt_cli.runs.opening import open_runs
    from mt_cli.translation.lines import check_aligned
    from mt_cli.translation.scorer import PairScorer
    from mt_cli.translation.streams import LINES_TOGETHER, line_chunks, open_source

    if src == tgt == "-":
        raise UsageError(
            "sources and translations cannot both come from stdin; name a file for one"
        )
    sources: list[str] = []
    targets: list[str] = []
    with open_source(src) as src_file, open_source(tgt) as tgt_file:
        for lines in line_chunks(src_file, side="source"):
            sources += lines
        for lines in line_chunks(tgt_file, side="translation"):
            targets += lines
    check_aligned(Path(tgt), targets, src, sources)
    scorer = PairScorer.of_runs(open_runs(runs), options)
    # On a terminal, the scores themselves show how far it is.
    is_hidden = is_terminal(sys.stdout)
    with progress_shown("scoring", unit="lines", total=len(sources), is_hidden=is_hidden) as update:
        for begin in range(0, len(sources), LINES_TOGETHER):
            part = slice(begin, begin + LINES_TOGETHER)
            scores = scorer.score(sources[part], targets[part], first_line=begin + 1)
            lines = []
            for source, target, found in zip(sources[part], targets[part], scores, strict=True):
                value = found.log_prob
                if normalize:
                    value /= found.num_tokens
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
