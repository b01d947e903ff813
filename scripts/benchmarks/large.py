"""What a large corpus costs: the time and memory of preparing it, and the memory of training on it.

The corpus is drawn, with repetition, from the training lines that a config has prepared. Everything goes
through the real commands; memory is that of the whole family of processes, looked at ten times a second.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.memory import Memory, watched
from mt_cli.artefacts.metrics import read_metrics
from mt_cli.artefacts.prepared import open_prepared
from mt_cli.artefacts.split_files import SIDES
from mt_cli.commands.flags import prepared_dir
from mt_cli.config import FilesConfig, dump_config, load_config
from mt_cli.machine.workers import usable_cores

LINES_AT_ONCE = 100_000


@dataclass(frozen=True)
class Done:
    """What a command took."""

    seconds: float
    memory: Memory


def write_corpus(source: Path, folder: Path, *, num_pairs: int) -> None:
    """`num_pairs` training pairs of the prepared data `source`, and its validation pairs, into `folder`."""
    prepared = open_prepared(source)
    for side in SIDES:
        lines = np.array(prepared.lines("train", side), dtype=object)
        rng = np.random.default_rng(1)  # the same for both sides
        with folder.joinpath(f"train.{side}").open("w", encoding="utf-8") as file:
            for begin in range(0, num_pairs, LINES_AT_ONCE):
                drawn = lines[rng.integers(len(lines), size=min(LINES_AT_ONCE, num_pairs - begin))]
                file.write("\n".join(drawn) + "\n")
        folder.joinpath(f"val.{side}").write_text(
            "\n".join(prepared.lines("val", side)) + "\n", encoding="utf-8"
        )


def run(*args: str, folder: Path) -> Done:
    """`mt-cli` with `args`, run in `folder`."""
    begin = time.perf_counter()
    command = [sys.executable, "-m", "mt_cli", *args]
    with (
        subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL) as process,
        watched(process.pid) as memory,
    ):
        code = process.wait()
    if code:
        sys.exit(f"mt-cli {' '.join(args)} ended with {code}")
    return Done(time.perf_counter() - begin, memory)


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench large", description=__doc__)
    parser.add_argument("config", type=Path, help="a config whose data are prepared")
    parser.add_argument("--pairs", type=int, default=5_000_000)
    parser.add_argument("--time-limit", default="60s", help="of each training")
    parser.add_argument("--workers", type=int, default=usable_cores())
    args = parser.parse_args()
    config, small = load_config(args.config), prepared_dir(args.config).resolve()
    # One epoch, whose updates are counted whole before the first.
    short = (
        "--set",
        "training.max_epochs=1",
        "--set",
        "training.log_every=1",
        "--time-limit",
        args.time_limit,
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_corpus(small, folder, num_pairs=args.pairs)
        files = {
            split: FilesConfig(src=Path(f"{split}.src"), tgt=Path(f"{split}.tgt"))
            for split in ("train", "val")
        }
        update = {"corpus": "files", "splits": ("train", "val"), "files": files, "more": {}}
        data = config.data.model_copy(update=update)
        folder.joinpath("large.toml").write_text(dump_config(config.model_copy(update={"data": data})))
        folder.joinpath("small.toml").write_text(dump_config(config))
        prepare = run("prepare", "large.toml", "--workers", str(args.workers), folder=folder)
        few = run("train", "small.toml", "--data", str(small), "--run", "few", *short, folder=folder)
        many = run("train", "large.toml", "--run", "many", *short, folder=folder)
        first = {name: first_update_after(folder / name) for name in ("few", "many")}
    rate = args.pairs / prepare.seconds
    print(
        "| command | pairs | seconds | pairs/s | first update after, s | own memory, MB | mapped files, MB |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    print(
        f"| prepare, {args.workers} workers | {args.pairs:,} | {prepare.seconds:.0f} | {rate:,.0f} | "
        f"| {prepare.memory.own:.0f} | {prepare.memory.mapped:.0f} |"
    )
    num_few = len(open_prepared(small).split("train"))
    for name, done, pairs in (("few", few, num_few), ("many", many, args.pairs)):
        print(
            f"| train | {pairs:,} | {done.seconds:.0f} | | {first[name]:.1f} "
            f"| {done.memory.own:.0f} | {done.memory.mapped:.0f} |"
        )


def first_update_after(run: Path) -> float:
    """Seconds from the start of the training in `run` to the end of its first update."""
    return next(read_metrics(run / "metrics.jsonl")).number("elapsed_s")


if __name__ == "__main__":
    main()
