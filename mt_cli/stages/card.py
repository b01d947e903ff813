"""The model card of a run, README.md in its folder (Mitchell et al. 2019): what it is, how good, how made.

Knows what `inspect` says of a run; scores nothing.
"""

from typing import Any

from mt_cli.artefacts.files import write_atomically
from mt_cli.artefacts.run import Run
from mt_cli.stages.inspect import describe_run

MARK = "<!-- Written by mt-cli, and again whenever this run is trained or evaluated. -->"
CARD = """\
{mark}

# {name}

A Transformer that translates {src_lang} to {tgt_lang}, made by mt-cli {version}. In this folder:

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
    """Describe the trained `run` in its README.md, unless somebody has put one of their own there."""
    path = run.folder / "README.md"
    is_known = all((run.folder / name).is_file() for name in ("status.json", "env.json"))
    if is_known and (not path.exists() or path.read_bytes().startswith(MARK.encode())):
        write_atomically(path, card(run).encode())


def card(run: Run) -> str:
    """The text, in Markdown: what `inspect` says of the best checkpoint, for readers."""
    report: dict[str, dict[str, Any]] = describe_run(run.folder)
    status, environment, config = report["run"], report["environment"], report["config"]
    model, data, training = config["model"], config["data"], config["training"]
    vocabulary, sides = report["vocabulary"], ("src", "tgt")
    sizes = (
        f"{vocabulary['src_entries']:,}"
        if vocabulary["joint"]
        else " and ".join(f"{vocabulary[f'{side}_entries']:,}" for side in sides)
    )
    return CARD.format(
        mark=MARK,
        name=run.folder.resolve().name,
        src_lang=data["src_lang"],
        tgt_lang=data["tgt_lang"],
        version=environment.get("mt_cli", ""),
        model=_table(
            ("parameters", f"{report['parameters']['total']:,}"),
            ("layers", f"{model['encoder_layers']} in the encoder, {model['decoder_layers']} in the decoder"),
            ("d_model, d_ff, heads", f"{model['d_model']}, {model['d_ff']}, {model['num_heads']}"),
            ("vocabulary", f"{vocabulary['kind']}, {sizes}"),
            ("checkpoint", status["checkpoint"]),
        ),
        scores=_scores(report["scores"], checkpoint=status["checkpoint"]),
        training=_table(
            ("corpus", ", ".join([data["corpus"], *data["more"]])),
            ("updates", f"{status['step']:,} of {status['total_steps']:,}, {status['state']}"),
            ("seconds", f"{status['elapsed_s']:,.0f}"),
            ("optimizer, peak rate", f"{training['optimizer']}, {training['peak_lr']:g}"),
            ("tokens a batch", f"{training['tokens_per_batch']:,}"),
            ("dropout, label smoothing", f"{model['dropout']:g}, {training['label_smoothing']:g}"),
            ("seed", config["runtime"]["seed"]),
            ("device, precision", f"{environment['device']}, {environment['precision']}"),
        ),
    )


def _table(*rows: tuple[object, ...], head: tuple[str, ...] = ("", "")) -> str:
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in (head, ["---"] * len(head), *rows))


def _scores(scores: dict[str, Any], *, checkpoint: str) -> str:
    """A table of what is known of `checkpoint`, and what the metrics' signatures are."""
    rows, signatures = [], []
    for name, each in scores.items():
        match each:
            case {"bleu": float(bleu), "bleu_signature": signature}:  # of a validation while training
                rows.append((name, f"{bleu:.2f}", "", ""))
                signatures.append(f"BLEU {signature}")
            # An ensemble's score is not this model's.
            case {"bleu": bleu, "chrf": chrf, "n": n, "checkpoint": made_by, **others} if (
                made_by == checkpoint and "with" not in others
            ):
                rows.append((name, f"{bleu['score']:.2f}", f"{chrf['score']:.2f}", n))
                signatures += [f"{metric['name']} {metric['signature']}" for metric in (bleu, chrf)]
    table = _table(*rows, head=("scored", "BLEU", "chrF2", "sentences"))
    return "\n".join([table, "", *(f"`{signature}`" for signature in dict.fromkeys(signatures))])
