"""`report`: what is known of a run, or of two side by side, as one page that can be sent to anybody.

The page's looks stand in report.html, a template; its pictures come from `curves` and `attention`.
"""

import base64
import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import asdict, dataclass
from difflib import SequenceMatcher
from importlib.resources import files
from itertools import groupby
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from mt_cli import __version__
from mt_cli.config.load import differences, dump_config
from mt_cli.config.schema import Config
from mt_cli.errors import DataError, UsageError
from mt_cli.evaluation.card import KeptScore, kept_scores
from mt_cli.evaluation.compare import (
    Comparison,
    check_same_direction,
    check_tests_fit,
    compare_translations,
    test_splits_of,
    translations_of,
    unseen_words,
)
from mt_cli.evaluation.curves import Curves, compose, curves_of, labels_of
from mt_cli.evaluation.evaluate import EvalSet, System
from mt_cli.evaluation.scoring import Scores, score, sentence_chrf, symptoms
from mt_cli.machine.device import one_thread
from mt_cli.machine.files import write_atomically
from mt_cli.machine.pictures import Panel, render, render_panels
from mt_cli.machine.terminal import ProgressDisplay, in_words, visible
from mt_cli.model.shapes import num_parameters
from mt_cli.runs.checkpoint import MODEL, weights_sha256
from mt_cli.runs.run import ENVIRONMENT, STATUS, Run
from mt_cli.translation.lines import unk_rate
from mt_cli.translation.translator import DecodingOptions, Translator

ENDINGS = (".html", ".htm")
LONGEST_TEXT = 1500
"""Characters of a line that are shown."""
MOST_TOKENS = 60
"""Of a side of an attention map, beyond which nobody can read it."""
MOST_MAPS = 8
"""Of a page: each takes a third of a second to draw."""
PIECE = re.compile(r"\s+|\w+|[^\w\s]")
"""White space, a word, or a mark; every character is in one of them."""


@dataclass(frozen=True)
class RunFacts:
    """What a run is, how it was made and with what."""

    name: str
    """Of its folder; if both runs have the same, the folder's path."""
    folder: str
    checkpoint: str
    search: str
    """How it searched for its translations, such as `greedy`."""
    src_lang: str
    tgt_lang: str
    corpus: str
    num_parameters: int
    status: dict[str, object]
    """How far training came, as status.json says it."""
    settings: dict[str, object]
    """Keys that are not at their default, with their values."""
    config: str
    """All keys, as TOML."""
    environment: dict[str, object]
    """Versions and hardware of training, as env.json says it."""
    sha256: dict[str, str]
    """Of the checkpoint's weights, the prepared data and the files that every command loads."""
    curves: Curves | None
    kept: tuple[KeptScore, ...]
    """Scores that the run folder keeps of this checkpoint."""


@dataclass(frozen=True)
class Span:
    """A stretch of a line."""

    text: str
    is_shared: bool
    """Whether the other line has the same words in the same order."""


@dataclass(frozen=True)
class Rendering:
    """One run's translation of an example."""

    text: str
    chrf: float
    """chrF2 of the one sentence."""
    spans: tuple[Span, ...]
    """The translation, cut where it begins and ceases to agree with the reference."""
    missing: tuple[str, ...]
    """What the reference has and the translation has not."""
    attention: Panel | None
    """How much each token of the translation looks at each of the source; None where no map is drawn."""


@dataclass(frozen=True)
class Example:
    """A sentence of a test set."""

    line: int
    """From 1."""
    rank: int
    """From 1, the worst."""
    source: str
    ref: str
    translations: tuple[Rendering, ...]
    """One for each run."""


@dataclass(frozen=True)
class TestSetFindings:
    """One test set; what is of each run is in their order."""

    name: str
    scores: tuple[Scores, ...]
    unk_rates: tuple[float, ...]
    symptoms: tuple[tuple[str, ...], ...]
    """What looks wrong with each run's translations."""
    comparison: Comparison | None
    """Of two runs."""
    groups: dict[str, tuple[Example, ...]]
    """Examples by the place in the ranking that they have."""


@dataclass(frozen=True)
class Findings:
    """The whole report."""

    runs: tuple[RunFacts, ...]
    """One, or the baseline and another."""
    test_sets: tuple[TestSetFindings, ...]

    def as_json(self) -> dict[str, object]:
        """The form that `report --json` prints."""
        return {
            "mt_cli": __version__,
            "runs": [asdict(run) for run in self.runs],
            "test_sets": {each.name: _test_set_as_json(each) for each in self.test_sets},
        }


def _test_set_as_json(found: TestSetFindings) -> dict[str, object]:
    return {
        "scores": [each.as_json() for each in found.scores],
        "unk_rates": list(found.unk_rates),
        "symptoms": [list(each) for each in found.symptoms],
        "comparison": None if found.comparison is None else found.comparison.as_json(),
        "examples": [
            {
                "group": title,
                "line": each.line,
                "rank": each.rank,
                "source": each.source,
                "reference": each.ref,
                "translations": [{"text": one.text, "chrf": one.chrf} for one in each.translations],
            }
            for title, group in found.groups.items()
            for each in group
        ],
    }


