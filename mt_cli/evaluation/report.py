"""`report`: what is known of a run, or of two side by side, as one page that can be sent to
anybody.

The page's looks stand in report.html, a template. `plot` draws the curves of trainings alone.
"""

import base64
import logging
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, StrictUndefined, TemplateError

from mt_cli import __version__
from mt_cli.config.load import differences, dump_config
from mt_cli.config.schema import Config
from mt_cli.errors import DataError, UsageError
from mt_cli.evaluation.card import kept_scores
from mt_cli.evaluation.compare import (
    caveat_of,
    check_same_direction,
    compare_translations,
    unseen_words,
)
from mt_cli.evaluation.evaluate import EvalChoice, EvalSet, System
from mt_cli.evaluation.scoring import score, sentence_chrf, symptoms
from mt_cli.machine.files import write_atomically
from mt_cli.machine.terminal import in_words, visible
from mt_cli.runs.checkpoint import MODEL, weights_sha256
from mt_cli.runs.run import ENVIRONMENT, STATUS, Run, num_parameters, number_in, open_run
from mt_cli.translation.attention import (
    PICTURES,
    AttentionMaps,
    check_ending,
    compose_panels,
    render,
)
from mt_cli.translation.lines import unk_rate
from mt_cli.translation.translator import DecodingOptions

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

log = logging.getLogger(__name__)
ENDINGS = (".html", ".htm")
LONGEST_TEXT = 1500
"""Characters of a line that are shown."""
MOST_TOKENS = 60
"""Of a side of an attention map, beyond which nobody can read it."""
EXAMPLES_WITH_MAPS = 2
"""At each end of a ranking: a map takes a third of a second to draw."""
PIECE = re.compile(r"\s*(?:\w+|[^\w\s])")
"""A word or a mark, with the white space before it."""


Facts = dict[str, Any]
"""What the template shows, by the names that it uses; most of it is what `report --json` prints."""


def write_report(
    run_dirs: Sequence[Path],
    options: DecodingOptions,
    choice: EvalChoice,
    *,
    output: Path,
    num_examples: int = 30,
) -> Facts:
    """Write a page about one run, or two side by side, to `output`; gives what it shows, for JSON.

    Runs translate, unless the translations of this very checkpoint and search are kept in their
    folder. The chosen splits are of the first run's data.

    Raises:
        UsageError: `output` is no .html file, there are not one or two runs, or no such split or
            checkpoint. DataError: a file is damaged, or the data are gone and nothing is kept of
            them. ResourceError: the page cannot be written.
    """
    if output.suffix.lower() not in ENDINGS or output.is_dir():
        raise UsageError(
            f"{output}: a report is a page; name a file that ends in {' or '.join(ENDINGS)}"
        )
    if not 1 <= len(run_dirs) <= 2:
        raise UsageError(f"a report shows one run, or two side by side; found {len(run_dirs)}")
    if len({run_dir.resolve() for run_dir in run_dirs}) < len(run_dirs):
        raise UsageError(f"{run_dirs[1]}: named twice; name two runs, or one")
    for run_dir in run_dirs:
        open_run(run_dir)  # an exported model, which says nothing of its training, is refused here
    systems = [System([run_dir], options) for run_dir in run_dirs]
    check_same_direction([system.run for system in systems])
    names = labels_of(run_dirs)
    try:
        test_sets = choice.test_sets(systems[0], may_be_kept=True)
    except DataError as error:
        has_scores = kept_scores(systems[0].run, checkpoint=systems[0].checkpoint)
        if choice != EvalChoice() or len(systems) > 1 or not has_scores:
            raise
        log.warning("%s; the page has the scores that the run keeps, and no sentences", error)
        test_sets = []
    unseen = unseen_words(systems[0].run, test_sets, data_dir=choice.data) if test_sets else None
    data = systems[0].run.config.data
    lang, lowercase = data.tgt_lang, data.lowercase
    found: dict[str, Facts] = {}
    for test_set in test_sets:  # what is of each run is in their order
        hyps = [system.hyps_of(test_set) for system in systems]
        comparison = None
        if len(systems) == 2:
            comparison = compare_translations(
                test_set,
                hyps,
                names,
                lang=lang,
                lowercase=lowercase,
                unseen=unseen,
                caveats=[caveat_of(*systems)],
            )
        found[test_set.name] = {
            "scores": [
                score(each, test_set.refs, lang=lang, lowercase=lowercase).as_json()
                for each in hyps
            ],
            "unk_rates": [unk_rate(test_set.sources, system.run.tokenizers) for system in systems],
            "symptoms": [symptoms(each, test_set.refs) for each in hyps],
            "comparison": comparison,
            **_examples(test_set, hyps, systems, num_examples=num_examples, lowercase=lowercase),
        }
    runs = [_facts(system, name) for system, name in zip(systems, names, strict=True)]
    try:
        page = render_page(runs, found)
    except (TemplateError, TypeError, ValueError) as error:  # of a file with other types
        raise DataError(f"{run_dirs[0]}: a file of scores or status is damaged: {error}") from error
    write_atomically(output, page.encode())
    return {
        "mt_cli": __version__,
        "runs": runs,
        "test_sets": {
            name: {key: value for key, value in facts.items() if key != "maps"}
            for name, facts in found.items()
        },
    }


