"""The page's part on single sentences: how their scores spread, and examples with words and attention.

Knows findings and markup.
"""

from collections.abc import Iterator, Sequence

from mt_cli.stages.report.charts import histogram, key
from mt_cli.stages.report.findings import (
    AttentionMap,
    Example,
    Findings,
    Rendering,
    RunFacts,
    TestSetFindings,
)
from mt_cli.stages.report.markup import Html, element, folded
from mt_cli.translation.drawing import short_label
from mt_cli.translation.word_differences import Span

LARGEST_MAPS = 1_600_000
"""Bytes of all maps of a page together; later maps are left out, so that the page can still be sent."""
CELL, LETTER = 18, 6.6
"""Side of a map's cell, and width of a label's letter, in pixels."""
LEVELS = 12
"""Shades of a map, beside none at all."""


class MapBudget:
    """How many bytes of attention maps the page may still take."""

    def __init__(self) -> None:
        self._left = LARGEST_MAPS

    def take(self, drawn: Html) -> bool:
        """Whether there is room for `drawn`, which then is used up."""
        size = len(drawn.encode())
        if size > self._left:
            return False
        self._left -= size
        return True


def sentences_section(findings: Findings) -> Html:
    """Each test set's spread of scores and examples, from worst to best."""
    budget = MapBudget()
    spreads = element("div", *map(_spread, findings.test_sets), class_="charts")
    is_only = len(findings.test_sets) == 1
    examples = [
        part
        for test_set in findings.test_sets
        for part in _examples(test_set, findings.runs, budget, is_only=is_only)
    ]
    how = [_legend(findings), _tools()] if examples else []
    return element("section", element("h2", "Sentences"), spreads, *how, *examples, id="sentences")


def _tools() -> Html:
    """What needs the script, which shows it."""
    return element(
        "div",
        element("label", "Show sentences with ", element("input", type="search", id="filter")),
        element("button", "Open all maps", type="button", id="open"),
        element("button", "Close all maps", type="button", id="close"),
        element("output", id="shown"),
        class_="tools",
        hidden=True,
    )


def _legend(findings: Findings) -> Html:
    order = "the second run gains over the first" if len(findings.runs) == 2 else "the translation scores"
    return element(
        "p",
        f"A sample of the whole range, ranked by what {order} in sentence chrF2. ",
        element("ins", "Marked like this"),
        ": words that the reference does not have. ",
        element("del", "Marked like this"),
        ": words of the reference that the translation does not have.",
        class_="note",
    )


def _spread(test_set: TestSetFindings) -> Html:
    """How many sentences score how much."""
    title = f"Sentence chrF2 on {test_set.name}"
    drawn = histogram(test_set.sentence_chrf, x_label="sentence chrF2", title=title)
    return element("figure", element("figcaption", title), drawn)


def _examples(
    test_set: TestSetFindings, runs: Sequence[RunFacts], budget: MapBudget, *, is_only: bool
) -> Iterator[Html]:
    if test_set.groups and not is_only:
        yield element("h3", test_set.name)
    for group in test_set.groups:
        yield element("h3" if is_only else "h4", group.title)
        yield element(
            "ol",
            *(_example(each, test_set, runs, budget) for each in group.examples),
            class_="examples",
        )


def _example(
    example: Example, test_set: TestSetFindings, runs: Sequence[RunFacts], budget: MapBudget
) -> Html:
    is_pair = len(runs) == 2
    src_lang, tgt_lang = runs[0].src_lang, runs[0].tgt_lang
    ref = example.ref if is_pair else _marked(example.renderings[0].differences.ref, "del")
    rows = [
        element("dt", "Source"),
        element("dd", example.source, lang=src_lang, dir="auto"),
        element("dt", "Reference"),
        element("dd", ref, lang=tgt_lang, dir="auto"),
    ]
    for number, (run, rendering) in enumerate(zip(runs, example.renderings, strict=True), start=1):
        rows += [
            element("dt", key(run.name, number=number) if is_pair else "Translation"),
            element("dd", _marked(rendering.differences.hyp, "ins"), lang=tgt_lang, dir="auto"),
        ]
        if is_pair:
            rows += _missing(rendering, tgt_lang)
    maps = [
        _attention(rendering, run.name if is_pair else "", example.line, budget)
        for run, rendering in zip(runs, example.renderings, strict=True)
    ]
    return element("li", _heading(example, test_set.n), element("dl", *rows), *maps, class_="card")


