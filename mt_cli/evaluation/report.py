"""`report`: one run, or two side by side, as one page that can be sent to anybody.

The page's looks are in report.html, a template.
"""

import base64
import logging
import re
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined, TemplateError

from mt_cli import __version__
from mt_cli.config.load import differences, dump_config
from mt_cli.config.schema import Config
from mt_cli.errors import DataError, UsageError
from mt_cli.evaluation.compare import (
    Entry,
    caveat_of,
    check_same_direction,
    compare_translations,
    unseen_words,
)
from mt_cli.evaluation.evaluate import System
from mt_cli.evaluation.kept import kept_scores
from mt_cli.evaluation.scoring import score, sentence_chrf
from mt_cli.evaluation.symptoms import symptoms
from mt_cli.evaluation.test_sets import EvalChoice, EvalSet
from mt_cli.machine.atomic import write_atomically
from mt_cli.machine.terminal import format_duration, visible
from mt_cli.model.build import num_parameters
from mt_cli.pictures.curves import compose, curves_of, labels_of
from mt_cli.pictures.figures import compose_panels, render
from mt_cli.runs.checkpoint import MODEL, weights_sha256
from mt_cli.runs.metrics import read_metrics
from mt_cli.runs.opening import open_run
from mt_cli.runs.run import ENVIRONMENT, STATUS, Run
from mt_cli.translation.attention import AttentionMaps
from mt_cli.translation.lines import unk_rate
from mt_cli.translation.options import DecodingOptions

log = logging.getLogger(__name__)
ENDINGS = (".html", ".htm")
MAX_TEXT = 1500
"""Characters of a line that are shown."""
MAX_MAP_TOKENS = 60
"""Tokens of a side of an attention map, beyond which nobody can read it."""
EXAMPLES_WITH_MAPS = 2
"""At each end of a ranking: a map takes a third of a second to draw."""
PIECE = re.compile(r"\s*(?:\w+|[^\w\s])")
"""A word or a mark, with the white space before it."""

Facts = dict[str, Any]
"""What the template shows, by the names that it uses; `report --json` prints most of it."""


def write_report(
    run_dirs: Sequence[Path],
    options: DecodingOptions,
    choice: EvalChoice,
    *,
    output: Path,
    num_examples: int = 30,
) -> Facts:
    """Write a page about one run, or two side by side, to `output`; returns what it shows.

    Runs translate, unless the translations of this very checkpoint and search are kept in their
    folder. The chosen splits are of the first run's data.

    Raises:
        UsageError: `output` is no .html file, there are not one or two runs, or no such split or
            checkpoint.
        DataError: a file is damaged, or the data are gone and nothing is kept of them.
    """
    if output.suffix.lower() not in ENDINGS or output.is_dir():
        raise UsageError(
            f"{output}: a report is a page; name a file that ends in {' or '.join(ENDINGS)}"
        )
    if not 1 <= len(run_dirs) <= 2:
        raise UsageError(f"a report shows one run, or two side by side; found {len(run_dirs)}")
    if len({run_dir.resolve() for run_dir in run_dirs}) < len(run_dirs):
        raise UsageError(f"{run_dirs[1]}: named twice; name two runs, or one")
    runs = [open_run(run_dir) for run_dir in run_dirs]
    check_same_direction(runs)
    systems = [System([run_dir], options) for run_dir in run_dirs]
    names = labels_of(run_dirs)
    try:
        test_sets = systems[0].test_sets(choice, may_be_kept=True)
    except DataError as error:
        has_scores = kept_scores(runs[0], checkpoint=systems[0].checkpoint)
        if choice != EvalChoice() or len(systems) > 1 or not has_scores:
            raise
        log.warning("%s; the page has the scores that the run keeps, and no sentences", error)
        test_sets = []
    unseen = unseen_words(runs[0], test_sets, data_dir=choice.data) if test_sets else None
    pages: dict[str, Facts] = {}
    for test_set in test_sets:
        pages[test_set.name] = _test_set_facts(test_set, systems, names, unseen, num_examples)
    about = []
    for run, system, name in zip(runs, systems, names, strict=True):
        about.append(_run_facts(run, system, name))
    try:
        page = render_page(about, pages)
    except (TemplateError, TypeError, ValueError) as error:  # of a file with other types
        raise DataError(f"{run_dirs[0]}: a file of scores or status is damaged: {error}") from error
    write_atomically(output, page.encode())
    for facts in pages.values():
        del facts["maps"]
    return {"mt_cli": __version__, "runs": about, "test_sets": pages}


def _run_facts(run: Run, system: System, name: str) -> Facts:
    """What a run is, how it was made and with what."""
    checkpoint = system.checkpoint
    weights = weights_sha256(run.checkpoint_folder(checkpoint))
    curves = curves_of(run) if read_metrics(run.metrics_path) else None  # a copy may have none
    settings = {key: own for key, (_, own) in differences(Config(), run.config).items()}
    data = run.config.data
    return {
        "name": name,
        "folder": str(run.folder),
        "checkpoint": checkpoint,
        "search": system.decoding,
        "src_lang": data.src_lang,
        "tgt_lang": data.tgt_lang,
        "corpus": data.corpus,
        "lowercase": data.lowercase,
        "num_parameters": num_parameters(run.parameter_shapes),
        "status": run.read_facts(STATUS),
        "settings": settings,
        "config": dump_config(run.config),
        "environment": run.read_facts(ENVIRONMENT),
        "sha256": {
            f"{checkpoint}/{MODEL}": weights,
            "prepared data": run.prepared.sha256,
            **run.sha256,
        },
        "curves": curves,
        "kept": kept_scores(run, checkpoint=checkpoint),
    }


