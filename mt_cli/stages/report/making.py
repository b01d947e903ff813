"""The page's last part: how the runs were trained, with which settings and versions.

Knows findings and markup.
"""

import json
from collections.abc import Iterator, Mapping, Sequence

from mt_cli.stages.curves import Curves, Point
from mt_cli.stages.report.charts import Line, key, line_chart
from mt_cli.stages.report.findings import Findings, RunFacts
from mt_cli.stages.report.markup import Html, element, folded, table


def curves_section(findings: Findings) -> Html:
    """Loss, BLEU and learning rate against the step."""
    drawn = [
        (number, run.name, run.curves) for number, run in enumerate(findings.runs, start=1) if run.curves
    ]
    missing = [
        element("p", f"{run.name}: no curves: {run.no_curves}", class_="note")
        for run in findings.runs
        if run.curves is None
    ]
    return element("section", element("h2", "Training"), *_charts(drawn), *missing, id="training")


def _charts(drawn: Sequence[tuple[int, str, Curves]]) -> Iterator[Html]:
    if not drawn:
        return
    loss = [
        *(
            _line(f"{name}, training", curves.train_nll, number, dotted=True)
            for number, name, curves in drawn
        ),
        *(_line(f"{name}, validation", curves.val_nll, number, marks=True) for number, name, curves in drawn),
    ]
    bleu = [_line(name, curves.bleu, number, marks=True) for number, name, curves in drawn]
    rate = [_line(name, curves.lr, number) for number, name, curves in drawn]
    signatures = dict.fromkeys(text for _, _, curves in drawn for text in curves.bleu_signatures)
    if len(drawn) > 1:
        keys = (key(name, number=number) for number, name, _ in drawn)
        yield element("p", Html.joined(*keys, between=" "), class_="note")
    yield element(
        "div",
        _figure(
            "Negative log-likelihood",
            loss,
            y_label="nats per target token",
            remark="dotted: training, with dropout; marked: validation",
        ),
        _figure("BLEU on validation", bleu, y_label="BLEU", code=" ".join(signatures), from_zero=True),
        _figure("Learning rate", rate, y_label="", from_zero=True),
        class_="charts",
    )
    for _, name, curves in drawn:
        rows = [
            [f"{nll.step:,}", f"{nll.value:.4f}", f"{score.value:.2f}"]
            for nll, score in zip(curves.val_nll, curves.bleu, strict=True)
        ]
        title = f"Validations of {name} in numbers"
        yield folded(title, table(["Step", "Nats per token", "BLEU"], *rows, caption=title))


def _line(
    label: str, points: Sequence[Point], number: int, *, dotted: bool = False, marks: bool = False
) -> Line:
    return Line(
        label,
        [(point.step, point.value) for point in points],
        number,
        style="dotted" if dotted else "plain",
        has_marks=marks,
    )


def _figure(
    title: str,
    lines: Sequence[Line],
    *,
    y_label: str,
    remark: str = "",
    code: str = "",
    from_zero: bool = False,
) -> Html:
    lines = [line for line in lines if line.points]
    if not lines:
        return element("figure", element("figcaption", f"{title}: nothing measured yet"))
    last = ", ".join(f"{line.label} ends at {line.points[-1][1]:.4g}" for line in lines)
    chart = line_chart(lines, x_label="step", y_label=y_label, title=f"{title}: {last}", from_zero=from_zero)
    remarks = [element("small", remark)] if remark else []
    remarks += [element("small", element("code", code))] if code else []
    return element("figure", element("figcaption", title, *remarks), chart)


def settings_section(findings: Findings) -> Html:
    """What the configs set, which versions made the runs, and the hashes of what they are."""
    return element(
        "section",
        element("h2", "How it was made"),
        *_settings(findings.runs),
        *_environment(findings.runs),
        *_hashes(findings.runs),
        id="made",
    )


def _settings(runs: Sequence[RunFacts]) -> Iterator[Html]:
    yield element("h3", "Settings that are not at their default")
    yield _side_by_side("Setting", [run.settings for run in runs], runs, absent="default")
    for run in runs:
        yield folded(f"Whole config of {run.name}", element("pre", element("code", run.config), tabindex=0))


def _environment(runs: Sequence[RunFacts]) -> Iterator[Html]:
    yield element("h3", "Versions and hardware of training")
    if any(run.environment for run in runs):
        yield _side_by_side("Name", [run.environment for run in runs], runs, absent="–")
    else:
        yield element("p", "Not known: there is no env.json.", class_="note")


def _hashes(runs: Sequence[RunFacts]) -> Iterator[Html]:
    yield element("h3", "Hashes")
    for run in runs:
        title = f"sha256 of {run.name}" if len(runs) > 1 else "sha256"
        rows = [[name, element("code", digest)] for name, digest in run.sha256.items()]
        yield table(["File", title], *rows, caption=title, class_="texts")


def _side_by_side(
    head: str, facts: Sequence[Mapping[str, object]], runs: Sequence[RunFacts], *, absent: str
) -> Html:
    """A row for each key that any of the runs has; values that differ are marked."""
    names = dict.fromkeys(name for of_run in facts for name in of_run)
    rows = []
    for name in names:
        cells = [_shown(of_run[name]) if name in of_run else absent for of_run in facts]
        is_same = len(set(cells)) == 1
        rows.append([name, *(cells if is_same else [element("mark", cell) for cell in cells])])
    columns = [run.name for run in runs] if len(runs) > 1 else ["Value"]
    caption = "Settings" if absent == "default" else "Versions and hardware"
    return table([head, *columns], *rows, caption=caption, class_="texts")


def _shown(value: object) -> str:
    if isinstance(value, str):
        return value
    return "not set" if value is None else json.dumps(value, ensure_ascii=False)
