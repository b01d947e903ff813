"""The model card of a run, README.md in its folder (Mitchell et al. 2019): what it is, how good, how made."""

import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from mt_cli.errors import MtCliError
from mt_cli.machine.files import read_file, read_json, write_atomically
from mt_cli.model.shapes import num_parameters
from mt_cli.runs.checkpoint import checkpoint_name
from mt_cli.runs.run import ENVIRONMENT, SCORES, STATUS, Run

log = logging.getLogger(__name__)

MARK = "mt-cli writes this when the run is trained or evaluated; without this line it stays."
BEGIN = f"---\n# {MARK}\n"
METRICS = ("bleu", "chrf", "ter")
SEARCH = re.compile(r"greedy|beam\d+-alpha")
"""How the name of a search begins."""
OF_SEVERAL = {"with", "reranked_by"}
"""Keys of the scores of a system: an ensemble, or a model whose translations another one chose."""
CARD = """\
{front_matter}

# {name}

A Transformer that translates {src_lang} to {tgt_lang}, made by mt-cli. In this folder:

```console
$ mt-cli translate . -i FILE
```

## The model

{model}

## Its scores

{scores}

## Its training

{training}

## Its limits

It has learnt from the pairs named above and nothing else. It translates other subjects and styles badly, and
sounds just as sure of itself. It can leave out what the source says, and say what the source does not. The
terms of the corpus also limit what you may do with the model.
"""


def write_card(run: Run, *, tells_failure: bool = True) -> None:
    """Describe `run` in its README.md, unless somebody has put one of their own there.

    An exported model has the README.md that `export` wrote.
    A failure is a warning, or silent with `tells_failure` off: a card is never what a command is for.
    """
    if run.exported_from is not None:
        return
    path = run.folder / "README.md"
    try:
        if not path.exists() or read_file(path, most=1 << 24).startswith(BEGIN.encode()):
            write_atomically(path, card(run).encode(errors="backslashreplace"))
    except MtCliError as error:
        if tells_failure:
            log.warning("%s: left as it is: %s", path, error)


def card(run: Run) -> str:
    """The text, in Markdown: what is known of the best checkpoint, for readers.

    Raises:
        MtCliError: what describes the run is missing or damaged.
    """
    checkpoint = run.resolve_checkpoint("best") if run.pointer("best") else None
    kept = kept_scores(run, checkpoint=checkpoint)
    name = " ".join(run.folder.resolve().name.split())
    validation = validation_of(run, checkpoint)
    scores: list[tuple[object, ...]] = [
        (each.evaluation, f"{each.name} {each.score:.2f}", each.n, _in_cell(each.signature)) for each in kept
    ]
    match validation:
        case {"step": int(step), "bleu": float(bleu), "bleu_signature": str(signature)}:
            scores.insert(0, (f"val, step {step}", f"BLEU {bleu:.2f}", "", _in_cell(signature)))
    return CARD.format(
        front_matter=_front_matter(name, run, kept),
        name=name,
        src_lang=run.config.data.src_lang,
        tgt_lang=run.config.data.tgt_lang,
        model=_table(("", ""), ("checkpoint", checkpoint or "none yet"), *_model_rows(run)),
        scores=_table(("scored", "score", "sentences", "signature"), *scores),
        training=_table(("", ""), *_training_rows(run)),
    )


def validation_of(run: Run, checkpoint: str | None) -> dict[str, object]:
    """The record of the validation at which `checkpoint` was saved; empty where there is none."""
    found: dict[str, object] = {}
    for record in run.metrics():
        step = record["step"]
        if record["kind"] == "validation" and isinstance(step, int) and checkpoint == checkpoint_name(step):
            found = record
    return found


# Scores that the run folder keeps


@dataclass(frozen=True)
class KeptScore:
    """One metric's verdict on one evaluation."""

    evaluation: str
    """Name of its folder, such as `test-greedy`."""
    test_set: str
    """The split; of files of somebody's own, the whole name of the folder."""
    decoding: str
    """How translations were searched for, such as `greedy`; empty for files of somebody's own."""
    metric: str
    """Key of the metric: `bleu`, `chrf` or `ter`."""
    name: str
    """What sacreBLEU calls it."""
    score: float
    signature: str
    n: int
    """Sentences."""


def kept_scores(run: Run, *, checkpoint: str | None) -> tuple[KeptScore, ...]:
    """Every score of the translations that `checkpoint` alone has made; a system's are not its own.

    Raises:
        DataError: a file is damaged.
    """
    return tuple(score for folder in run.kept_evaluations() for score in _scores_in(
        read_json(folder / SCORES), folder.name, splits=run.config.data.splits, checkpoint=checkpoint
    ))  # fmt: skip


