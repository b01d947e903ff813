"""How `evaluate` shows scores: lines that scripts can rely on, and a table for people.

Knows the numbers of an assessment, not where they come from.
"""

from collections.abc import Iterator, Mapping, Sequence
from io import StringIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # torch and sacreBLEU are imported when something is scored
    from rich.table import Table

    from mt_cli.stages.system import Assessment
    from mt_cli.translation.scoring import Score

WIDTH = 80


def scores_as_lines(assessments: "Mapping[str, Assessment]") -> str:
    """A line for each value, test set and two spaces first; in a line, nothing depends on the others."""
    return "\n".join(
        f"{name}  {line}" for name, assessment in assessments.items() for line in _lines(assessment)
    )


def _lines(assessment: "Assessment") -> Iterator[str]:
    scores = assessment.scores
    yield from map(str, scores.metrics)
    for metric in scores.metrics:
        if metric.interval is not None:
            yield f"{metric.name} 95% interval {metric.interval}"
    yield f"length ratio {scores.length_ratio:.3f}"
    yield f"unk rate {assessment.unk_rate:.4f}"


def scores_as_table(assessments: "Mapping[str, Assessment]") -> str:
    """A row for each test set, at most `WIDTH` columns wide, and below it how it was scored."""
    from rich.table import Table

    first = next(iter(assessments.values())).scores
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("", overflow="fold")
    for heading in (*(metric.name for metric in first.metrics), "length", "unk", "sent/s"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, each in assessments.items():
        table.add_row(
            name,
            *map(_cell, each.scores.metrics),
            f"{each.scores.length_ratio:.3f}",
            f"{each.unk_rate:.1%}",
            f"{each.sentences_per_s:.0f}",
        )
    return "\n".join([rendered(table), "", *_legend(first.metrics)])


def _cell(metric: "Score") -> str:
    if metric.interval is None:
        return f"{metric.score:.2f}"
    return f"{metric.score:.2f} ±{metric.interval.half_width:.2f}"


def _legend(metrics: "Sequence[Score]") -> Iterator[str]:
    for metric in metrics:
        yield f"{metric.name}  {metric.signature}"
    if any(metric.interval for metric in metrics):
        yield "±       half of the 95 % bootstrap interval"
    yield "length  of the translations, divided by the references'"
    yield "unk     share of the source tokens that the vocabulary lacks"


def rendered(table: "Table") -> str:
    """`table` as plain text, at most `WIDTH` columns wide."""
    from rich.console import Console

    console = Console(file=StringIO(), width=WIDTH, color_system=None, legacy_windows=False)
    with console.capture() as captured:
        console.print(table)
    return "\n".join(line.rstrip() for line in captured.get().rstrip("\n").split("\n"))
