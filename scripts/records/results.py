"""From runs to docs/results.md: `add` keeps a record of each run in docs/records; the page is made of them.

A record is small and stays when the run is gone. Without a command, only the page is written anew.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from mt_cli.commands.terminal import exit_codes, print_path, set_up_logging
from mt_cli.errors import UsageError
from records.page import PAGE, RECORDS, results_page
from records.record import Record, read_record, write_record
from records.systems import file_name
from records.taking import configs_in, take_record
from records.training_changes import is_shallow

ROOT = Path(__file__).resolve().parents[2]


def add(
    run_dirs: Sequence[Path],
    *,
    root: Path,
    config_name: str | None = None,
    commit: str | None = None,
    replaces: bool = False,
) -> list[Path]:
    """Write a record of each run, all or none, and give their paths.

    Raises:
        UsageError: a run is not fit to be recorded, two are of one config and seed, or the record of another
            training with them is there and `replaces` is off.
        DataError: a file of a run is damaged.
    """
    published = configs_in(root / "configs")
    taken: dict[Path, Record] = {}
    for run_dir in run_dirs:
        record = take_record(run_dir, root=root, config_name=config_name, commit=commit)
        path = root / RECORDS / file_name(record, published)
        if path in taken:
            raise UsageError(
                f"{run_dir}: {path.name} is the record of another run that was named; name one of them"
            )
        if path.exists() and not replaces and read_record(path).weights_sha256 != record.weights_sha256:
            raise UsageError(
                f"{path}: the record of another training with this config and seed; --replace replaces it"
            )
        taken[path] = record
    for path, record in taken.items():
        write_record(path, record)
    return list(taken)


def write_page(root: Path) -> Path:
    """Write docs/results.md anew, and give its path."""
    if is_shallow(root):
        print(
            "warning: the history of this repository is cut off (a shallow clone), so it may not tell which "
            "rows were trained by older code; those rows say so. git fetch --unshallow gets the rest",
            file=sys.stderr,
        )
    page = root / PAGE
    page.write_text(results_page(root), encoding="utf-8")
    return page


@exit_codes
def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/results", description=__doc__)
    commands = parser.add_subparsers(dest="command", metavar="add")
    adding = commands.add_parser("add", help="keep a record of finished, evaluated runs")
    adding.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="run folder")
    adding.add_argument(
        "--config", help="config below configs/ that the run was made from; else the nearest one"
    )
    adding.add_argument("--commit", help="commit that the run was trained at, if its env.json names none")
    adding.add_argument("--replace", action="store_true", help="replace the record of another training")
    args = parser.parse_args()
    set_up_logging(is_quiet=False, is_verbose=False)
    if args.command == "add":
        added = add(args.runs, root=ROOT, config_name=args.config, commit=args.commit, replaces=args.replace)
        for path in added:
            print_path(path)
    print_path(write_page(ROOT))


if __name__ == "__main__":
    main()
