"""How `compare` shows what it found: the verdict first, then numbers, kinds of sentences and examples.

Knows the results of a comparison, not how they were found.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # torch and sacreBLEU are imported when something is compared
    from mt_cli.stages.compare.comparison import Comparison, Contrast
    from mt_cli.translation.changes import Bucket, Change
    from mt_cli.translation.significance import Estimate


def comparison_as_text(comparison: "Comparison", *, examples: int) -> str:
    """One test set; `examples` is how many sentences are shown of those that gained, and that lost."""
    verdicts = [f"{comparison.test_set}  {each.verdict.sentence}" for each in comparison.contrasts]
    details = [
        "\n".join(_details(comparison, contrast, examples=examples)) for contrast in comparison.contrasts
    ]
    return "\n\n".join(["\n".join(verdicts), *details])


def _details(comparison: "Comparison", contrast: "Contrast", *, examples: int) -> Iterator[str]:
    yield f"baseline  {comparison.baseline}"
    yield f"system    {contrast.name}"
    yield f"{len(contrast.changes)} of {comparison.n} translations differ"
    if not contrast.changes:
        return
    yield ""
    yield from _scores(contrast)
    kind = "source" if comparison.sources is not None else "reference"
    yield from _buckets(f"words in {kind}", contrast.by_length)
    if contrast.by_unseen_words is not None:
        yield from _buckets("words unseen in training", contrast.by_unseen_words)
    gains = [change for change in contrast.changes if change.difference > 0][:examples]
    losses = [change for change in contrast.changes if change.difference < 0][:examples]
    yield from _examples("gained most", gains)
    yield from _examples("lost most", losses)


def _scores(contrast: "Contrast") -> Iterator[str]:
    columns = ("baseline", "system", "difference", "p (bootstrap)", "p (randomisation)")
    yield from _aligned(
        ("", *columns),
        *(
            (
                test.metric,
                _estimate(test.baseline),
                _estimate(test.system),
                f"{test.difference:+.2f}",
                _p_value(test.bootstrap_p),
                _p_value(test.randomisation_p),
            )
            for test in contrast.tests
        ),
    )
    for test in contrast.tests:
        yield f"{test.metric}  {test.randomisation_signature}"


def _estimate(estimate: "Estimate") -> str:
    return f"{estimate.score:.2f} ±{estimate.half_width:.2f}"


def _p_value(p: float | None) -> str:
    return "-" if p is None else f"{p:.4f}"


def _buckets(heading: str, buckets: "Sequence[Bucket]") -> Iterator[str]:
    yield ""
    yield from _aligned(
        (heading, "sentences", "wins", "losses", "ties", "chrF2 change"),
        *(
            (each.label, each.n, each.wins, each.losses, each.ties, f"{each.mean_difference:+.2f}")
            for each in buckets
        ),
    )


def _examples(heading: str, changes: "Sequence[Change]") -> Iterator[str]:
    for change in changes:
        yield ""
        yield f"line {change.line}, {heading}: chrF2 {change.baseline_chrf:.1f} -> {change.chrf:.1f}"
        if change.source is not None:
            yield f"  source     {change.source}"
        yield f"  reference  {change.ref}"
        yield f"  baseline   {change.baseline_hyp}"
        yield f"  system     {change.hyp}"


def _aligned(*rows: tuple[object, ...]) -> Iterator[str]:
    """`rows` in columns, the first to the left and the others to the right."""
    texts = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    for first, *others in texts:
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        yield "  ".join([first.ljust(widths[0]), *cells])
