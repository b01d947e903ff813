"""`mt-cli compare`."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mt_cli.cli.app import app, command
from mt_cli.cli.flags import DecodingFlags, OutputFlags, TestSetFlags
from mt_cli.machine.terminal import print_result, table_text

if TYPE_CHECKING:  # torch and sacreBLEU are imported when something is scored
    from mt_cli.evaluation.compare import Bucket, Change, Comparison, Contrast
    from mt_cli.evaluation.significance import MetricTest


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
        int, typer.Option(min=100, metavar="N", help="Trials of the approximate randomization.")
    ] = 10_000,
) -> None:
    """Test whether one system is better than another, and show where.

    Prints a verdict, the p-values of each metric, wins and losses, and the sentences that changed
    most.
    """
    from mt_cli.evaluation.compare import compare_systems

    comparisons = compare_systems(
        systems, decoding.options(), test_sets.choice(), resamples=resamples, trials=trials
    )
    parts = []
    for comparison in comparisons.values():
        lines = []
        caveats: dict[str, None] = {}
        for system in comparison.systems:
            lines.append(f"{comparison.test_set}  {system.verdict}")
            if system.caveat:
                caveats[f"note: {system.caveat}"] = None
        parts.append("\n".join([*lines, *caveats]))
        for system in comparison.systems:
            parts.append("\n".join(_details(comparison, system, examples=examples)))
    print_result("\n\n".join(parts), {"splits": comparisons}, as_json=output.as_json)


def _details(comparison: "Comparison", contrast: "Contrast", *, examples: int) -> Iterator[str]:
    """Lines about one system, with so many sentences that gained most, and that lost most."""
    yield f"baseline  {comparison.baseline}"
    yield f"system    {contrast.name}"
    yield f"{len(contrast.changes)} of {comparison.n} translations differ"
    if not contrast.changes:
        return
    head = ("", "baseline", "system", "difference", "p (boots.)", "p (random.)")
    yield f"\n{table_text(head, [_test_row(test) for test in contrast.tests])}"
    for test in contrast.tests:
        yield f"{test.metric}  {test.randomization_signature}"
    kind = "reference" if contrast.changes[0].source is None else "source"
    yield _buckets(f"words in {kind}", contrast.by_length)
    if contrast.by_unseen_words is not None:
        yield _buckets("words unseen in training", contrast.by_unseen_words)
    gained = [change for change in contrast.changes if change.difference > 0]
    lost = [change for change in contrast.changes if change.difference < 0]
    for change in gained[:examples]:
        yield from _example(change, "gained most")
    for change in lost[:examples]:
        yield from _example(change, "lost most")


def _test_row(test: "MetricTest") -> tuple[str, ...]:
    return (
        test.metric,
        f"{test.baseline.score:.2f} ±{test.baseline.half_width:.2f}",
        f"{test.system.score:.2f} ±{test.system.half_width:.2f}",
        f"{test.difference:+.2f}",
        _p_value(test.bootstrap_p),
        _p_value(test.randomization_p),
    )


def _p_value(p: float | None) -> str:
    return "-" if p is None else f"{p:.4f}"


def _example(change: "Change", heading: str) -> Iterator[str]:
    yield (
        f"\nline {change.line}, {heading}: chrF2 {change.baseline_chrf:.1f} -> {change.chrf:.1f}"
    )
    if change.source is not None:
        yield f"  source     {change.source}"
    yield f"  reference  {change.ref}"
    yield f"  baseline   {change.baseline_hyp}"
    yield f"  system     {change.hyp}"


def _buckets(heading: str, buckets: "Sequence[Bucket]") -> str:
    rows = []
    for each in buckets:
        counts = (each["label"], each["n"], each["wins"], each["losses"], each["ties"])
        rows.append((*counts, f"{each['mean_difference']:+.2f}"))
    head = (heading, "sentences", "wins", "losses", "ties", "chrF2 change")
    return f"\n{table_text(head, rows)}"
