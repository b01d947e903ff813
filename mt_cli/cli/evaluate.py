"""`mt-cli evaluate`, `compare` and `score`."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mt_cli.cli.app import WITH, app, command
from mt_cli.cli.flags import (
    DECODING_FLAGS,
    MODEL_FLAGS,
    Checkpoint,
    DataOfSplits,
    ModelPaths,
    Noise,
    References,
    Sources,
    Splits,
    decoding_options,
    test_set_choice,
)
from mt_cli.cli.tables import Cell, Format, Score, Table, joint_name, print_table
from mt_cli.errors import UsageError
from mt_cli.machine.terminal import is_terminal, json_text, print_lines, progress_shown, table_text

if TYPE_CHECKING:
    from mt_cli.evaluation.compare import Comparison, Contrast, GroupComparison
    from mt_cli.evaluation.evaluate import EvalResult
    from mt_cli.evaluation.significance import MetricTest


@command(
    app,
    "evaluate runs/sample",
    "evaluate runs/sample --src german.txt --ref english.txt --beam-size 5",
    flags=DECODING_FLAGS,
    settings="decoding.KEY=VALUE",
)
def evaluate(
    runs: ModelPaths,
    settings: list[str],
    as_json: bool,
    split: Splits = None,
    src: Sources = None,
    ref: References = None,
    data: DataOfSplits = None,
    noise: Noise = None,
    checkpoint: Checkpoint = "best",
    form: Format = "text",
) -> None:
    """Translate test sets and score them with sacreBLEU.

    Prints a line for each split and metric: the score, sacreBLEU's signature and a 95 % bootstrap
    interval.
    """
    options = decoding_options(settings, checkpoint)
    from mt_cli.runs.opening import check_is_there

    for run in runs:
        check_is_there(run)
    from mt_cli.evaluation.evaluate import evaluate_runs

    results = evaluate_runs(runs, options, test_set_choice(split, src, ref, data, noise))
    document: dict[str, dict[str, Mapping[str, object]]] = {"splits": {}}
    lines = []
    for name, result in results.items():
        change = {}
        clean = results.get(name.rpartition("+")[0])
        if clean is not None:  # with noise
            bleu = result.scores.metrics["bleu"].score
            change["bleu_change"] = bleu - clean.scores.metrics["bleu"].score
        document["splits"][name] = {**result.as_json(), **change}
        for metric in result.scores.metrics.values():
            interval = "" if metric.interval is None else f"  95% interval {metric.interval}"
            lines.append(f"{name}  {metric}{interval}")
        facts = f"length ratio {result.scores.length_ratio:.3f}  unk rate {result.unk_rate:.4f}"
        for value in change.values():
            facts += f"  BLEU change {value:+.2f}"
        lines.append(f"{name}  {facts}")
    tables = [_scores_table(results)]
    print_table(tables, "\n".join(lines), document, form=form, as_json=as_json)


def _scores_table(results: "Mapping[str, EvalResult]") -> Table:
    """A row for each test set, a column for each metric."""
    rows = []
    signatures: dict[str, str] = {}
    for name, result in results.items():
        row: list[Cell] = [name]
        for metric in result.scores.metrics.values():
            row.append(Score(metric.score, metric.half_width))
            signatures[metric.name] = metric.signature
        row.append(Score(result.scores.length_ratio, digits=3))
        row.append(Score(result.unk_rate, digits=4))
        rows.append(row)
    head = ("test set", *signatures, "length ratio", "unk rate")
    marks = {"±": "half the width of the 95 % bootstrap interval (Koehn 2004)"}
    return Table(head, rows, signatures, marks)


@command(
    app,
    "compare runs/one runs/two --split test",
    "compare old.en new.en --ref english.txt --src german.txt",
    "compare runs/a1 runs/a2 runs/a3 --with runs/b1 runs/b2 runs/b3",
    flags=DECODING_FLAGS,
    settings="decoding.KEY=VALUE",
)
def compare(
    systems: Annotated[
        list[Path],
        typer.Argument(
            metavar="BASELINE SYSTEM...",
            help="Runs, exported models or files of translations; the first is the baseline.",
        ),
    ],
    settings: list[str],
    as_json: bool,
    others: Annotated[
        list[Path] | None,
        typer.Option(
            WITH,
            metavar="SYSTEM...",
            help="Runs of a second system, as many as the baseline has before --with.",
        ),
    ] = None,
    split: Splits = None,
    src: Sources = None,
    ref: References = None,
    data: DataOfSplits = None,
    noise: Noise = None,
    checkpoint: Checkpoint = "best",
    examples: Annotated[
        int | None,
        typer.Option(
            "--examples",
            min=0,
            metavar="N",
            help="Number of most-changed sentences to show; default: 10.",
        ),
    ] = None,
    form: Format = "text",
) -> None:
    """Test whether one system is better than another, and show where.

    Prints p-values for each metric, and the sentences that changed most. --with compares several
    trainings of each system: means, standard deviations, and a test over the trainings.
    """
    if others and examples is not None:
        raise UsageError("--examples does not work with --with; leave one of them out")
    options = decoding_options(settings, checkpoint)
    choice = test_set_choice(split, src, ref, data, noise)
    from mt_cli.runs.opening import check_is_there

    for path in (*systems, *(others or ())):
        if not path.exists() and (ref or not path.parent.is_dir()):
            raise UsageError(f"{path}: neither a run folder nor a file of translations")
        if not path.exists():
            check_is_there(path)
    from mt_cli.evaluation.compare import compare_groups, compare_systems

    if others:
        tests = compare_groups(systems, others, options, choice)
        text = "\n\n".join(map(_group_text, tests.values()))
        tables = list(map(_groups_table, tests.values()))
        print_table(tables, text, {"splits": tests}, form=form, as_json=as_json)
        return
    num_examples = 10 if examples is None else examples
    comparisons = compare_systems(systems, options, choice)
    parts = []
    for comparison in comparisons.values():
        for system in comparison.systems:
            parts.append("\n".join(_details(comparison, system, examples=num_examples)))
    tables = list(map(_systems_table, comparisons.values()))
    print_table(tables, "\n\n".join(parts), {"splits": comparisons}, form=form, as_json=as_json)


def _systems_table(comparison: "Comparison") -> Table:
    """A row for the baseline, and one for each group of systems."""
    first = comparison.systems[0].tests
    baseline = [Score(test.baseline.score, test.baseline.half_width) for test in first]
    rows: list[tuple[Cell, ...]] = [(comparison.test_set, comparison.baseline, 1, *baseline)]
    for group in comparison.groups:
        name = joint_name([contrast.name for contrast in group])
        scores = []
        for tests in zip(*(contrast.tests for contrast in group), strict=True):
            has_one_outcome = len({test.outcome for test in tests}) == 1
            is_marked = has_one_outcome and all(test.is_significant for test in tests)
            if len(tests) == 1:
                own = tests[0].system
                p = tests[0].randomization_p
                scores.append(Score(own.score, own.half_width, p, is_marked))
            else:
                values = [test.system.score for test in tests]
                scores.append(Score.of(values, is_marked=is_marked))
        rows.append((comparison.test_set, name, len(group), *scores))
    signatures: dict[str, str] = {test.metric: test.randomization_signature for test in first}
    marks = {
        "±": "half the width of the 95 % bootstrap interval; of n > 1 trainings, which differ in "
        "their seed only, the standard deviation",
        "*": "differs from the first system, p < 0.05 (paired randomization; each of n trainings)",
    }
    return Table(("test set", "system", "n", *signatures), rows, signatures, marks, lefts=2)


def _groups_table(comparison: "GroupComparison") -> Table:
    """A row for each of the two groups of trainings."""
    n = len(comparison.baseline)
    baseline = [Score(test.baseline.mean, test.baseline.deviation) for test in comparison.tests]
    system = []
    for test in comparison.tests:
        spread = test.system
        system.append(Score(spread.mean, spread.deviation, test.sentences_p, test.is_significant))
    rows: list[tuple[Cell, ...]] = [
        (comparison.test_set, joint_name(comparison.baseline), n, *baseline),
        (comparison.test_set, joint_name(comparison.system), n, *system),
    ]
    signatures: dict[str, str] = {test.metric: test.signature for test in comparison.tests}
    marks = {
        "±": "standard deviation of n trainings",
        "*": "differs from the first system, p < 0.05 (paired randomization of the sentences)",
    }
    return Table(("test set", "system", "n", *signatures), rows, signatures, marks, lefts=2)


def _details(comparison: "Comparison", contrast: "Contrast", *, examples: int) -> Iterator[str]:
    """Lines about one system, with up to `examples` of the sentences that changed most."""
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
        chrf = f"{change['baseline_chrf']:.1f} -> {change['chrf']:.1f}"
        yield f"\nline {change['line']}: chrF2 {chrf}"
        if change["source"] is not None:
            yield f"  source     {change['source']}"
        yield f"  reference  {change['ref']}"
        yield f"  baseline   {change['baseline_hyp']}"
        yield f"  system     {change['hyp']}"


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


@command(
    app,
    "score runs/sample --src german.txt --tgt english.txt --normalize",
    flags=MODEL_FLAGS,
    settings="decoding.KEY=VALUE",
)
def score(
    runs: ModelPaths,
    src: Annotated[str, typer.Option("--src", metavar="FILE", help="Sources; - is stdin.")],
    tgt: Annotated[
        str,
        typer.Option("--tgt", metavar="FILE", help="Translations, line by line; - is stdin."),
    ],
    settings: list[str],
    as_json: bool,
    normalize: Annotated[
        bool,
        typer.Option(
            "--normalize",
            "--normalise",
            help="Divide by the number of target tokens, </s> included.",
        ),
    ] = False,
    checkpoint: Checkpoint = "best",
) -> None:
    """Print the log-probability of given translations.

    Natural logarithms, line by line.
    """
    options = decoding_options(settings, checkpoint)
    from mt_cli.data.text_files import check_aligned
    from mt_cli.runs.opening import open_models
    from mt_cli.translation.numpy_engine import load_engine
    from mt_cli.translation.scorer import score_pairs
    from mt_cli.translation.streams import LINES_TOGETHER, line_chunks, open_source

    if src == tgt == "-":
        raise UsageError("--src and --tgt cannot both be stdin; use a file for one of them")
    sources: list[str] = []
    targets: list[str] = []
    with open_source(src) as src_file, open_source(tgt) as tgt_file:
        for lines in line_chunks(src_file, side="source"):
            sources += lines
        for lines in line_chunks(tgt_file, side="translation"):
            targets += lines
    check_aligned(Path(tgt), targets, src, sources)
    models = open_models(runs)
    engine = load_engine(models, options.config_of(models[0]), options)
    tokenizers = models[0].tokenizers
    # On a terminal, the scores themselves show the progress.
    is_hidden = is_terminal(sys.stdout)
    with progress_shown("scoring", unit="lines", total=len(sources), is_hidden=is_hidden) as update:
        for begin in range(0, len(sources), LINES_TOGETHER):
            part = slice(begin, begin + LINES_TOGETHER)
            scores = score_pairs(
                engine, tokenizers, sources[part], targets[part], first_line=begin + 1
            )
            lines = []
            for source, target, score in zip(sources[part], targets[part], scores, strict=True):
                log_prob, num_tokens = score
                value = log_prob / num_tokens if normalize else log_prob
                document = {
                    "source": source,
                    "translation": target,
                    "score": value,
                    "log_prob": log_prob,
                    "tokens": num_tokens,
                }
                lines.append(json_text(document) if as_json else f"{value:.4f}")
            print_lines("\n".join(lines))
            update(len(lines))
