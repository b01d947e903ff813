"""The page's first part: what was measured, with intervals and signatures, and the verdict on two runs.

Knows findings and markup.
"""

from collections.abc import Iterator, Sequence

from mt_cli.stages.report.charts import key, score_bar
from mt_cli.stages.report.findings import Findings, RunFacts, Slice, TestSetFindings
from mt_cli.stages.report.markup import Html, element, folded, table
from mt_cli.translation.scoring import Score
from mt_cli.translation.significance import MetricTest

SIGNS = {"better": "▲", "worse": "▼", "unclear": "≈", "identical": "="}
"""Before a verdict, so that colour is not all that tells it."""
BARS = element("span", "0 to 100", class_="bars")
"""Heading of a column of bars, which a phone leaves out."""
BETTER = {"BLEU": "higher is better", "chrF2": "higher is better", "TER": "lower is better"}


def scores_section(findings: Findings) -> Html:
    """Every test set, one below the other, then what else the run folders keep."""
    return element(
        "section",
        element("h2", "Scores"),
        *(_test_set(each, findings.runs) for each in findings.test_sets),
        _note(findings),
        *_kept(findings),
        id="scores",
    )


def _test_set(test_set: TestSetFindings, runs: Sequence[RunFacts]) -> Html:
    parts: list[Html] = [
        element("h3", test_set.name, element("small", f"{test_set.n:,} sentences")),
        *_verdicts(test_set),
        _scores_table(test_set, runs),
        _signatures(test_set.scores[0].metrics, test_set),
    ]
    for run, symptoms in zip(runs, test_set.symptoms, strict=True):
        parts += [element("p", f"{run.name}: {symptom}", class_="warning") for symptom in symptoms]
    return element("article", *parts, class_="card")


def _verdicts(test_set: TestSetFindings) -> Iterator[Html]:
    if test_set.comparison is None:
        return
    for contrast in test_set.comparison.contrasts:
        verdict = contrast.verdict
        sign = element("span", SIGNS[verdict.outcome], aria_hidden="true", class_="sign")
        yield element("p", sign, verdict.sentence, class_=f"verdict {verdict.outcome}")


def _scores_table(test_set: TestSetFindings, runs: Sequence[RunFacts]) -> Html:
    head = ["Metric", *(key(run.name, number=number) for number, run in enumerate(runs, start=1)), BARS]
    tests: Sequence[MetricTest] = ()
    if test_set.comparison is not None:
        (contrast,) = test_set.comparison.contrasts
        tests = contrast.tests
        head += ["Difference", "p"]
    if len(runs) == 1:
        head[1] = "Score"
    rows = [
        [
            element("span", metrics[0].name, element("small", BETTER.get(metrics[0].name, ""))),
            *map(_score, metrics),
            _bars(metrics),
            *(_difference(tests[i]) if tests else ()),
        ]
        for i, metrics in enumerate(zip(*(each.metrics for each in test_set.scores), strict=True))
    ]
    blank = ["", *([""] * (2 if tests else 0))]
    ratios = [f"{each.length_ratio:.3f}" for each in test_set.scores]
    rows.append([_name("Length ratio", "of references"), *ratios, *blank])
    unknown = [f"{rate:.2%}" for rate in test_set.unk_rates]
    rows.append([_name("Unknown tokens", "of sources"), *unknown, *blank])
    return table(head, *rows, caption=f"Scores on {test_set.name}", class_="scores")


def _name(name: str, remark: str) -> Html:
    return element("span", name, element("small", remark))


def _score(metric: Score) -> Html:
    if metric.interval is None:
        return element("b", f"{metric.score:.2f}")
    half_width = element("small", f"± {metric.interval.half_width:.2f}")
    return Html.joined(element("b", f"{metric.score:.2f}"), " ", half_width)


def _bars(metrics: Sequence[Score]) -> Html:
    bars = []
    for number, metric in enumerate(metrics, start=1):
        interval = metric.interval
        ends = None
        if interval is not None:
            ends = interval.mean - interval.half_width, interval.mean + interval.half_width
        bars.append(score_bar(metric.score, number=number, title=f"{metric.score:.1f}", interval=ends))
    return Html.joined(*bars)