def _test_set_facts(
    test_set: EvalSet,
    systems: Sequence[System],
    names: Sequence[str],
    unseen: frozenset[str] | None,
    num_examples: int,
) -> Facts:
    """Scores, the comparison of two runs, and examples; lists are in the order of the runs."""
    data = systems[0].run.config.data
    hyps = [system.hyps_of(test_set) for system in systems]
    comparison = None
    if len(systems) == 2:
        comparison = compare_translations(
            test_set,
            Entry(names[0], hyps[0]),
            [Entry(names[1], hyps[1], caveat_of(*systems))],
            lang=data.tgt_lang,
            lowercase=data.lowercase,
            unseen=unseen,
        )
    scores = []
    for of_system in hyps:
        found = score(of_system, test_set.refs, lang=data.tgt_lang, lowercase=data.lowercase)
        scores.append(found.as_json())
    return {
        "scores": scores,
        "unk_rates": [unk_rate(test_set.sources, system.run.tokenizers) for system in systems],
        "symptoms": [symptoms(of_system, test_set.refs) for of_system in hyps],
        "comparison": comparison,
        **_examples(test_set, hyps, systems, num_examples=num_examples),
    }


def _examples(
    test_set: EvalSet,
    hyps: Sequence[Sequence[str]],
    systems: Sequence[System],
    *,
    num_examples: int,
) -> Facts:
    """Sentences from both ends of the ranking by chrF2; the first have attention maps, by line.

    Two runs are ranked by what the second gains.
    """
    lowercase = systems[0].run.config.data.lowercase
    chrf = [sentence_chrf(each, test_set.refs, lowercase=lowercase) for each in hyps]
    values = chrf[0]
    lowest, highest = "Worst", "Best"
    if len(systems) == 2:
        values = [after - before for before, after in zip(*chrf, strict=True)]
        lowest, highest = "Gained least", "Gained most"
    ranking = sorted(range(len(values)), key=values.__getitem__)
    wanted = min(len(ranking), num_examples)
    groups = {
        lowest: range((wanted + 1) // 2),
        highest: range(len(ranking) - wanted // 2, len(ranking)),
    }
    examples: list[Facts] = []
    maps: dict[int, list[AttentionMaps | None]] = {}
    for group, ranks in groups.items():
        for number, rank in enumerate(ranks):
            place = ranking[rank]
            source = test_set.sources[place]
            translations = []
            for of_system, scores in zip(hyps, chrf, strict=True):
                text = of_system[place][:MAX_TEXT]
                translations.append({"text": text, "chrf": scores[place]})
            examples.append(
                {
                    "group": group,
                    "line": place + 1,
                    "rank": rank + 1,
                    "source": source[:MAX_TEXT],
                    "reference": test_set.refs[place][:MAX_TEXT],
                    "translations": translations,
                }
            )
            if number < EXAMPLES_WITH_MAPS:
                pairs = zip(hyps, systems, strict=True)
                maps[place + 1] = [_attention(source, of[place], system) for of, system in pairs]
    return {"examples": examples, "maps": maps}


def _attention(source: str, hyp: str, system: System) -> AttentionMaps | None:
    """The map of the layer that aligns best, the last but one (Garg et al. 2019), if possible."""
    try:
        attention = system.translator.attention(source, target=hyp)
    except UsageError:  # the line is empty, or was translated in parts
        return None
    num_layers = len(attention.weights["cross"])
    maps = attention.maps("cross", layer=max(1, num_layers - 1))
    return None if max(maps.panels[0].values.shape) > MAX_MAP_TOKENS else maps


def _differences(hyp: str, ref: str, lowercase: bool) -> Facts:
    """`spans` of `hyp`, each with whether `ref` has it too, and what of `ref` is `missing`."""
    hyp_pieces = PIECE.findall(hyp)
    ref_pieces = PIECE.findall(ref)

    def words(pieces: list[str]) -> list[str]:
        return [piece.strip().lower() if lowercase else piece.strip() for piece in pieces]

    matcher = SequenceMatcher(None, words(hyp_pieces), words(ref_pieces), autojunk=False)
    spans = []
    missing = []
    for tag, a, b, c, d in matcher.get_opcodes():
        if a < b:
            text = "".join(hyp_pieces[a:b])
            spans.append((text[: -len(text.lstrip())], True))
            spans.append((text.lstrip(), tag == "equal"))
        if c < d and tag != "equal":
            missing.append("".join(ref_pieces[c:d]).strip())
    return {"spans": spans, "missing": missing}


def render_page(runs: Sequence[Facts], test_sets: Mapping[str, Facts]) -> str:
    """The page, which needs nothing else: no network, no other file, no script."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    # Characters that cannot be seen, or could reorder the text around them, are spelled out.
    environment.finalize = lambda value: visible(value, kept="\n") if type(value) is str else value
    environment.filters |= {
        "format_duration": format_duration,
        "picture": _picture,
        "differences": _differences,
    }
    text = files(__package__).joinpath("report.html").read_text(encoding="utf-8")
    drawn = {run["name"]: run["curves"] for run in runs if run["curves"] is not None}
    curves = None
    if drawn:
        svg = render(lambda: compose(list(drawn.values()), labels=list(drawn)), ".svg")
        curves = _image(svg)
    template = environment.from_string(text)
    return template.render(runs=runs, test_sets=test_sets, curves=curves, version=__version__)


def _picture(maps: AttentionMaps) -> str:
    return _image(render(lambda: compose_panels(maps.panels, title=maps.title), ".svg"))


def _image(svg: bytes) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"
