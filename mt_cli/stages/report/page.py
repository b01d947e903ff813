"""Renders findings as one HTML page that needs nothing else: no network, no other file.

A pure function of its findings; the looks stand in page.css, the little that moves in page.js.
"""

import base64
import hashlib
from collections.abc import Iterator
from importlib.resources import files
from string import Template

from mt_cli.stages.report.charts import key
from mt_cli.stages.report.findings import Findings, RunFacts
from mt_cli.stages.report.making import curves_section, settings_section
from mt_cli.stages.report.markup import Html, element, escaped
from mt_cli.stages.report.scores import kinds_section, scores_section
from mt_cli.stages.report.sentences import sentences_section
from mt_cli.stages.train.table import in_words

SECTIONS = {
    "scores": "Scores",
    "training": "Training",
    "kinds": "Kinds of sentences",
    "sentences": "Sentences",
    "made": "How it was made",
}
"""Headings by id, in the page's order."""


def render_page(findings: Findings) -> str:
    """The page, as a document whose policy permits its own style and script and nothing else."""
    style, script = _read("page.css"), _read("page.js")
    return Template(_read("page.html")).substitute(
        title=escaped(f"{_title(findings)}: translation report"),
        policy=escaped(_policy(style, script)),
        style=style,
        script=script,
        header=_header(findings),
        nav=_nav(),
        main=Html.joined(
            scores_section(findings),
            curves_section(findings),
            kinds_section(findings),
            sentences_section(findings),
            settings_section(findings),
        ),
        footer=escaped(f"Made by mt-cli {findings.version}."),
    )


def _read(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    return (
        f"default-src 'none'; style-src '{_source_hash(style)}'; script-src '{_source_hash(script)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _source_hash(text: str) -> str:
    """As a Content-Security-Policy names an inline style or script."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _title(findings: Findings) -> str:
    return " and ".join(run.name for run in findings.runs)


def _header(findings: Findings) -> Html:
    first = findings.runs[0]
    overline = f"Translation report, {first.src_lang} → {first.tgt_lang}"
    cards = [
        _run_facts(run, number, search, is_pair=len(findings.runs) == 2)
        for number, (run, search) in enumerate(zip(findings.runs, findings.search, strict=True), start=1)
    ]
    return Html.joined(
        element("p", overline, class_="overline"),
        element("h1", _title(findings)),
        element("div", *cards, class_="runs"),
    )


def _run_facts(run: RunFacts, number: int, search: str, *, is_pair: bool) -> Html:
    facts = (element("div", element("dt", name), element("dd", value)) for name, value in _facts(run, search))
    role = ("baseline" if number == 1 else "against it") if is_pair else ""
    heading = [element("h2", key(run.name, number=number), element("small", role))] if is_pair else []
    return element("div", *heading, element("dl", *facts), class_="run")


def _facts(run: RunFacts, search: str) -> Iterator[tuple[str, str]]:
    yield "Parameters", f"{run.num_parameters:,}"
    yield "Checkpoint", run.checkpoint
    yield "Decoding", search
    yield "Corpus", run.corpus
    match run.status:
        case {"elapsed_s": int(seconds) | float(seconds), "step": int(step)}:
            yield "Training", f"{step:,} updates in {in_words(float(seconds))}"
    match run.environment:
        case {"device": str(device), "precision": str(precision)}:
            yield "Trained on", f"{device}, {precision}"
    yield "Folder", run.folder


def _nav() -> Html:
    links = (element("li", element("a", title, href=f"#{name}")) for name, title in SECTIONS.items())
    return element("ul", *links)