def _heading(example: Example, n: int) -> Html:
    scores = " → ".join(f"{each.chrf:.1f}" for each in example.renderings)
    gain = f" ({example.gain:+.1f})" if len(example.renderings) == 2 else ""
    return element(
        "p",
        element("b", f"chrF2 {scores}{gain}"),
        element("span", f"line {example.line:,}"),
        element("span", f"rank {example.rank:,} of {n:,}"),
        class_="facts",
    )


def _marked(spans: Sequence[Span], tag: str) -> Html:
    return Html.joined(*(span.text if span.is_shared else element(tag, span.text) for span in spans))


def _missing(rendering: Rendering, lang: str) -> list[Html]:
    words = [element("del", span.text.strip()) for span in rendering.differences.ref if not span.is_shared]
    if not words:
        return []
    return [element("dt", "missing"), element("dd", Html.joined(*words, between=" "), lang=lang, dir="auto")]


def _attention(rendering: Rendering, run: str, line: int, budget: MapBudget) -> Html:
    if rendering.attention is None:
        return element("p", rendering.no_attention, class_="note")
    summary = f"Cross-attention of {run}" if run else "Cross-attention"
    drawn = attention_svg(rendering.attention)
    if not budget.take(drawn):
        return element("p", "No attention map: the page would become too large.", class_="note")
    box = element(
        "div", drawn, class_="scroll", role="region", aria_label=f"{summary}, line {line}", tabindex=0
    )
    highest = max(map(max, rendering.attention.weights))
    caption = element(
        "figcaption",
        f"{rendering.attention.title}. Rows, the translation's tokens, look at columns, the source's. "
        f"The darkest cell has {highest:.2f} of its row's attention.",
    )
    return folded(summary, element("figure", box, caption), class_="map")


def attention_svg(attention: AttentionMap) -> Html:
    """A map with a shade for each weight; what each token looks at most is said in words too."""
    rows, columns = list(map(short_label, attention.rows)), list(map(short_label, attention.columns))
    left = round(max(map(len, rows)) * LETTER) + 10
    top = round(max(map(len, columns)) * LETTER) + 10
    width, height = left + CELL * len(columns) + 4, top + CELL * len(rows) + 4
    labels = [
        element("text", label, x=left - 6, y=top + CELL * i + CELL / 2, dy="0.35em", class_="tick end")
        for i, label in enumerate(rows)
    ]
    labels += [
        element(
            "text",
            label,
            transform=f"translate({left + CELL * i + CELL / 2:g} {top - 6}) rotate(-90)",
            dy="0.35em",
            class_="tick",
        )
        for i, label in enumerate(columns)
    ]
    frame = element("path", d=f"M0 0h{len(columns)}v{len(rows)}h-{len(columns)}z", class_="frame")
    cells = element("g", frame, *_shades(attention), transform=f"translate({left} {top}) scale({CELL})")
    return element(
        "svg",
        *labels,
        cells,
        width=width,
        height=height,
        viewBox=f"0 0 {width} {height}",
        role="img",
        aria_label=_in_words(attention),
        class_="attention",
    )


def _shades(attention: AttentionMap) -> Iterator[Html]:
    """One path for all cells of a shade, which is short however many they are."""
    highest = max(max(weights) for weights in attention.weights)
    paths: list[list[str]] = [[] for _ in range(LEVELS + 1)]
    for y, weights in enumerate(attention.weights):
        for x, weight in enumerate(weights):
            paths[round(weight / highest * LEVELS)].append(f"M{x} {y}h1v1h-1z")
    for level, cells in enumerate(paths):
        if level and cells:
            yield element("path", d="".join(cells), fill_opacity=f"{level / LEVELS:g}")


def _in_words(attention: AttentionMap) -> str:
    tops = [
        f"{row} → {attention.columns[max(range(len(weights)), key=weights.__getitem__)]}"
        for row, weights in zip(attention.rows, attention.weights, strict=True)
    ]
    return f"{attention.title}. What each token looks at most: {', '.join(tops)}."
