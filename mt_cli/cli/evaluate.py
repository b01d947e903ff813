"""`mt-cli evaluate`."""

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from mt_cli.cli.app import app, command
from mt_cli.cli.flags import DecodingFlags, ModelPaths, OutputFlags, RerankingFlags, TestSetFlags
from mt_cli.machine.terminal import is_terminal, print_result, table_text

if TYPE_CHECKING:  # torch and sacreBLEU are imported when something is scored
    from mt_cli.evaluation.evaluate import TestSetResult


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

    Prints a table on a terminal, and elsewhere a line for each split and metric: the score and
    sacreBLEU's signature.
    """
    from mt_cli.runs.opening import check_is_there

    for run in runs:
        check_is_there(run)
    from mt_cli.evaluation.evaluate import evaluate_runs

    found = evaluate_runs(runs, reranking.added_to(decoding.options()), test_sets.choice())
    changes = _changes_by_noise(found)
    document: dict[str, dict[str, Mapping[str, object]]] = {"splits": {}}
    for name, result in found.items():
        change = {"bleu_change": changes[name]} if name in changes else {}
        document["splits"][name] = {**result.as_json(), **change}
    if is_terminal(sys.stdout):
        text = _scores_as_table(found, changes)
    else:
        text = _scores_as_lines(found, changes)
    print_result(text, document, as_json=output.as_json)


def _changes_by_noise(results: "Mapping[str, TestSetResult]") -> dict[str, float]:
    """By how much the BLEU of each noisy test set is above that of the clean one."""
    changes = {}
    for name, result in results.items():
        clean = results.get(name.rpartition("+")[0])
        if clean is not None:
            bleu = result.scores.metrics["bleu"].score
            changes[name] = bleu - clean.scores.metrics["bleu"].score
    return changes


def _scores_as_lines(results: "Mapping[str, TestSetResult]", changes: Mapping[str, float]) -> str:
    """A line for each score, for scripts: no line depends on the others."""
    lines = []
    for name, result in results.items():
        for metric in result.scores.metrics.values():
            interval = "" if metric.interval is None else f"  95% interval {metric.interval}"
            lines.append(f"{name}  {metric}{interval}")
        facts = f"length ratio {result.scores.length_ratio:.3f}  unk rate {result.unk_rate:.4f}"
        if name in changes:
            facts += f"  BLEU change {changes[name]:+.2f}"
        lines.append(f"{name}  {facts}")
    return "\n".join(lines)


def _scores_as_table(results: "Mapping[str, TestSetResult]", changes: Mapping[str, float]) -> str:
    """A row for each test set, and below it how it was scored."""
    rows = []
    for name, result in results.items():
        label = f"  +{name.rpartition('+')[2]}" if name in changes else name
        cells = [label]
        for metric in result.scores.metrics.values():
            half_width = "" if metric.half_width is None else f" ±{metric.half_width:.2f}"
            cells.append(f"{metric.score:.2f}{half_width}")
        cells.append(f"{result.scores.length_ratio:.3f}")
        if changes:
            cells.append(f"{changes[name]:+.2f}" if name in changes else "")
        else:
            cells.append(f"{result.unk_rate:.1%}")
            cells.append(f"{result.sentences_per_s:.0f}")
        rows.append(cells)
    first = next(iter(results.values())).scores.metrics.values()
    columns = ["length", "noise"] if changes else ["length", "unk", "sent/s"]
    legend = [f"{metric.name}  {metric.signature}" for metric in first]
    if any(metric.interval for metric in first):
        legend.append("±       half of the 95 % bootstrap interval")
    legend.append("length  of the translations, divided by the references'")
    if changes:
        legend.append("noise   BLEU less that of the clean test set")
    else:
        legend.append("unk     share of the source tokens that the vocabulary lacks")
    head = ["", *(metric.name for metric in first), *columns]
    return "\n".join([table_text(head, rows), "", *legend])
