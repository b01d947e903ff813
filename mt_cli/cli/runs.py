"""`mt-cli runs`."""

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from mt_cli.cli.app import app, command
from mt_cli.cli.flags import OutputFlags
from mt_cli.machine.terminal import print_result, table_text

SortKey = Literal["name", "bleu", "val_bleu", "chrf", "num_parameters", "minutes", "state"]


@command(app, "runs", "runs experiments --sort bleu")
def runs(
    output: OutputFlags,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of run folders.")] = Path(
        "runs"
    ),
    sort: Annotated[
        SortKey, typer.Option(help="What the runs are sorted by; scores have the best first.")
    ] = "name",
) -> None:
    """List all runs in a folder, with their scores.

    Also their sizes, times and states, and in what their configs differ.
    """
    from mt_cli.evaluation.runs_table import summarize_runs

    found = summarize_runs(folder, sort=sort)
    rows = []
    for each in found:
        rows.append(
            (
                each.folder.name,
                each.state,
                _number(each.val_bleu, 2),
                _number(each.bleu, 2),
                _number(each.chrf, 2),
                f"{each.num_parameters / 1e6:.1f}M",
                _number(each.minutes, 1),
            )
        )
    head = ("run", "state", "val BLEU", "test BLEU", "chrF2", "size", "minutes")
    lines = [table_text(head, rows, lefts=2)]
    if any(each.differs for each in found):
        lines += ["", "in the config, other than in most:"]
    for each in found:
        for key, value in each.differs.items():
            shown = "not set" if value is None else json.dumps(value, ensure_ascii=False)
            lines.append(f"  {each.folder.name}  {key} = {shown}")
    if any(each.evaluation for each in found):
        lines += ["", "test BLEU and chrF2 are the best of what was evaluated:"]
        lines += [f"  {each.folder.name}  {each.evaluation}" for each in found if each.evaluation]
    signatures: dict[str, None] = {}
    for each in found:
        signatures |= dict.fromkeys(each.signatures)
    if signatures:
        lines += ["", *signatures]
    print_result("\n".join(lines), {"runs": found}, as_json=output.as_json)


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