def write_report(
    run_dirs: Sequence[Path],
    options: DecodingOptions,
    *,
    output: Path,
    splits: Sequence[str] = (),
    num_examples: int = 30,
    data_dir: Path | None = None,
) -> Findings:
    """Write a page about one run, or two side by side, to `output`; gives what it shows.

    Runs translate, unless the translations of this very checkpoint and search are kept in their folder. The
    test sets are the `splits` of the first run's data, by default every test split.

    Raises:
        UsageError: `output` is no .html file, there are not one or two runs, or no such split or checkpoint.
        DataError: a file is damaged, or the data are gone and nothing is kept of them.
        ResourceError: the page cannot be written.
    """
    if output.suffix.lower() not in ENDINGS or output.is_dir():
        raise UsageError(f"{output}: a report is a page; name a file that ends in {' or '.join(ENDINGS)}")
    if not 1 <= len(run_dirs) <= 2:
        raise UsageError(f"a report shows one run, or two side by side; found {len(run_dirs)}")
    if len({run_dir.resolve() for run_dir in run_dirs}) < len(run_dirs):
        raise UsageError(f"{run_dirs[1]}: named twice; name two runs, or one")
    systems = [System([run_dir], options) for run_dir in run_dirs]
    for system in systems:
        if (parent := system.run.exported_from) is not None:
            raise UsageError(
                f"{system.run.folder}: an exported model says nothing of its training; report on the run "
                f"that it was exported from: {parent.folder}"
            )
    check_same_direction([system.run for system in systems])
    names = labels_of(run_dirs)
    test_sets = test_splits_of(systems[0], splits, data_dir=data_dir)
    if len(systems) == 2:
        check_tests_fit(test_sets)
    unseen = unseen_words(systems[0].run, test_sets, data_dir=data_dir)
    found = tuple(
        _findings_of(each, systems, names, unseen=unseen, num_examples=num_examples) for each in test_sets
    )
    runs = tuple(_facts(system.run, system, name) for system, name in zip(systems, names, strict=True))
    findings = Findings(runs, found)
    write_atomically(output, render_page(findings).encode())
    return findings


def _facts(run: Run, system: System, name: str) -> RunFacts:
    checkpoint = system.checkpoint
    weights = weights_sha256(run.checkpoint_folder(checkpoint), run.parameter_shapes)
    try:
        curves = curves_of(run)
    except DataError:  # an exported copy may have none
        curves = None
    return RunFacts(
        name=name,
        folder=str(run.folder),
        checkpoint=checkpoint,
        search=system.decoding,
        src_lang=run.config.data.src_lang,
        tgt_lang=run.config.data.tgt_lang,
        corpus=run.config.data.corpus,
        num_parameters=num_parameters(run.parameter_shapes),
        status=run.read_facts(STATUS),
        settings={path: value for path, (_, value) in differences(Config(), run.config).items()},
        config=dump_config(run.config),
        environment=run.read_facts(ENVIRONMENT),
        sha256={f"{checkpoint}/{MODEL}": weights, "prepared data": run.prepared.sha256, **run.sha256},
        curves=curves,
        kept=kept_scores(run, checkpoint=checkpoint),
    )


def _findings_of(
    test_set: EvalSet,
    systems: Sequence[System],
    names: Sequence[str],
    *,
    unseen: frozenset[str] | None,
    num_examples: int,
) -> TestSetFindings:
    lowercase = systems[0].run.config.data.lowercase
    refs = test_set.refs
    hyps = [translations_of(system.run.folder, system, test_set) for system in systems]
    comparison = None
    if len(systems) == 2:
        comparison = compare_translations(test_set, hyps, names, lowercase=lowercase, unseen=unseen)
    return TestSetFindings(
        name=test_set.name,
        scores=tuple(score(each, refs, lowercase=lowercase) for each in hyps),
        unk_rates=tuple(unk_rate(test_set.sources, system.run.tokenizers) for system in systems),
        symptoms=tuple(tuple(symptoms(each, refs)) for each in hyps),
        comparison=comparison,
        groups=_examples(test_set, hyps, systems, num_examples=num_examples, lowercase=lowercase),
    )


# Examples


