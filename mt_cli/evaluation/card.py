"""The model card of a run, README.md in its folder (Mitchell et al. 2019): what it is, how good,
how made.

Its text stands in card.md, a template.
"""

import json
import logging
from collections.abc import Mapping
from importlib.resources import files
from itertools import groupby

from jinja2 import Environment, TemplateError

from mt_cli.errors import MtCliError
from mt_cli.machine.files import read_file, read_json, write_atomically
from mt_cli.runs.checkpoint import checkpoint_name, weights_sha256
from mt_cli.runs.run import ENVIRONMENT, SCORES, STATUS, Run, num_parameters

log = logging.getLogger(__name__)

MARK = "mt-cli writes this when the run is trained or evaluated; without this line it stays."
METRICS = ("bleu", "chrf", "ter")
WEIGHTS = "weights"
"""Key of scores, and of the validation of a checkpoint that was rounded since: sha256 of the
weights.
"""
SPLIT = "split"
"""Key of scores of the run's own data: the split. Scores of other texts stay out of the card."""
OF_SEVERAL = {"with", "reranked_by"}
"""Keys of the scores of a system: an ensemble, or a model whose translations another one chose."""


def write_card(run: Run) -> None:
    """Describe `run` in its README.md, unless somebody has put one of their own there.

    An exported model has the README.md that `export` wrote.
    A failure is a warning: a card is never what a command is for.
    """
    if run.exported_from is not None:
        return
    path = run.folder / "README.md"
    try:
        if not path.exists() or read_file(path).startswith(f"---\n# {MARK}\n".encode()):
            write_atomically(path, card(run).encode(errors="backslashreplace"))
    except (
        MtCliError,
        TemplateError,
        TypeError,
        ValueError,
    ) as error:  # of a file with other types
        log.warning("%s: left as it is: %s", path, error)


def card(run: Run) -> str:
    """The text, in Markdown: what is known of the best checkpoint, for readers.

    Raises:
        MtCliError: what describes the run is missing or damaged.
    """
    checkpoint = run.resolve_checkpoint("best") if run.pointer("best") else None
    kept = kept_scores(run, checkpoint=checkpoint)
    name = " ".join(run.folder.resolve().name.split())
    return render_markdown(
        "card.md",
        mark=MARK,
        facts=_front_matter(name, run, kept),
        name=name,
        run=run,
        checkpoint=checkpoint,
        num_parameters=num_parameters(run.parameter_shapes),
        validation=validation_of(run, checkpoint),
        kept=kept,
        status=run.read_facts(STATUS),
        environment=run.read_facts(ENVIRONMENT),
    )


def render_markdown(template: str, **values: object) -> str:
    """The Markdown that the file `template` beside this one makes of `values`."""
    environment = Environment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    environment.filters |= {
        "json": json.dumps,
        "code": lambda text: f"`{text}`".replace("|", r"\|"),
    }
    text = files(__package__).joinpath(template).read_text(encoding="utf-8")
    return environment.from_string(text).render(values)


def validation_of(run: Run, checkpoint: str | None) -> dict[str, object]:
    """The record of the validation at which `checkpoint` was saved; empty where there is none.

    That of other weights, which were rounded for a copy of the run, does not count.
    """
    validations = (record for record in run.metrics() if record["kind"] == "validation")
    at_step = {checkpoint_name(int(str(record["step"]))): record for record in validations}
    found = at_step.get(checkpoint or "", {})
    if WEIGHTS in found and found[WEIGHTS] != weights_sha256(
        run.checkpoint_folder(checkpoint or "")
    ):
        return {}
    return found


def kept_scores(run: Run, *, checkpoint: str | None) -> list[dict[str, object]]:
    """Every score of a split's translations that `checkpoint` alone has made; a system's are not
    its own.

    Nor are those that other weights of this name have made.

    Keys: `evaluation`, its folder's name; `split`; `metric`, such as `bleu`; sacreBLEU's `name`,
    `score` and `signature`; and `n`, the sentences.

    Raises:
        DataError: a file is damaged.
    """
    found: list[dict[str, object]] = []
    if checkpoint is None:
        return found
    made_by = {"checkpoint": checkpoint, WEIGHTS: weights_sha256(run.checkpoint_folder(checkpoint))}
    for folder in run.kept_evaluations():
        record = read_json(folder / SCORES)
        is_own = SPLIT in record and not record.keys() & OF_SEVERAL
        is_by_it = all(record.get(key) == value for key, value in made_by.items())
        if not (is_own and is_by_it):
            continue
        for metric in METRICS:
            match record.get(metric):
                case {
                    "name": str(name),
                    "score": int(score) | float(score),
                    "signature": str(signature),
                }:
                    of_metric = {
                        "metric": metric,
                        "name": name,
                        "score": score,
                        "signature": signature,
                    }
                    of_text = {
                        "evaluation": folder.name,
                        SPLIT: record[SPLIT],
                        "n": record.get("n"),
                    }
                    found.append({**of_text, **of_metric})
    return found


def _front_matter(name: str, run: Run, kept: list[dict[str, object]]) -> Mapping[str, object]:
    """The YAML block that opens the card, which the Hugging Face Hub reads. JSON is YAML."""
    data = run.config.data
    facts: dict[str, object] = {"language": list(dict.fromkeys((data.src_lang, data.tgt_lang)))}
    # Of other corpora, nobody but their owners can say; and so of other weights that this run
    # started with.
    if data.corpus == "sample" and not data.more and run.init_from is None:
        facts["license"] = "mit"
    facts |= {
        "library_name": "mt-cli",
        "pipeline_tag": "translation",
        "tags": ["translation", "transformer"],
    }
    results = [
        {
            "task": {"type": "translation", "name": "Translation"},
            "dataset": {"type": data.corpus, "name": f"{data.corpus}, {evaluation}"},
            "metrics": [
                {
                    "type": each["metric"],
                    "value": each["score"],
                    "name": each["name"],
                    "args": {"signature": each["signature"], "sentences": each["n"]},
                }
                for each in scores
            ],
        }
        for evaluation, scores in groupby(kept, key=lambda each: each["evaluation"])
    ]
    if results:
        facts["model-index"] = [{"name": name, "results": results}]
    return facts