def _difference(test: MetricTest) -> Iterator[str]:
    kind = "gain" if test.is_better else "loss"
    difference = f"{test.difference:+.2f}".replace("-", "−")
    yield element("b", difference, class_=kind if test.is_significant else None)
    yield "–" if test.randomisation_p is None else f"{test.randomisation_p:.4f}"


def _signatures(metrics: Sequence[Score], test_set: TestSetFindings) -> Html:
    """A score never travels without its signature."""
    rows: list[Html] = []
    for metric in metrics:
        signature = metric.signature if metric.interval is None else metric.interval.signature
        rows += [element("dt", metric.name), element("dd", element("code", signature))]
    if test_set.comparison is not None:
        (contrast,) = test_set.comparison.contrasts
        for test in contrast.tests:
            rows += [
                element("dt", f"{test.metric}, p"),
                element("dd", element("code", test.randomisation_signature)),
            ]
    return element("dl", *rows, class_="signatures")


def _note(findings: Findings) -> Html:
    note = (
        "± is half of the 95 % bootstrap interval, which the bars' whiskers show; bars go from 0 to 100. "
        "Below each table stand sacreBLEU's signatures."
    )
    if len(findings.runs) == 2:
        note += (
            " p says how often chance alone makes a difference as large (paired approximate randomisation)."
        )
    return element("p", note, class_="note")


def _kept(findings: Findings) -> Iterator[Html]:
    """Scores that the folders keep of the same checkpoints but that are not shown above."""
    shown = {(test_set.name, search) for test_set in findings.test_sets for search in findings.search}
    for run in findings.runs:
        others = [each for each in run.kept if (each.test_set, each.decoding) not in shown]
        if others:
            rows = [
                [
                    each.evaluation,
                    each.name,
                    f"{each.score:.2f}",
                    f"{each.n:,}",
                    element("code", each.signature),
                ]
                for each in others
            ]
            title = f"Other kept evaluations of {run.name}"
            head = ["Evaluation", "Metric", "Score", "Sentences", "Signature"]
            yield folded(title, table(head, *rows, caption=title))


def kinds_section(findings: Findings) -> Html:
    """Scores by length and by unknown words."""
    cards = []
    for test_set in findings.test_sets:
        parts = [
            element("h3", test_set.name),
            _slices("Words in the source", test_set.by_length, findings.runs, test_set.name),
        ]
        if test_set.by_unseen_words is None:
            parts.append(
                element(
                    "p",
                    "Words that training never showed are not counted: the prepared data are not here.",
                    class_="note",
                )
            )
        else:
            parts.append(_slices("Unseen words", test_set.by_unseen_words, findings.runs, test_set.name))
        cards.append(element("article", *parts, class_="card"))
    note = (
        "Corpus scores of the sentences of each kind. Unseen words are words of the source that the "
        "training data do not have. Few sentences make a score uncertain."
    )
    return element(
        "section", element("h2", "Kinds of sentences"), *cards, element("p", note, class_="note"), id="kinds"
    )


def _slices(kind: str, slices: Sequence[Slice], runs: Sequence[RunFacts], test_set: str) -> Html:
    is_pair = len(runs) == 2
    head = [kind, "Sentences"]
    for run in runs:
        head += [f"chrF2, {run.name}", f"BLEU, {run.name}"] if is_pair else ["chrF2", "BLEU"]
    head.append(BARS)
    rows = []
    for each in slices:
        row: list[str] = [each.label.replace("-", "–"), f"{each.n:,}"]
        for bleu, chrf in zip(each.bleu, each.chrf, strict=True):
            row += [f"{chrf:.1f}", f"{bleu:.1f}"]
        bars = [
            score_bar(chrf, number=number, title=f"chrF2 {chrf:.1f}")
            for number, chrf in enumerate(each.chrf, start=1)
        ]
        rows.append([*row, Html.joined(*bars)])
    return table(head, *rows, caption=f"{kind}, {test_set}", class_="slices")