def _scores_in(
    record: Mapping[str, object], evaluation: str, *, splits: Sequence[str], checkpoint: str | None
) -> Iterator[KeptScore]:
    if checkpoint is None or record.get("checkpoint") != checkpoint or record.keys() & OF_SEVERAL:
        return
    test_set, decoding = test_set_and_decoding(evaluation, splits)
    for metric in METRICS:
        match record.get(metric), record.get("n"):
            case {"name": str(name), "score": int(score) | float(score), "signature": str(signature)}, int(n):
                yield KeptScore(evaluation, test_set, decoding, metric, name, float(score), signature, n)


def test_set_and_decoding(evaluation: str, splits: Sequence[str]) -> tuple[str, str]:
    """Split and search in the name of a folder; of somebody's own files, the whole name and nothing.

    Such files may be called like a split, but no search follows.
    """
    for split in sorted(splits, key=len, reverse=True):  # one may begin like another
        search = evaluation.removeprefix(f"{split}-")
        if search != evaluation and SEARCH.match(search):
            return split, search
    return evaluation, ""


# Parts of the card


def _front_matter(name: str, run: Run, scores: Sequence[KeptScore]) -> str:
    """The YAML block that opens the card, which the Hugging Face Hub reads. JSON is YAML."""
    data = run.config.data
    facts: dict[str, object] = {"language": list(dict.fromkeys((data.src_lang, data.tgt_lang)))}
    # Of other corpora, nobody but their owners can say; and so of other weights that this run started with.
    if data.corpus == "sample" and not data.more and run.init_from is None:
        facts["license"] = "mit"
    facts |= {"library_name": "mt-cli", "pipeline_tag": "translation", "tags": ["translation", "transformer"]}
    if scores:
        in_order = sorted(scores, key=lambda each: each.test_set)  # stable: by metric as they came
        groups = groupby(in_order, key=lambda each: each.test_set)
        results = [_result(data.corpus, test_set, list(group)) for test_set, group in groups]
        facts["metrics"] = list(dict.fromkeys(each.metric for each in scores))
        facts["model-index"] = [{"name": name, "results": results}]
    lines = [f"{key}: {json.dumps(value)}" for key, value in facts.items()]
    return "\n".join([f"{BEGIN}{lines[0]}", *lines[1:], "---"])


def _result(corpus: str, test_set: str, scores: Sequence[KeptScore]) -> dict[str, object]:
    """All scores of one test set."""
    is_split = bool(scores[0].decoding)
    return {
        "task": {"type": "translation", "name": "Translation"},
        "dataset": {
            "type": corpus if is_split else "files",
            "name": f"{corpus}, {test_set}" if is_split else test_set,
            "split": test_set,
        },
        "metrics": [
            {
                "type": each.metric,
                "value": each.score,
                "name": f"{each.name}, {each.decoding}" if is_split else each.name,
                "args": {"signature": each.signature, "sentences": each.n},
            }
            for each in scores
        ],
    }


def _model_rows(run: Run) -> list[tuple[object, ...]]:
    model, tokenizers = run.config.model, run.tokenizers
    sides = [tokenizers.src] if tokenizers.joint else [tokenizers.src, tokenizers.tgt]
    return [
        ("parameters", f"{num_parameters(run.parameter_shapes):,}"),
        ("layers", f"{model.encoder_layers} in the encoder, {model.decoder_layers} in the decoder"),
        ("d_model, d_ff, heads", f"{model.d_model}, {model.d_ff}, {model.num_heads}"),
        ("vocabulary", f"{tokenizers.kind}, {' and '.join(f'{side.vocab_size:,}' for side in sides)}"),
    ]


def _training_rows(run: Run) -> list[tuple[object, ...]]:
    config, parent = run.config, run.init_from
    training, more = config.training, config.data.more
    rows: list[tuple[object, ...]] = []
    if parent is not None:
        layers = f"{parent.encoder_layers} in the encoder, {parent.decoder_layers} in the decoder"
        rows.append(("started with", f"{parent.folder}, {parent.checkpoint}, layers: {layers}"))
    rows += [
        ("corpus", config.data.corpus + (f", and added to it: {', '.join(more)}" if more else "")),
        ("optimizer, peak rate", f"{training.optimizer}, {training.peak_lr:g}"),
        ("tokens a batch", f"{training.tokens_per_batch:,}"),
        ("dropout, label smoothing", f"{config.model.dropout:g}, {training.label_smoothing:g}"),
        ("seed", config.runtime.seed),
    ]
    match run.read_facts(STATUS):
        case {"step": int(step), "total_steps": int(total), "state": state, "elapsed_s": float(seconds)}:
            rows += [("updates", f"{step:,} of {total:,}, {state}"), ("seconds", f"{seconds:,.0f}")]
    match run.read_facts(ENVIRONMENT):
        case {"device": device, "precision": precision, "mt_cli": version, "torch": torch}:
            rows += [("device, precision", f"{device}, {precision}")]
            rows += [("made with", f"mt-cli {version}, PyTorch {torch}")]
    return rows


def _in_cell(signature: str) -> str:
    return f"`{signature}`".replace("|", r"\|")


def _table(head: tuple[object, ...], *rows: tuple[object, ...]) -> str:
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in (head, ["---"] * len(head), *rows))