def _facts(system: System, name: str) -> Facts:
    """What a run is, how it was made and with what."""
    run, checkpoint = system.run, system.checkpoint
    weights = weights_sha256(run.checkpoint_folder(checkpoint))
    try:
        curves = curves_of(run)
    except DataError:  # an exported copy may have none
        curves = None
    return {
        "name": name,
        "folder": str(run.folder),
        "checkpoint": checkpoint,
        "search": system.decoding,
        "src_lang": run.config.data.src_lang,
        "tgt_lang": run.config.data.tgt_lang,
        "corpus": run.config.data.corpus,
        "lowercase": run.config.data.lowercase,
        "num_parameters": num_parameters(run.parameter_shapes),
        "status": run.read_facts(STATUS),
        "settings": {path: value for path, (_, value) in differences(Config(), run.config).items()},
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


def _examples(
    test_set: EvalSet,
    hyps: Sequence[Sequence[str]],
    systems: Sequence[System],
    *,
    num_examples: int,
    lowercase: bool,
) -> Facts:
    """Sentences from both ends of the ranking by chrF2, and attention maps of the first, by their
    line.

    Two runs are ranked by what the second gains.
    """
    chrf = [sentence_chrf(each, test_set.refs, lowercase=lowercase) for each in hyps]
    is_pair = len(systems) == 2
    values = (
        [last - first for first, last in zip(chrf[0], chrf[-1], strict=True)]
        if is_pair
        else chrf[0]
    )
    ranking = sorted(range(len(values)), key=values.__getitem__)
    wanted = min(len(ranking), num_examples)
    ends = {
        "Gained least" if is_pair else "Worst": range((wanted + 1) // 2),
        "Gained most" if is_pair else "Best": range(len(ranking) - wanted // 2, len(ranking)),
    }
    examples: list[Facts] = []
    maps = {}
    for title, ranks in ends.items():
        for number, rank in enumerate(ranks):
            place = ranking[rank]
            source, texts = test_set.sources[place], [of_system[place] for of_system in hyps]
            if number < EXAMPLES_WITH_MAPS:
                maps[place + 1] = [
                    _attention(source, *each) for each in zip(texts, systems, strict=True)
                ]
            example = {
                "group": title,
                "line": place + 1,
                "rank": rank + 1,
                "source": _shortened(source),
            }
            example["reference"] = _shortened(test_set.refs[place])
            example["translations"] = [
                {"text": _shortened(text), "chrf": scores[place]}
                for text, scores in zip(texts, chrf, strict=True)
            ]
            examples.append(example)
    return {"examples": examples, "maps": maps}


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…"


def _attention(source: str, hyp: str, system: System) -> AttentionMaps | None:
    """The map of the layer that aligns best, the last but one (Garg et al. 2019), if there is one."""
    try:
        attention = system.translator.attention(source, target=hyp)
    except UsageError:  # the line is empty, or was translated in parts
        return None
    num_layers = len(attention.weights["cross"])
    maps = attention.maps("cross", layer=max(1, num_layers - 1))
    return None if max(maps.panels[0].values.shape) > MOST_TOKENS else maps


def _differences(hyp: str, ref: str, lowercase: bool) -> Facts:
    """`spans` of `hyp`, each with whether `ref` has it too, and what is `missing` of `ref` in
    `hyp`.
    """
    of_hyp, of_ref = map(PIECE.findall, (hyp, ref))
    words = [
        [each.strip().lower() if lowercase else each.strip() for each in side]
        for side in (of_hyp, of_ref)
    ]
    found: Facts = {"spans": [], "missing": []}
    for tag, a, b, c, d in SequenceMatcher(None, words[0], words[1], autojunk=False).get_opcodes():
        if a < b:
            text = "".join(of_hyp[a:b])
            found["spans"] += [(text[: -len(text.lstrip())], True), (text.lstrip(), tag == "equal")]
        if c < d and tag != "equal":
            found["missing"].append("".join(of_ref[c:d]).strip())
    return found


def render_page(runs: Sequence[Facts], test_sets: Mapping[str, Facts]) -> str:
    """The page, which needs nothing else: no network, no other file, no script."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    # Characters that cannot be seen, or could reorder the text around them, are spelled out.
    environment.finalize = lambda value: visible(value, kept="\n") if type(value) is str else value
    environment.filters |= {"in_words": in_words, "picture": _picture, "differences": _differences}
    template = environment.from_string(
        files(__package__).joinpath("report.html").read_text(encoding="utf-8")
    )
    drawn = {run["name"]: run["curves"] for run in runs if run["curves"] is not None}
    curves = None
    if drawn:
        svg = render(lambda: compose([*drawn.values()], labels=[*drawn]), ".svg")
        curves = _image(svg)
    return template.render(runs=runs, test_sets=test_sets, curves=curves, version=__version__)


def _picture(maps: AttentionMaps) -> str:
    """The address of the picture of `maps`."""
    return _image(render(lambda: compose_panels(maps.panels, title=maps.title), ".svg"))


def _image(svg: bytes) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"


# `plot`: the curves of trainings, read from their metrics.jsonl and drawn

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
"""Of Okabe and Ito (2008): people who see few colours tell them apart, and so does a grey print."""
MARKERS = "osD^vPX"
"""One for each run, for prints without colours."""
WIDTH, HEIGHT = 7.0, 8.5
"""In inches: a page with margins."""
MOST_MARKERS = 40
"""Validations beyond which only some are marked."""
Curve = list[tuple[float, float]]
"""Steps, ascending, and values."""


@dataclass(frozen=True)
class Curves:
    """What a run measured of itself."""

    name: str
    bleu_signatures: tuple[str, ...]
    """Of the points of `bleu`: one, unless sacreBLEU changed between two sessions."""
    train_loss: Curve
    """What is minimised, per target token: the smoothed loss."""
    train_nll: Curve
    """Negative log-likelihood per target token, in nats, with dropout: what `val_nll` compares
    with.
    """
    lr: Curve
    val_nll: Curve
    """The same of the validation split, without dropout."""
    bleu: Curve


def curves_of(run: Run) -> Curves:
    """The curves of `run`, named like its folder.

    Raises:
        DataError: its metrics are missing or damaged, or there are none yet.
    """
    path = run.metrics_path
    records = list(run.metrics())
    steps = [record for record in records if record["kind"] == "step"]
    validations = [record for record in records if record["kind"] == "validation"]
    if not steps and not validations:
        raise DataError(f"{path}: no measurement yet; train on, or name a folder that train wrote")

    def curve(of: Sequence[dict[str, object]], key: str) -> Curve:
        return [
            (number_in(each, "step", path=path), number_in(each, key, path=path)) for each in of
        ]

    return Curves(
        name=run.folder.resolve().name,
        bleu_signatures=tuple(
            dict.fromkeys(str(each.get("bleu_signature")) for each in validations)
        ),
        train_loss=curve(steps, "loss"),
        train_nll=curve(steps, "nll"),
        lr=curve(steps, "lr"),
        val_nll=curve(validations, "nll"),
        bleu=curve(validations, "bleu"),
    )


def plot_runs(run_dirs: Sequence[Path], *, output: Path) -> list[Curves]:
    """Draw the curves of all runs into `output`, whose ending is one of `PICTURES`; gives what was
    drawn.

    Raises:
        UsageError: the ending is another, or a folder is no run.
        DataError: a run's metrics are missing or damaged, or there are none yet.
    """
    check_ending(output, PICTURES)
    runs = [curves_of(open_run(run_dir)) for run_dir in run_dirs]
    labels = labels_of(run_dirs)
    write_atomically(output, render(lambda: compose(runs, labels=labels), output.suffix))
    return runs


def labels_of(run_dirs: Sequence[Path]) -> list[str]:
    """A name for each of the folders: its own where no other has that, else its path."""
    names = [run_dir.resolve().name for run_dir in run_dirs]
    return [
        name if names.count(name) == 1 else os.path.normpath(run_dir)
        for name, run_dir in zip(names, run_dirs, strict=True)
    ]


def compose(runs: Sequence[Curves], *, labels: Sequence[str]) -> "Figure":
    """A figure with loss, BLEU and learning rate against the step, one colour for each run."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
    loss, bleu, rate = figure.subplots(3, 1, sharex=True, height_ratios=(4, 3, 2))
    for number, (curves, label) in enumerate(zip(runs, labels, strict=True)):
        colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
        _draw(loss, curves.train_nll, colour, label=f"{label}, train", style=":")
        _draw(loss, curves.val_nll, colour, label=f"{label}, val", marker=marker)
        _draw(bleu, curves.bleu, colour, label=label, marker=marker)
        _draw(rate, curves.lr, colour, label=label)
    # A score never travels without its signature.
    signatures = dict.fromkeys(signature for curves in runs for signature in curves.bleu_signatures)
    scored = "\n".join(f"val BLEU {signature}" for signature in signatures) or "no validation yet"
    loss.set_ylabel("nats per target token")
    loss.set_title("negative log-likelihood (train: with dropout)", fontsize=10)
    bleu.set_ylabel("BLEU")
    bleu.set_title(scored, fontsize=10, parse_math=False)
    rate.set_ylabel("learning rate")
    rate.set_xlabel("step")
    for axes in (loss, bleu, rate):
        axes.grid(color="0.9")
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    rate.set_ylim(bottom=0)
    rate.ticklabel_format(axis="y", style="sci", scilimits=(0, 0))
    bleu.set_ylim(bottom=0)
    legend = figure.legend(
        handles=loss.get_lines(), loc="outside lower center", ncols=2, fontsize=9
    )
    for text in legend.get_texts():
        text.set_parse_math(False)  # a folder's name may hold dollar signs
    return figure


def _draw(
    axes: "Axes", curve: Curve, colour: str, *, label: str, style: str = "-", marker: str = ""
) -> None:
    axes.plot(
        [step for step, _ in curve],
        [value for _, value in curve],
        color=colour,
        linestyle=style,
        linewidth=1.4,
        marker=marker,
        markersize=4,
        markevery=max(1, len(curve) // MOST_MARKERS),
        label=label,
    )
