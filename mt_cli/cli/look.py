"""`mt-cli inspect`, `runs` and `plot`: commands that show runs."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from mt_cli.cli.app import app, command
from mt_cli.cli.flags import Checkpoint, RunPath
from mt_cli.cli.tables import Format, Score, Table, joint_name, print_table
from mt_cli.errors import UsageError
from mt_cli.machine.terminal import print_result

if TYPE_CHECKING:  # torch is imported only when a command needs it
    from mt_cli.look.inspect import RunSummary

SENTENCE = "Ein Mann schläft auf einer Bank."


@command(
    app,
    "inspect runs/sample",
    "inspect runs/sample --shapes",
    "inspect runs/sample --attention maps.png --head all",
)
def inspect(
    run: RunPath,
    as_json: bool,
    shapes: Annotated[
        bool,
        typer.Option(
            "--shapes", help="Run a sentence through the model and show the tensor shapes."
        ),
    ] = False,
    text: Annotated[
        str | None,
        typer.Option("--text", metavar="TEXT", help=f"Sentence, such as {SENTENCE!r}."),
    ] = None,
    attention: Annotated[
        Path | None,
        typer.Option(
            "--attention",
            metavar="FILE",
            help="Draw the attention for --text as .png or .svg, or write its numbers as .json.",
        ),
    ] = None,
    attention_of: Annotated[
        Literal["encoder", "decoder", "cross"],
        typer.Option(
            "--attention-of",
            help="Attention to draw: source to source, target to target, or target to source.",
        ),
    ] = "cross",
    layer: Annotated[
        int | None,
        typer.Option(
            "--layer", min=1, metavar="N", help="Layer for --attention; default: the last."
        ),
    ] = None,
    head: Annotated[
        str,
        typer.Option("--head", metavar="N|mean|all", help="Head for --attention."),
    ] = "mean",
    checkpoint: Checkpoint = "best",
) -> None:
    """Show facts about a run, or how its model processes a sentence."""
    if attention is None and (attention_of, layer, head) != ("cross", None, "mean"):
        raise UsageError("--attention-of, --layer and --head need --attention FILE")
    from mt_cli.runs.opening import check_is_there

    check_is_there(run)
    from mt_cli.look.inspect import describe_run, facts_as_text, shapes_as_text

    if not shapes and attention is None:
        if text is not None:
            raise UsageError("--text needs --shapes or --attention FILE")
        facts = describe_run(run, checkpoint=checkpoint)
        print_result(facts_as_text(facts), facts, as_json=as_json)
        return
    from mt_cli.look.attention import ENDINGS, Attention
    from mt_cli.look.figures import check_ending
    from mt_cli.model.inside import trace_shapes
    from mt_cli.translation.translator import Translator

    if attention is not None:
        check_ending(attention, ENDINGS)
    text = SENTENCE if text is None else text
    if "\n" in text:
        raise UsageError("--text takes a single line here; give one sentence")
    translator = Translator.load(run, checkpoint=checkpoint, device="cpu")
    maps = Attention.of(translator, text)
    pair = maps.pair
    document: dict[str, object] = {"source": pair.source, "translation": pair.translation}
    lines = []
    if attention is not None:
        maps.write(attention, attention_of, layer=layer, head=head)
        document |= maps.as_json(attention_of, layer=layer, head=head)
    if shapes:
        traced = trace_shapes(translator.model, pair.src_ids, pair.tgt_in)
        document["shapes"] = traced
        lines.append(f"source  {' '.join(pair.src_tokens)}")
        lines.append(f"target  {' '.join(pair.tgt_tokens)}")
        lines.append(shapes_as_text(traced))
    if lines or as_json:
        print_result("\n".join(lines), document, as_json=as_json)


SortKey = Literal["name", "bleu", "val_bleu", "chrf", "num_parameters", "minutes", "state"]


@command(app, "runs", "runs experiments --sort bleu", "runs experiments --format latex")
def runs(
    as_json: bool,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of run folders.")] = Path(
        "runs"
    ),
    sort: Annotated[
        SortKey,
        typer.Option("--sort", help="Column to sort by; scores sort best first."),
    ] = "name",
    form: Format = "text",
) -> None:
    """List all runs in a folder, with their scores.

    Also shows sizes, times, states, and how their configs differ. Finished trainings that differ
    only in their seed share a row with mean ± standard deviation; --json lists each one.
    """
    from mt_cli.look.inspect import rows_of, summarize_runs

    summaries = summarize_runs(folder, sort=sort)
    table = _runs_table(rows_of(summaries))
    lines = [table.text()]
    unfinished = [run for run in summaries if not run.is_finished and run.step is not None]
    if unfinished:
        lines += ["", *map(_progress, unfinished)]
    if any(run.differs for run in summaries):
        lines += ["", "config values that differ from most runs:"]
    for run in summaries:
        for key, value in run.differs.items():
            shown = "not set" if value is None else json.dumps(value, ensure_ascii=False)
            lines.append(f"  {run.folder.name}  {key} = {shown}")
    if any(run.evaluation for run in summaries):
        lines += ["", "test BLEU and chrF2 are each run's best evaluation:"]
        lines += [f"  {run.folder.name}  {run.evaluation}" for run in summaries if run.evaluation]
    lines += [f"\n{mark}: {meaning}" for mark, meaning in table.marks.items()]
    signatures = dict.fromkeys(chain.from_iterable(run.signatures for run in summaries))
    if signatures:
        lines += ["", *signatures]
    print_table([table], "\n".join(lines), {"runs": summaries}, form=form, as_json=as_json)


def _runs_table(groups: "Sequence[Sequence[RunSummary]]") -> Table:
    """A row for each of the `groups` of runs."""
    rows = []
    signatures: dict[str, dict[str, None]] = {}
    for group in groups:
        first = group[0]
        rows.append(
            (
                joint_name([run.folder.name for run in group]),
                first.state,
                len(group),
                _score([run.val_bleu for run in group]),
                _score([run.bleu for run in group]),
                _score([run.chrf for run in group]),
                f"{first.num_parameters / 1e6:.1f}M",
                _score([run.minutes for run in group], digits=1),
            )
        )
        for run in group:
            for name, signature in zip(("BLEU", "chrF2"), run.signatures, strict=False):
                signatures.setdefault(name, {})[signature] = None
    marks = {}
    if any(len(group) > 1 for group in groups):
        marks = {"±": "standard deviation of n trainings that differ in their seed only"}
    head = ("run", "state", "n", "val BLEU", "test BLEU", "chrF2", "size", "minutes")
    of_metrics = {name: " or ".join(different) for name, different in signatures.items()}
    return Table(head, rows, of_metrics, marks, lefts=2)


def _score(values: Sequence[float | None], *, digits: int = 2) -> Score | None:
    """The score of the `values` that are known."""
    present = [value for value in values if value is not None]
    return Score.of(present, digits=digits) if present else None


def _progress(run: "RunSummary") -> str:
    """The progress of an unfinished run, and why it ended."""
    text = f"  {run.folder.name}  {run.state} at step {run.step:,} of {run.total_steps or 0:,}"
    text += f", epoch {run.epoch or 0}"
    if run.seconds_left is not None:
        text += f", {_duration(run.seconds_left)} left"
    ago = datetime.now(UTC) - datetime.fromisoformat(run.updated_at)
    text += f", updated {_duration(ago.total_seconds())} ago"
    return f"{text}: {run.reason}" if run.reason else text


def _duration(seconds: float) -> str:
    """An approximate duration, such as `12 s`, `5 min` or `3.1 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


@command(app, "plot runs/sample -o curves.png", "plot runs/one runs/two -o curves.svg")
def plot(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Run folders to draw in one picture."),
    ],
    file: Annotated[
        Path,
        typer.Option("-o", "--output", metavar="FILE", help="Picture to write: .png or .svg."),
    ],
    as_json: bool,
) -> None:
    """Draw loss, BLEU and learning rate of trainings.

    Prints the picture's path; with --json, the curves too.
    """
    from mt_cli.look.figures import plot_runs

    drawn = plot_runs(runs, output=file)
    print_result(file, {"picture": file, "runs": drawn}, as_json=as_json)