def _examples(
    test_set: EvalSet,
    hyps: Sequence[Sequence[str]],
    systems: Sequence[System],
    *,
    num_examples: int,
    lowercase: bool,
) -> dict[str, tuple[Example, ...]]:
    """Sentences from both ends of the ranking by chrF2; two runs are ranked by what the second gains."""
    chrf = [sentence_chrf(each, test_set.refs, lowercase=lowercase) for each in hyps]
    is_pair = len(systems) == 2
    values = [last - first for first, last in zip(chrf[0], chrf[-1], strict=True)] if is_pair else chrf[0]
    ranking = sorted(range(len(values)), key=values.__getitem__)
    wanted = min(len(ranking), num_examples)
    ends = {
        "Gained least" if is_pair else "Worst": range((wanted + 1) // 2),
        "Gained most" if is_pair else "Best": range(len(ranking) - wanted // 2, len(ranking)),
    }
    for system in systems:
        _ = system.translator  # loaded with all threads: it may have to translate another test set
    maps_left = MOST_MAPS
    groups = {}
    label = f"examples of {test_set.name}"
    with one_thread(), ProgressDisplay(label, unit="lines", total=wanted) as progress:
        for title, ranks in ends.items():
            examples: list[Example] = []
            for rank in ranks:
                place = ranking[rank]
                source, ref = test_set.sources[place], test_set.refs[place]
                renderings = []
                for of_system, scores, system in zip(hyps, chrf, systems, strict=True):
                    has_map = maps_left > 0 and len(examples) < MOST_MAPS // 4
                    panel = _attention(source, of_system[place], system.translator) if has_map else None
                    maps_left -= panel is not None
                    renderings.append(_rendering(of_system[place], ref, scores[place], panel, lowercase))
                shown = _shortened(source), _shortened(ref)
                examples.append(Example(place + 1, rank + 1, *shown, tuple(renderings)))
                progress.update(1)
            groups[title] = tuple(examples)
    return {title: group for title, group in groups.items() if group}


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…"


def _rendering(hyp: str, ref: str, chrf: float, panel: Panel | None, lowercase: bool) -> Rendering:
    of_hyp, of_ref = word_differences(_shortened(hyp), _shortened(ref), lowercase=lowercase)
    missing = tuple(span.text.strip() for span in of_ref if not span.is_shared)
    return Rendering(_shortened(hyp), chrf, of_hyp, missing, panel)


def _attention(source: str, hyp: str, translator: Translator) -> Panel | None:
    """The map of the layer that aligns best, the last but one (Garg et al. 2019), if there is one."""
    try:
        attention = translator.attention(source, target=hyp)
    except UsageError:  # the line is empty, or was translated in parts
        return None
    num_layers = len(attention.weights["cross"])
    (panel,) = attention.maps("cross", layer=max(1, num_layers - 1)).panels
    return None if max(panel.values.shape) > MOST_TOKENS else panel


def word_differences(
    hyp: str, ref: str, *, lowercase: bool = False
) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
    """`hyp` and `ref`, cut where they begin and cease to agree; `lowercase` ignores capitals."""
    pieces = PIECE.findall(hyp), PIECE.findall(ref)
    hyp_words, ref_words = (
        [piece.lower() if lowercase else piece for piece in each if not piece.isspace()] for each in pieces
    )
    blocks = SequenceMatcher(None, hyp_words, ref_words, autojunk=False).get_matching_blocks()
    in_hyp = {place for block in blocks for place in range(block.a, block.a + block.size)}
    in_ref = {place for block in blocks for place in range(block.b, block.b + block.size)}
    return _spans(pieces[0], in_hyp), _spans(pieces[1], in_ref)


def _spans(pieces: Sequence[str], shared_words: Set[int]) -> tuple[Span, ...]:
    flagged = zip(pieces, _flags(pieces, shared_words), strict=True)
    return tuple(
        Span("".join(piece for piece, _ in group), is_shared)
        for is_shared, group in groupby(flagged, key=lambda each: each[1])
    )


def _flags(pieces: Sequence[str], shared_words: Set[int]) -> Iterator[bool]:
    """Whether each piece is shared; white space is, unless it stands between two words that are not."""
    num_words = 0
    for piece in pieces:
        if piece.isspace():
            yield num_words - 1 in shared_words or num_words in shared_words or num_words == 0
        else:
            yield num_words in shared_words
            num_words += 1


# The page


def render_page(findings: Findings) -> str:
    """The page, which needs nothing else: no network, no other file, no script."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    # Characters that cannot be seen, or could reorder the text around them, are spelled out.
    environment.finalize = lambda value: visible(value, kept="\n") if type(value) is str else value
    environment.filters |= {"in_words": in_words, "picture": _picture}
    template = environment.from_string(files(__package__).joinpath("report.html").read_text(encoding="utf-8"))
    drawn = [(run.curves, run.name) for run in findings.runs if run.curves is not None]
    curves = None
    if drawn:
        labels = [name for _, name in drawn]
        curves = _image(
            render(lambda: compose([each for each, _ in drawn], labels=labels), image_format="svg")
        )
    return template.render(findings=findings, curves=curves, version=__version__)


def _picture(panel: Panel) -> str:
    """The address of the picture of `panel`."""
    return _image(render_panels([panel], title="cross-attention, last layer but one", image_format="svg"))


def _image(svg: bytes) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"
