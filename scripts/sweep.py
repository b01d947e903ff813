"""Variants of one config, each trained with several seeds, compared on the validation split in one table.

Everything goes through the real commands, so that a sweep can be stopped at any moment: called again, it goes
on with the runs that are not finished.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from types import FrameType
from typing import Any

from comparison import Result, table

from mt_cli.commands.train import parse_duration
from mt_cli.config import Config, dump_config, load_config
from mt_cli.config.loading import parse_config
from mt_cli.errors import ConfigError
from mt_cli.flags import prepared_dir

DIVERGED = 4
RUNNING: set["subprocess.Popen[bytes]"] = set()
"""The commands that run: each in a session of its own, so that a signal reaches it once."""


@dataclass(frozen=True)
class Sweep:
    """What is to be compared."""

    base: Path
    """The config that all variants change."""
    seeds: tuple[int, ...]
    variants: Mapping[str, Config]
    """By name; the first is what the others are compared with."""


@dataclass(frozen=True)
class Job:
    """One variant with one seed, and where it lies."""

    variant: str
    seed: int
    config: Path
    data: Path
    run: Path


def read_sweep(path: Path) -> Sweep:
    """The sweep of a TOML file: `config`, `seeds`, and tables `[all]` and `[variants.<name>]` of config keys.

    Raises:
        ConfigError: something is missing, unknown or wrong.
    """
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from error
    unknown = tables.keys() - {"config", "seeds", "all", "variants"}
    if unknown or not isinstance(tables.get("config"), str) or not tables.get("variants"):
        raise ConfigError(
            f'{path}: expected config = "FILE", seeds = [1, ...], [all] and [variants.<name>] tables'
            + (f"; unknown: {', '.join(sorted(unknown))}" if unknown else "")
        )
    seeds = tables.get("seeds", [1])
    if not isinstance(seeds, list) or not seeds or not all(type(seed) is int and seed >= 0 for seed in seeds):
        raise ConfigError(f"{path}: seeds: expected a list of whole numbers from 0, found {seeds!r}")
    base = Path(tables["config"])
    load_config(base)  # which explains what is wrong with it
    common = merged(tomllib.loads(base.read_text(encoding="utf-8")), tables.get("all", {}))
    variants = {
        name: parse_config(merged(common, changes), origin=f"{path}: variant '{name}'")
        for name, changes in tables["variants"].items()
    }
    return Sweep(base, tuple(seeds), variants)


def merged(tables: Mapping[str, object], changes: Mapping[str, object]) -> dict[str, object]:
    """`tables` with `changes` laid over them, key by key."""
    result = dict(tables)
    for key, value in changes.items():
        inner = result.get(key)
        if isinstance(value, Mapping) and isinstance(inner, Mapping):
            result[key] = merged(inner, value)
        else:
            result[key] = value
    return result


def lay_out(sweep: Sweep, out: Path, *, source: Path | None) -> list[Job]:
    """Write each variant's config, prepare its data, and list the runs: every variant before the next seed.

    Variants that neither change data nor tokenizer share those of the base config.
    """
    base = load_config(sweep.base)
    places: dict[str, tuple[Path, Path]] = {}
    for name, config in sweep.variants.items():
        path = out / "configs" / f"{out.name}-{name}.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dump_config(config), encoding="utf-8")
        is_shared = (config.data, config.tokenizer) == (base.data, base.tokenizer)
        prepared = sweep.base if is_shared else path
        if prepared_dir(prepared) not in [data for _, data in places.values()]:
            mt_cli("prepare", str(prepared), *(() if source is None else ("--from", str(source))))
        places[name] = path, prepared_dir(prepared)
    return [
        Job(name, seed, *places[name], out / "runs" / f"{name}-{seed}")
        for seed, name in product(sweep.seeds, sweep.variants)
    ]


def train(job: Job, *, threads: int, deadline: float) -> None:
    """Train until the end or the `deadline`, going on where an earlier call stopped."""
    left = deadline - time.monotonic()
    if left <= 0 or (
        job.run.exists() and state_of(job.run)["state"] in {"finished", "early_stop", "diverged"}
    ):
        return
    limit = () if left == float("inf") else ("--time-limit", f"{left:.0f}s")
    print(f"{job.run}: begins", file=sys.stderr)
    mt_cli(
        "train", str(job.config), "--run", str(job.run), "--data", str(job.data), "--seed", str(job.seed),
        "--threads", str(threads), "--quiet", *limit, *(("--resume",) if job.run.exists() else ()),
        allowed={0, DIVERGED},
    )  # fmt: skip
    print(f"{job.run}: {state_of(job.run)['state']}", file=sys.stderr)


def result_of(job: Job, *, beam: Sequence[str]) -> Result | None:
    """What a finished training scored, searched with the flags `beam` too; none of one that is not."""
    if not job.run.exists() or state_of(job.run)["state"] not in {"finished", "early_stop"}:
        return None
    lines = (job.run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    validations = [line for line in map(json.loads, lines) if line["kind"] == "validation"]
    best = next(line for line in reversed(validations) if line["is_best"])
    beam_bleu = beam_score(job, beam) if beam else None
    seconds = float(state_of(job.run)["elapsed_s"])
    return Result(job.variant, job.seed, best["bleu"], best["nll"], beam_bleu, seconds)


def beam_score(job: Job, beam: Sequence[str]) -> float:
    """BLEU of the validation split, searched with the flags `beam`; kept beside the run for the next call."""
    path = job.run.with_name(f"{job.run.name}.beam.json")
    known = {"flags": list(beam), "checkpoint": (job.run / "best.txt").read_text(encoding="utf-8").strip()}
    if path.exists():
        kept = json.loads(path.read_bytes())
        if kept | known == kept:
            return float(kept["bleu"])
    answer = mt_cli(
        "evaluate", str(job.run), "--data", str(job.data), "--split", "val", "--json", "--quiet", *beam
    )
    bleu = float(json.loads(answer)["splits"]["val"]["bleu"]["score"])
    path.write_text(json.dumps({**known, "bleu": bleu}), encoding="utf-8")
    return bleu


def state_of(run: Path) -> dict[str, Any]:
    path = run / "status.json"
    status: dict[str, Any] = json.loads(path.read_bytes()) if path.exists() else {"state": "new", "step": 0}
    return status


def mt_cli(*args: str, allowed: Collection[int] = (0,)) -> str:
    """stdout of `mt-cli` with `args`; ends the sweep, by its exit code, where it fails."""
    command = [sys.executable, "-m", "mt_cli", *args]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
        RUNNING.add(process)
        out = process.communicate()[0]
        RUNNING.discard(process)
    if process.returncode not in allowed:
        raise SystemExit(process.returncode if process.returncode > 0 else 128 - process.returncode)
    return out.decode()


def stop(signal_number: int, _: FrameType | None) -> None:
    """Pass the signal on, so that what runs saves its state; then end."""
    for process in list(RUNNING):
        process.send_signal(signal_number)
    raise SystemExit(128 + signal_number)


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/sweep", description=__doc__)
    parser.add_argument("sweep", type=Path, help="TOML file: config, seeds, [all], [variants.<name>]")
    parser.add_argument("--out", type=Path, help="folder of the runs and the table; runs/<name of the file>")
    parser.add_argument("--from", dest="source", type=Path, help="folder that holds the corpus files already")
    parser.add_argument("--jobs", type=int, default=1, help="trainings side by side")
    parser.add_argument("--threads", type=int, help="CPU threads of each; the cores, shared out")
    parser.add_argument("--time-limit", help="begin nothing after 90s, 10m or 2h, and stop what runs, saved")
    parser.add_argument("--beam-size", help="search the validation split with a beam too")
    parser.add_argument("--length-penalty", default="1.0", help="of that beam")
    args = parser.parse_args()
    limit = parse_duration(args.time_limit) if args.time_limit else float("inf")
    deadline = time.monotonic() + limit
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, stop)
    threads = args.threads or max(1, (os.cpu_count() or 1) // args.jobs)
    out = args.out or Path("runs") / args.sweep.stem
    try:
        sweep = read_sweep(args.sweep)
    except ConfigError as error:
        parser.error(str(error))
    jobs = lay_out(sweep, out, source=args.source)
    pool = ThreadPoolExecutor(args.jobs)
    try:
        list(pool.map(lambda job: train(job, threads=threads, deadline=deadline), jobs))
    finally:
        pool.shutdown(cancel_futures=True)  # waits for what runs
    beam = ("--beam-size", args.beam_size, "--length-penalty", args.length_penalty) if args.beam_size else ()
    results = {job: result_of(job, beam=beam) for job in jobs}
    text = table(list(sweep.variants), [result for result in results.values() if result])
    for job in (job for job, result in results.items() if result is None):
        state = state_of(job.run)
        text += f"\n\n{job.variant}, seed {job.seed}: {state['state']} at update {state['step']}"
    (out / "table.md").write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
