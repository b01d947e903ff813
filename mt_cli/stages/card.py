"""The model card of a run, README.md in its folder (Mitchell et al. 2019): what it is, how good, how made.

Knows what `inspect` says of a run; scores nothing.
"""

import logging
import os
from collections.abc import Mapping

from mt_cli.artefacts.files import write_atomically
from mt_cli.artefacts.run import Run
from mt_cli.config import Config
from mt_cli.errors import MtCliError
from mt_cli.stages.inspect import Report, describe_run

log = logging.getLogger(__name__)

MARK = "<!-- mt-cli writes this when the run is trained or evaluated; without this line it stays. -->"
CARD = """\
{mark}

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

It has read the training pairs of its corpus and nothing else: of other matters and in another style it
translates badly, and sounds no less sure of itself. It can leave out what the source says, and say what the
source does not. What may be done with it, the terms of that corpus decide too.
"""


def write_card(run: Run) -> None:
    """Describe `run` in its README.md, unless somebody has put one of their own there.

    Whoever asks for it has something better to give than a card: what stands in its way is a warning.
    """
    path = run.folder / "README.md"
    try:
        if not os.path.lexists(path) or path.read_bytes().startswith(MARK.encode()):
            write_atomically(path, card(run).encode(errors="backslashreplace"))
    except (MtCliError, OSError) as error:
        log.warning("%s: left as it is: %s", path, error)


def card(run: Run) -> str:
    """The text, in Markdown: what `inspect` says of the best checkpoint, for readers.

    Raises:
        MtCliError: what describes the run is missing or damaged.
    """
    report = describe_run(run.folder)
    config, checkpoint = run.config, report["run"]["checkpoint"]
    return CARD.format(
        mark=MARK,
        name=" ".join(run.folder.resolve().name.split()),
        src_lang=config.data.src_lang,
        tgt_lang=config.data.tgt_lang,
        model=_table(("", ""), *_model_rows(config, report)),
        scores=_scores(report["scores"], checkpoint=checkpoint),
        training=_table(("", ""), *_training_rows(config, report)),
    )


def _model_rows(config: Config, report: Report) -> list[tuple[object, ...]]:
    model, vocabulary = config.model, report["vocabulary"]
    sides = ["src_entries"] if vocabulary["joint"] else ["src_entries", "tgt_entries"]
    return [
        ("checkpoint", report["run"]["checkpoint"] or "none yet"),
        ("parameters", f"{report['parameters']['total']:,}"),
        ("layers", f"{model.encoder_layers} in the encoder, {model.decoder_layers} in the decoder"),
        ("d_model, d_ff, heads", f"{model.d_model}, {model.d_ff}, {model.num_heads}"),
        ("vocabulary", f"{vocabulary['kind']}, {' and '.join(f'{vocabulary[side]:,}' for side in sides)}"),
    ]


def _training_rows(config: Config, report: Report) -> list[tuple[object, ...]]:
    training, more = config.training, config.data.more
    rows: list[tuple[object, ...]] = [
        ("corpus", config.data.corpus + (f", and added to it: {', '.join(more)}" if more else "")),
        ("optimizer, peak rate", f"{training.optimizer}, {training.peak_lr:g}"),
        ("tokens a batch", f"{training.tokens_per_batch:,}"),
        ("dropout, label smoothing", f"{config.model.dropout:g}, {training.label_smoothing:g}"),
        ("seed", config.runtime.seed),
    ]
    match report["run"]:
        case {"step": int(step), "total_steps": int(total), "state": state, "elapsed_s": float(seconds)}:
            rows += [("updates", f"{step:,} of {total:,}, {state}"), ("seconds", f"{seconds:,.0f}")]
    match report["environment"]:
        case {"device": device, "precision": precision, "mt_cli": version, "torch": torch}:
            rows += [("device, precision", f"{device}, {precision}")]
            rows += [("made with", f"mt-cli {version}, PyTorch {torch}")]
    return rows


def _scores(scores: Mapping[str, object], *, checkpoint: object) -> str:
    """A table of what is known of `checkpoint`, each score beside its signature."""
    rows: list[tuple[object, ...]] = []
    for name, each in scores.items():
        match each:
            case {"bleu": float(bleu), "bleu_signature": str(signature)}:  # of a validation while training
                rows.append((name, f"BLEU {bleu:.2f}", "", _in_cell(signature)))
            # An ensemble's score is not this model's.
            case {"checkpoint": made_by, "n": n, **others} if made_by == checkpoint and "with" not in others:
                for metric in others.values():
                    match metric:
                        case {"name": str(of), "score": float(score), "signature": str(signature)}:
                            rows.append((name, f"{of} {score:.2f}", n, _in_cell(signature)))
    return _table(("scored", "score", "sentences", "signature"), *rows)


def _in_cell(signature: str) -> str:
    return f"`{signature}`".replace("|", r"\|")


def _table(head: tuple[object, ...], *rows: tuple[object, ...]) -> str:
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in (head, ["---"] * len(head), *rows))
