"""`mt-cli compare`."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mt_cli.cli.app import WITH, app, command
from mt_cli.cli.flags import DecodingFlags, OutputFlags, TestSetFlags
from mt_cli.machine.terminal import print_result, table_text

if TYPE_CHECKING:  # torch and sacreBLEU are imported when something is scored
    from mt_cli.evaluation.compare import Comparison, Contrast, GroupComparison
    from mt_cli.evaluation.significance import MetricTest


@command(
    app,
    "compare runs/one runs/two --split test",
    "compare old.en new.en --ref english.txt --src german.txt",
    "compare runs/a1 runs/a2 runs/a3 --with runs/b1 runs/b2 runs/b3",
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
    others: Annotated[
        list[Path] | None,
        typer.Option(
            WITH,
            metavar="SYSTEM...",
            help="As many trainings of another system: all before --with are the baseline's.",
        ),
    ] = None,
    examples: Annotated[
        int, typer.Option(min=0, metavar="N", help="Sentences shown of those that changed most.")
    ] = 10,
    resamples: Annotated[
        int, typer.Option(min=100, metavar="N", help="Resamples of the paired bootstrap.")
    ] = 1000,
    trials: Annotated[
        int, typer.Option(min=100, metavar="N", help="Trials of the approximate randomization.")
    ] = 10_000,
) -> None:
    """Test whether one system is better than another, and show where.

    Prints the p-values of each metric and the sentences that changed most. With --with, several
    trainings of each are compared: means, standard deviations, and a test over the trainings.
    """
    from mt_cli.runs.opening import check_is_there

    for path in (*systems, *(others or ())):
        if not path.exists():
            check_is_there(path)
    from mt_cli.evaluation.compare import compare_groups, compare_systems

    if others:
        groups = compare_groups(
            systems, others, decoding.options(), test_sets.choice(), trials=trials
        )
        text = "\n\n".join(map(_group_text, groups.values()))
        print_result(text, {"splits": groups}, as_json=output.as_json)
        return
    comparisons = compare_systems(
        systems, decoding.options(), test_sets.choice(), resamples=resamples, trials=trials
    )
    parts = []
    for comparison in comparisons.values():
        for system in comparison.systems:
            parts.append("\n".join(_details(comparison, system, examples=examples)))
    print_result("\n\n".join(parts), {"splits": comparisons}, as_json=output.as_json)


def _details(comparison: "Comparison", contrast: "Contrast", *, examples: int) -> Iterator[str]:
    """Lines about one system, with so many of the sentences that changed most."""
    systems = f"{contrast.name} against {comparison.baseline}"
    yield f"{comparison.test_set}  {systems}: {contrast.outcome}"
    yield f"{len(contrast.changes)} of {comparison.n} translations differ"
    if not contrast.changes:
        return
    head = ("", "baseline", "system", "difference", "p (boots.)", "p (random.)")
    yield f"\n{table_text(head, [_test_row(test) for test in contrast.tests])}"
    for test in contrast.tests:
        yield f"{test.metric}  {test.randomization_signature}"
    for change in contrast.changes[:examples]:
        yield f"\nline {change.line}: chrF2 {change.baseline_chrf:.1f} -> {change.chrf:.1f}"
        if change.source is not None:
            yield f"  source     {change.source}"
        yield f"  reference  {change.ref}"
        yield f"  baseline   {change.baseline_hyp}"
        yield f"  system     {change.hyp}"


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


def _group_text(comparison: "GroupComparison") -> str:
    rows = []
    for test in comparison.tests:
        spreads = [
            f"{each.mean:.2f} ±{each.deviation:.2f}" for each in (test.baseline, test.system)
        ]
        p_values = (f"{test.seeds_p:.4f}", f"{test.sentences_p:.4f}")
        rows.append((test.metric, *spreads, f"{test.difference:+.2f}", *p_values))
    head = ("", "baseline", "system", "difference", "p (trainings)", "p (sentences)")
    return "\n".join(
        [
            f"{comparison.test_set}  {len(comparison.baseline)} trainings of each",
            f"baseline  {', '.join(comparison.baseline)}",
            f"system    {', '.join(comparison.system)}",
            "",
            table_text(head, rows),
            "",
            "mean ± standard deviation; p (trainings) by permutation of the trainings, "
            "p (sentences) by paired randomization",
            *(f"{test.metric}  {test.signature}" for test in comparison.tests),
        ]
    )
