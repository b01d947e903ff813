"""The model card of a run, README.md in its folder (Mitchell et al. 2019): what it is, how good, how made.

Knows what `inspect` says of a run; scores nothing.
"""

import logging
from collections.abc import Mapping, Sequence

from mt_cli.artefacts.exported_run import AnyRun, ExportedRun
from mt_cli.artefacts.files import is_there, read_file, write_atomically
from mt_cli.artefacts.run import Run
from mt_cli.artefacts.run_facts import ENVIRONMENT, read_facts
from mt_cli.artefacts.run_manifest import ParentReference
from mt_cli.errors import MtCliError
from mt_cli.stages.hub_metadata import MARK, front_matter
from mt_cli.stages.inspect.inspect import (
    describe_scores,
    describe_status,
    parameters_by_part,
)
from mt_cli.stages.kept_scores import KeptScore, kept_scores

log = logging.getLogger(__name__)

MARKS = (f"---\n# {MARK}\n", f"<!-- {MARK} -->")
"""How a card of ours begins; the second, as versions before this one wrote it."""
MOST_BYTES = 1 << 24
"""Of a card."""
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


def write_card(run: AnyRun, *, tells_failure: bool = True) -> None:
    """Describe `run` in its README.md, unless somebody has put one of their own there.

    An exported model has the README.md that `export` wrote.
    A failure is a warning, or silent with `tells_failure` off: a card is never what a command is for.
    """
    if isinstance(run, ExportedRun):
        return
    path = run.folder / "README.md"
    try:
        if not is_there(path) or read_file(path, most=MOST_BYTES).startswith(
            tuple(mark.encode() for mark in MARKS)
        ):
            write_atomically(path, card(run).encode(errors="backslashreplace"))
    except MtCliError as error:
        if tells_failure:
            log.warning("%s: left as it is: %s", path, error)


def card(run: Run) -> str:
    """The text, in Markdown: what `inspect` says of the best checkpoint but hashes, for readers.

    Raises:
        MtCliError: what describes the run is missing or damaged.
    """
    checkpoint = run.resolve_checkpoint("best") if run.pointer("best") else None
    kept = kept_scores(run, checkpoint=checkpoint)
    name = " ".join(run.folder.resolve().name.split())
    return CARD.format(
        front_matter=front_matter(name, run, kept),
        name=name,
        src_lang=run.config.data.src_lang,
        tgt_lang=run.config.data.tgt_lang,
        model=_table(("", ""), ("checkpoint", checkpoint or "none yet"), *_model_rows(run)),
        scores=_scores(describe_scores(run, checkpoint=checkpoint), kept),
        training=_table(("", ""), *_training_rows(run)),
    )


def _model_rows(run: Run) -> list[tuple[object, ...]]:
    model, tokenizers = run.config.model, run.tokenizers
    sides = [tokenizers.src] if tokenizers.joint else [tokenizers.src, tokenizers.tgt]
    return [
        ("parameters", f"{parameters_by_part(run.parameter_shapes)['total']:,}"),
        ("layers", f"{model.encoder_layers} in the encoder, {model.decoder_layers} in the decoder"),
        ("d_model, d_ff, heads", f"{model.d_model}, {model.d_ff}, {model.num_heads}"),
        ("vocabulary", f"{tokenizers.kind}, {' and '.join(f'{side.vocab_size:,}' for side in sides)}"),
    ]


def _training_rows(run: Run) -> list[tuple[object, ...]]:
    config = run.config
    training, more = config.training, config.data.more
    parent = run.init_from
    rows: list[tuple[object, ...]] = [
        *([("started with", _describe_parent(parent))] if parent else []),
        ("corpus", config.data.corpus + (f", and added to it: {', '.join(more)}" if more else "")),
        ("optimizer, peak rate", f"{training.optimizer}, {training.peak_lr:g}"),
        ("tokens a batch", f"{training.tokens_per_batch:,}"),
        ("dropout, label smoothing", f"{config.model.dropout:g}, {training.label_smoothing:g}"),
        ("seed", config.runtime.seed),
    ]
    match describe_status(run):
        case {"step": int(step), "total_steps": int(total), "state": state, "elapsed_s": float(seconds)}:
            rows += [("updates", f"{step:,} of {total:,}, {state}"), ("seconds", f"{seconds:,.0f}")]
    match read_facts(run.folder, ENVIRONMENT):
        case {"device": device, "precision": precision, "mt_cli": version, "torch": torch}:
            rows += [("device, precision", f"{device}, {precision}")]
            rows += [("made with", f"mt-cli {version}, PyTorch {torch}")]
    return rows


def _describe_parent(parent: ParentReference) -> str:
    said = f"{parent.folder}, {parent.checkpoint}"
    if parent.encoder_layers is None or parent.decoder_layers is None:  # of an early version
        return said
    return f"{said}, layers: {parent.encoder_layers} in the encoder, {parent.decoder_layers} in the decoder"


def _scores(scores: Mapping[str, object], kept: Sequence[KeptScore]) -> str:
    """A table of what is known of the checkpoint, each score beside its signature."""
    rows: list[tuple[object, ...]] = []
    for name, each in scores.items():
        match each:
            case {"bleu": float(bleu), "bleu_signature": str(signature)}:  # of a validation while training
                rows.append((name, f"BLEU {bleu:.2f}", "", _in_cell(signature)))
    rows += [
        (each.evaluation, f"{each.name} {each.score:.2f}", each.n, _in_cell(each.signature)) for each in kept
    ]
    return _table(("scored", "score", "sentences", "signature"), *rows)


def _in_cell(signature: str) -> str:
    return f"`{signature}`".replace("|", r"\|")


def _table(head: tuple[object, ...], *rows: tuple[object, ...]) -> str:
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in (head, ["---"] * len(head), *rows))
