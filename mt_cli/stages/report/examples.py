"""Picks examples from the whole range of a test set, and looks at each: words that differ, and attention.

Knows translations and models, nothing of pages.
"""

from collections.abc import Sequence

from mt_cli.errors import UsageError
from mt_cli.machine.device import one_thread
from mt_cli.machine.progress import ProgressDisplay
from mt_cli.stages.report.findings import AttentionMap, Example, ExampleGroup, Rendering
from mt_cli.stages.system import EvalSet, System
from mt_cli.translation.translator import Translator
from mt_cli.translation.word_differences import word_differences

LONGEST_TEXT = 1500
"""Characters of a line that are shown."""
MOST_TOKENS = 120
"""Of a side of an attention map, beyond which nobody can read it."""
OF_ONE_RUN = ("Worst", "Middle", "Best")
OF_TWO_RUNS = ("Gained least", "Middle", "Gained most")


def pick_examples(
    test_set: EvalSet,
    hyps: Sequence[Sequence[str]],
    chrf: Sequence[Sequence[float]],
    systems: Sequence[System],
    *,
    num_examples: int,
    lowercase: bool,
) -> tuple[ExampleGroup, ...]:
    """Sentences from the bottom, the middle and the top of the ranking by sentence chrF2, in its order.

    `hyps` and `chrf` are of each of `systems`. Two are ranked by what the second gains over the first.
    """
    if num_examples == 0:
        return ()
    gains = [last - first for first, last in zip(chrf[0], chrf[-1], strict=True)]
    ranking = rank(gains if len(systems) == 2 else chrf[0])
    titles = OF_TWO_RUNS if len(systems) == 2 else OF_ONE_RUN
    chosen = spread(len(ranking), num_examples)
    label, total = f"examples of {test_set.name}", sum(map(len, chosen))

    def example(number: int) -> Example:
        place = ranking[number]
        source, ref = test_set.sources[place], test_set.refs[place]
        renderings = tuple(
            _rendering(
                source,
                ref,
                of_system[place],
                chrf=scores[place],
                translator=system.translator,
                lowercase=lowercase,
            )
            for of_system, scores, system in zip(hyps, chrf, systems, strict=True)
        )
        progress.update(1)
        return Example(place + 1, number + 1, shortened(source), shortened(ref), renderings)

    for system in systems:
        _ = system.translator  # loaded with all threads: it may have to translate another test set
    with one_thread(), ProgressDisplay(label, unit="lines", total=total) as progress:
        groups = [
            ExampleGroup(title, tuple(map(example, ranks)))
            for title, ranks in zip(titles, chosen, strict=True)
        ]
    return tuple(group for group in groups if group.examples)


def rank(values: Sequence[float]) -> list[int]:
    """Places of `values`, the lowest first; of equals, the first comes first."""
    return sorted(range(len(values)), key=lambda place: values[place])


def spread(n: int, wanted: int) -> tuple[range, range, range]:
    """`wanted` ranks of `n`: a third from the beginning, a third from the middle, a third from the end."""
    wanted = min(n, wanted)
    num_low, num_high = (wanted + 2) // 3, (wanted + 1) // 3
    num_middle = wanted - num_low - num_high
    begin = num_low + (n - wanted) // 2
    return range(num_low), range(begin, begin + num_middle), range(n - num_high, n)


def shortened(text: str) -> str:
    """`text`, of which the end is left out if it is very long."""
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…"


def _rendering(
    source: str, ref: str, hyp: str, *, chrf: float, translator: Translator, lowercase: bool
) -> Rendering:
    attention = _attention(source, hyp, translator)
    return Rendering(
        hyp=shortened(hyp),
        chrf=chrf,
        differences=word_differences(shortened(hyp), shortened(ref), lowercase=lowercase),
        attention=None if isinstance(attention, str) else attention,
        no_attention=attention if isinstance(attention, str) else "",
    )


def _attention(source: str, hyp: str, translator: Translator) -> AttentionMap | str:
    """The map of the layer that aligns best, the last but one (Garg et al. 2019); or why there is none."""
    try:
        attention = translator.attention(source, target=hyp)
    except UsageError:
        return "No attention map: the line is empty, or was translated in parts."
    num_layers = len(attention.weights["cross"])
    maps = attention.maps("cross", layer=max(1, num_layers - 1))
    (panel,) = maps.panels
    if max(panel.values.shape) > MOST_TOKENS:
        return f"No attention map: the sentence has more than {MOST_TOKENS} tokens."
    return AttentionMap(
        title=f"Cross-attention, layer {maps.layer} of {num_layers}, {panel.title}",
        rows=tuple(panel.rows),
        columns=tuple(panel.columns),
        weights=tuple(tuple(row) for row in panel.values.tolist()),
    )
