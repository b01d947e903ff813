"""`mt-cli evaluate`, `compare`, `report` and `plot`."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mt_cli.cli.app import app, command
from mt_cli.cli.flags import DecodingFlags, ModelPaths, OutputFlags, RerankingFlags, TestSetFlags
from mt_cli.machine.terminal import is_terminal, print_result, table_text

if TYPE_CHECKING:  # torch and sacreBLEU are imported when something is scored
    from mt_cli.evaluation.compare import Bucket, Comparison, Contrast
    from mt_cli.evaluation.evaluate import Assessment
    from mt_cli.evaluation.scoring import Score


@command(
    app,
    "evaluate runs/sample",
    "evaluate runs/sample --src german.txt --ref english.txt --beam-size 5",
)
def evaluate(
    runs: ModelPaths,
    decoding: DecodingFlags,
    reranking: RerankingFlags,
    output: OutputFlags,
    test_sets: TestSetFlags,
) -> None:
    """Translate test sets and score them with sacreBLEU.

    Prints a line for each split and metric: the score and sacreBLEU's signature.
    """
    from mt_cli.evaluation.evaluate import evaluate_runs

    found = evaluate_runs(runs, reranking.added_to(decoding.options()), test_sets.choice())
    document = {"splits": {name: each.as_json() for name, each in found.items()}}
    text = _scores_as_table(found) if is_terminal(sys.stdout) else _scores_as_lines(found)
    print_result(text, document, as_json=output.as_json)


def _scores_as_lines(assessments: "Mapping[str, Assessment]") -> str:
    """A line for each value, for scripts: in a line, nothing depends on the others."""

    def lines(assessment: "Assessment") -> Iterator[str]:
        yield from map(str, assessment.scores.metrics.values())
        for metric in assessment.scores.metrics.values():
            if metric.interval is not None:
                yield f"{metric.name} 95% interval {metric.interval}"
        yield f"length ratio {assessment.scores.length_ratio:.3f}"
        yield f"unk rate {assessment.unk_rate:.4f}"

    return "\n".join(
        f"{name}  {line}" for name, each in assessments.items() for line in lines(each)
    )


def _scores_as_table(assessments: "Mapping[str, Assessment]") -> str:
    """A row for each test set, and below it how it was scored."""
    first = next(iter(assessments.values())).scores.metrics

    def cell(metric: "Score") -> str:
        half_width = "" if metric.half_width is None else f" ±{metric.half_width:.2f}"
        return f"{metric.score:.2f}{half_width}"

    rows = [
        (
            name,
            *map(cell, each.scores.metrics.values()),
            f"{each.scores.length_ratio:.3f}",
            f"{each.unk_rate:.1%}",
            f"{each.sentences_per_s:.0f}",
        )
        for name, each in assessments.items()
    ]
    head = ("", *(metric.name for metric in first.values()), "length", "unk", "sent/s")
    legend = [f"{metric.name}  {metric.signature}" for metric in first.values()]
    if any(metric.interval for metric in first.values()):
        legend.append("±       half of the 95 % bootstrap interval")
    legend.append("length  of the translations, divided by the references'")
    legend.append("unk     share of the source tokens that the vocabulary lacks")
    return "\n".join([table_text(head, rows), "", *legend])


@command(
    app,
    "compare runs/one runs/two --split test",
    "compare old.en new.en --ref english.txt --src german.txt",
)
def compare(
    systems: Annotated[
        list[Path],
        typer.Argument(
            metavar="BASELINE SYSTEM...",
            help="Runs, exported models, or files of translations; the first is the baseline.",
        ),
    ],
    decoding: DecodingFlags,
    output: OutputFlags,
    test_sets: TestSetFlags,
    examples: Annotated[
        int,
        typer.Option(
            min=0, metavar="N", help="Sentences shown of those that gained most, and lost most."
        ),
    ] = 3,
    resamples: Annotated[
        int, typer.Option(min=100, metavar="N", help="Resamples of the paired bootstrap.")
    ] = 1000,
    trials: Annotated[
        int, typer.Option(min=100, metavar="N", help="Trials of the approximate randomisation.")
    ] = 10_000,
) -> None:
    """Test whether one system is better than another, and show where.

    Prints a verdict, the p-values of each metric, wins and losses, and the sentences that changed
    most.
    """
    from mt_cli.evaluation.compare import compare_systems

    options, choice = decoding.options(), test_sets.choice()
    comparisons = compare_systems(systems, options, choice, resamples=resamples, trials=trials)
    parts = []
    for each in comparisons.values():
        verdicts = [f"{each.test_set}  {system.verdict}" for system in each.systems]
        caveats = dict.fromkeys(system.caveat for system in each.systems if system.caveat)
        parts.append("\n".join([*verdicts, *(f"note: {caveat}" for caveat in caveats)]))
        parts += ["\n".join(_details(each, system, examples=examples)) for system in each.systems]
    print_result("\n\n".join(parts), {"splits": comparisons}, as_json=output.as_json)


def _details(comparison: "Comparison", contrast: "Contrast", *, examples: int) -> Iterator[str]:
    """Lines on one system; `examples` is how many sentences are shown of those that gained, and
    that lost.
    """
    yield f"baseline  {comparison.baseline}"
    yield f"system    {contrast.name}"
    yield f"{len(contrast.changes)} of {comparison.n} translations differ"
    if not contrast.changes:
        return

    def p_value(p: float | None) -> str:
        return "-" if p is None else f"{p:.4f}"

    rows = [
        (
            test.metric,
            *(f"{each.score:.2f} ±{each.half_width:.2f}" for each in (test.baseline, test.system)),
            f"{test.difference:+.2f}",
            p_value(test.bootstrap_p),
            p_value(test.randomisation_p),
        )
        for test in contrast.tests
    ]
    head = ("", "baseline", "system", "difference", "p (boots.)", "p (random.)")
    yield f"\n{table_text(head, rows)}"
    for test in contrast.tests:
        yield f"{test.metric}  {test.randomisation_signature}"
    kind = "reference" if contrast.changes[0].source is None else "source"
    yield _buckets(f"words in {kind}", contrast.by_length)
    if contrast.by_unseen_words is not None:
        yield _buckets("words unseen in training", contrast.by_unseen_words)
    for heading, sign in (("gained most", 1), ("lost most", -1)):
        for change in [each for each in contrast.changes if sign * each.difference > 0][:examples]:
            yield f"\nline {change.line}, {heading}: chrF2 {change.baseline_chrf:.1f} -> {change.chrf:.1f}"
            if change.source is not None:
                yield f"  source     {change.source}"
            yield f"  reference  {change.ref}"
            yield f"  baseline   {change.baseline_hyp}"
            yield f"  system     {change.hyp}"


def _buckets(heading: str, buckets: "Sequence[Bucket]") -> str:
    rows = [
        (
            *(each[key] for key in ("label", "n", "wins", "losses", "ties")),
            f"{each['mean_difference']:+.2f}",
        )
        for each in buckets
    ]
    return f"\n{table_text((heading, 'sentences', 'wins', 'losses', 'ties', 'chrF2 change'), rows)}"


@command(
    app,
    "report runs/sample -o report.html",
    "report runs/one runs/two -o report.html --examples 60",
)
def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN [RUN]",
            help="A run folder, such as runs/sample, or two: the baseline, and another.",
        ),
    ],
    file: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="The page to write: .html.")
    ],
    decoding: DecodingFlags,
    output: OutputFlags,
    test_sets: TestSetFlags,
    examples: Annotated[
        int, typer.Option(min=0, metavar="N", help="Sentences shown of each split, worst and best.")
    ] = 30,
) -> None:
    """Show a run, or two side by side, on one page for any browser.

    Prints the page's path; with --json, what the page shows too.
    """
    from mt_cli.evaluation.report import write_report

    options, choice = decoding.options(), test_sets.choice()
    findings = write_report(runs, options, choice, output=file, num_examples=examples)
    print_result(file, {"page": file, **findings}, as_json=output.as_json)


@command(app, "plot runs/sample -o curves.png", "plot runs/one runs/two -o curves.svg")
def plot(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Run folders, such as runs/sample, drawn together."),
    ],
    file: Annotated[
        Path,
        typer.Option("-o", "--output", metavar="FILE", help="The picture to write: .png or .svg."),
    ],
    output: OutputFlags,
) -> None:
    """Draw loss, BLEU and learning rate of trainings.

    Prints the picture's path; with --json, the curves too.
    """
    from mt_cli.evaluation.report import plot_runs

    drawn = plot_runs(runs, output=file)
    print_result(file, {"picture": file, "runs": drawn}, as_json=output.as_json)
