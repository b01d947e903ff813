"""Variants of one config, each trained with several seeds, compared on the validation split in one table.

Everything goes through the real commands, so that a sweep can be stopped at any moment: called again, it goes
on with the runs that are not finished.
"""

import argparse
import json
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path

from mt_cli.artefacts.json_files import read_json, write_json
from mt_cli.artefacts.run import open_run
from mt_cli.artefacts.run_facts import ENDED, STATUS, read_facts
from mt_cli.commands.terminal import exit_codes
from mt_cli.commands.train import parse_duration
from mt_cli.config import differences, load_config
from mt_cli.errors import ConfigError, DataError, DivergedError
from mt_cli.machine.signals import StopSignals
from mt_cli.machine.workers import usable_cores
from sweeps.comparison import Result, table
from sweeps.plan import Job, lay_out, read_sweep

OVER = {*ENDED, "diverged"}


class Commands:
    """`mt-cli` commands that run side by side, and all end when one fails or a signal comes."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[bytes]] = set()
        self._ended_by: int | None = None
        for number in StopSignals.SIGNALS:
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, lambda received, _: self.end(received))

    def run(self, *args: str, allowed: Collection[int] = (0,)) -> str:
        """stdout of `mt-cli` with `args`.

        Raises:
            SystemExit: it failed, or all have been ended.
        """
        if self._ended_by is not None:
            raise SystemExit(128 + self._ended_by)
        command = [sys.executable, "-m", "mt_cli", *args]
        # In a session of its own, so that a signal of the terminal reaches it once, from here.
        with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
            self._running.add(process)
            if self._ended_by is not None:
                self.end()
            out = process.communicate()[0]
            self._running.discard(process)
        if self._ended_by is not None or process.returncode not in allowed:
            code = process.returncode or 128 + (self._ended_by or 0)
            raise SystemExit(code if code > 0 else 128 - code)
        return out.decode()

    def end(self, number: int = signal.SIGTERM) -> None:
        """Begin no more, and send what runs a signal, upon which it saves its state."""
        self._ended_by = self._ended_by or number
        while self._running:
            # Taken out first, for a second signal may be obeyed; another thread may be faster.
            with suppress(KeyError):
                self._running.pop().send_signal(self._ended_by)


def train_all(jobs: Sequence[Job], commands: Commands, *, side_by_side: int, deadline: float) -> None:
    """Train `jobs`, so many at a time, beginning none after the `deadline`."""
    with ThreadPoolExecutor(side_by_side) as pool:
        futures = [pool.submit(train, job, commands, side_by_side, deadline) for job in jobs]
        try:
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            commands.end()
            raise


def train(job: Job, commands: Commands, side_by_side: int, deadline: float) -> None:
    """Train until the end or the `deadline`, going on where an earlier call stopped."""
    left = deadline - time.monotonic()
    if left <= 0 or state_of(job)["state"] in OVER:
        return
    args = ["train", job.config_path, "--run", job.run, "--data", job.data, "--seed", job.seed, "--quiet"]
    args += ["--resume"] if job.run.exists() and any(job.run.iterdir()) else []
    args += [] if left == float("inf") else ["--time-limit", f"{left:.3f}s"]
    if side_by_side > 1 and not job.config.runtime.threads:
        args += ["--threads", max(1, usable_cores() // side_by_side)]
    print(f"{job.run}: begins", file=sys.stderr)
    commands.run(*map(str, args), allowed={0, DivergedError.exit_code})
    print(f"{job.run}: {state_of(job)['state']}", file=sys.stderr)


def check_is_of(job: Job) -> None:
    """Raise ConfigError if the run that is there already was trained with another config."""
    path = job.run / "config.toml"
    if not path.exists():
        return
    # On what it runs, and with which of the sweep's seeds, is no matter.
    changed = differences(load_config(path), job.config)
    differing = [key for key in changed if not key.startswith("runtime.")]
    if differing:
        raise ConfigError(
            f"{job.run}: trained with another {', '.join(differing)}; "
            "remove it, or give the variant another name"
        )


def result_of(job: Job, commands: Commands, *, beam: Sequence[str]) -> Result | None:
    """What a finished training scored, searched with the flags `beam` too; none of one that is not."""
    status = state_of(job)
    if status["state"] not in ENDED:
        return None
    run = open_run(job.run)
    best = [each for each in run.metrics() if each.kind == "validation" and each.content.get("is_best")]
    if not best:
        raise DataError(f"{run.metrics_path}: holds no validation; remove {job.run} to train it again")
    beam_bleu = beam_score(job, commands, beam) if beam else None
    return Result(
        job.variant,
        job.seed,
        best[-1].number("bleu"),
        best[-1].number("nll"),
        beam_bleu,
        float(str(status["elapsed_s"])),
    )


def beam_score(job: Job, commands: Commands, beam: Sequence[str]) -> float:
    """BLEU of the validation split, searched with the flags `beam`; kept in the run for the next call."""
    path = job.run / "eval" / "sweep.json"
    made_by = {"flags": list(beam), "checkpoint": open_run(job.run).pointer("best")}
    with suppress(DataError):  # not there, or damaged: it is only kept to save time
        match read_json(path):
            case {"bleu": float(bleu), **others} if others == made_by:
                return bleu
    answer = commands.run(
        "evaluate", str(job.run), "--data", str(job.data), "--split", "val", "--json", "--quiet", *beam
    )
    bleu = float(json.loads(answer)["splits"]["val"]["bleu"]["score"])
    write_json(path, {**made_by, "bleu": bleu})
    return bleu


def state_of(job: Job) -> dict[str, object]:
    """What status.json says; `new` where there is none, or half of one."""
    try:
        return {"state": "new", "step": 0} | read_facts(job.run, STATUS)
    except DataError:
        return {"state": "new", "step": 0}


def count(text: str) -> int:
    """A whole number from 1."""
    if int(text) < 1:
        raise ValueError
    return int(text)


@exit_codes
def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/sweep", description=__doc__)
    parser.add_argument("sweep", type=Path, help="TOML file: config, seeds, [all], [variants.<name>]")
    parser.add_argument("--out", type=Path, help="folder of the runs and the table; runs/<name of the file>")
    parser.add_argument("--from", dest="source", type=Path, help="folder that holds the corpus files already")
    parser.add_argument("--jobs", type=count, default=1, help="trainings side by side, which share the cores")
    parser.add_argument("--time-limit", help="train no longer than 90s, 10m or 2h; what runs then is saved")
    parser.add_argument("--beam-size", type=count, help="search the validation split with a beam too")
    parser.add_argument("--length-penalty", type=float, default=1.0, help="of that beam")
    args = parser.parse_args()
    deadline = time.monotonic() + (parse_duration(args.time_limit) if args.time_limit else float("inf"))
    sweep = read_sweep(args.sweep)
    out = args.out or Path("runs") / args.sweep.stem
    commands = Commands()
    jobs = lay_out(sweep, out)
    for job in jobs:
        check_is_of(job)
    corpus = [] if args.source is None else ["--from", str(args.source)]
    for path in {job.data: job.prepared_by for job in jobs}.values():
        commands.run("prepare", str(path), *corpus)
    train_all(jobs, commands, side_by_side=args.jobs, deadline=deadline)
    beam = ["--beam-size", str(args.beam_size), "--length-penalty", str(args.length_penalty)]
    results = {job.run: result_of(job, commands, beam=beam if args.beam_size else []) for job in jobs}
    text = table(list(sweep.variants), [result for result in results.values() if result])
    for job in (job for job in jobs if results[job.run] is None):
        status = state_of(job)
        text += f"\n\n{job.variant}, seed {job.seed}: {status['state']} at update {status['step']}"
    (out / "table.md").write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
