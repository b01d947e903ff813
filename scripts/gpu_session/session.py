"""Run the tasks of the plan that have not succeeded yet, within a time, and print one table.

Called again with the same --out, it goes on: what has succeeded is not repeated, trainings are resumed.
"""

import argparse
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Literal, Never

from pydantic import TypeAdapter, ValidationError

from gpu_session.plan import SAVING_S, Device, Task, Training, plan, trainings
from mt_cli.artefacts.json_files import read_json, write_json
from mt_cli.artefacts.metrics import read_metrics
from mt_cli.artefacts.run_facts import ENDED, STATUS, read_facts
from mt_cli.commands.terminal import exit_codes
from mt_cli.errors import DataError, UsageError

SCORES = (38.0, 39.5, 41.0, 42.0, 43.0, 44.0)
"""Validation BLEU whose time is told."""
TABLE, TASKS = "table.md", "tasks.json"
GRACE_S = 20
"""What a command is given to save its state before it is killed."""

State = Literal["passed", "failed", "out of time", "left out"]


@dataclass(frozen=True)
class Outcome:
    """How a task ended."""

    name: str
    state: State
    seconds: float
    last_line: str
    tables: str = ""
    """What it printed as Markdown tables."""


def run_session(out: Path, device: Device, *, minutes: float, is_quick: bool) -> list[Outcome]:
    """Run what is left of the plan; outcomes and the table are kept in `out` as they come.

    Raises:
        UsageError: `out` holds a session of another kind.
        DataError: what it keeps of one is damaged.
    """
    out.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + 60 * minutes
    kind: dict[str, object] = {"device": device, "is_quick": is_quick}
    outcomes = _kept(out, kind)
    tasks = list(plan(out, device, is_quick=is_quick))
    for task in tasks:
        before = outcomes.get(task.name)
        if before is None or before.state != "passed":
            outcome = _run(task, out / "log.txt", deadline)
            if task.run is not None and outcome.state != "left out":
                # What was measured of the model before it was trained further has to be measured again.
                for other in tasks:
                    if any(path.is_relative_to(task.run) for path in other.needs):
                        outcomes.pop(other.name, None)
            if before is None or outcome.state != "left out":
                outcomes[task.name] = outcome
            write_json(out / TASKS, {**kind, "tasks": [asdict(each) for each in outcomes.values()]})
        so_far = [outcomes[each.name] for each in tasks if each.name in outcomes]
        text = report(so_far, trainings(out, is_quick=is_quick))
        (out / TABLE).write_text(f"{text}\n", encoding="utf-8")
    return [outcomes[task.name] for task in tasks]


def _kept(out: Path, kind: dict[str, object]) -> dict[str, Outcome]:
    """The outcomes by name that an earlier call has left in `out`, a session of the same `kind`."""
    if not (out / TASKS).exists():
        return {}
    kept = read_json(out / TASKS)
    if kind != {key: kept.get(key) for key in kind}:
        raise UsageError(f"{out}: holds a session on another device or of other tasks; name another --out")
    try:
        outcomes = TypeAdapter(list[Outcome]).validate_python(kept.get("tasks"))
    except ValidationError as error:
        raise DataError(
            f"{out / TASKS}: not the tasks of a session; remove it, or name another --out"
        ) from error
    return {each.name: each for each in outcomes}


def _run(task: Task, log: Path, deadline: float) -> Outcome:
    missing = [path for path in task.needs if not path.exists()]
    if missing:
        return Outcome(task.name, "left out", 0.0, f"{missing[0]} is missing")
    seconds = min(task.limit_s, deadline - time.monotonic())
    if seconds <= task.least_s:
        return Outcome(task.name, "left out", 0.0, "too little time is left")
    command = task.command
    if task.run:
        command += ("--time-limit", f"{math.ceil(seconds - SAVING_S)}s")
    print(f"{task.name} …", file=sys.stderr)
    begin = time.monotonic()
    with log.open("ab") as file:
        file.write(f"\n$ {' '.join(command)}\n".encode())
        file.flush()
        start = file.tell()
        # In a session of its own: what it has started can be ended with it, and no signal reaches it twice.
        with subprocess.Popen(
            command, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        ) as process:
            try:
                is_late = _is_late(process, seconds)
            except BaseException:  # a signal
                _end(process)
                raise
    state: State = "passed"
    if is_late or (task.run and not process.returncode and not _is_trained(task.run)):
        state = "out of time"
    elif process.returncode:
        state = "failed"
    lines = log.read_bytes()[start:].decode(errors="replace").splitlines()
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    print(f"{task.name}: {state} after {time.monotonic() - begin:.0f} s: {last}", file=sys.stderr)
    tables = "\n".join(line for line in lines if line.startswith("|"))
    return Outcome(task.name, state, round(time.monotonic() - begin, 1), last, tables)


def _is_late(process: "subprocess.Popen[bytes]", seconds: float) -> bool:
    """Whether `process` had to be told to end."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
        return False
    _end(process)
    return True


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Tell `process` to save what it has; then end it, and all that it has started."""
    process.terminate()
    try:
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
    finally:  # after a second signal too
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _is_trained(run: Path) -> bool:
    try:
        return read_facts(run, STATUS).get("state") in ENDED
    except DataError:
        return False


def seconds_to_scores(training: Training) -> str:
    """When its validations first reached each of `SCORES`, and the best of them."""
    records = list(read_metrics(training.run / "metrics.jsonl"))
    if not records:
        return "not trained"
    scored = [
        (record.number("bleu"), record.number("elapsed_s"), record.step)
        for record in records
        if record.kind == "validation"
    ]
    if not scored:
        return "no validation"
    reached = [
        f"{goal:g} after {min(at for bleu, at, _ in scored if bleu >= goal):.0f} s"
        for goal in SCORES
        if any(bleu >= goal for bleu, _, _ in scored)
    ]
    best, at, step = max(scored)
    return ", ".join([*reached, f"best {best:.2f} after {at:.0f} s, step {step}"])


def report(outcomes: Sequence[Outcome], trained: Sequence[Training]) -> str:
    """The session in Markdown: the tasks, the time to each score, and the tables of the benches."""
    lines = ["| task | outcome | seconds | last line |", "| --- | --- | --- | --- |"]
    lines += [
        f"| {each.name} | {each.state} | {each.seconds:.0f} | {each.last_line[:100].replace('|', '/')} |"
        for each in outcomes
    ]
    lines += ["", "| training | validation BLEU, greedy |", "| --- | --- |"]
    lines += [f"| {each.config.stem} | {seconds_to_scores(each)} |" for each in trained]
    for each in outcomes:
        if each.tables:
            lines += ["", f"{each.name}:", "", each.tables]
    return "\n".join(lines)


def _stop(number: int, frame: FrameType | None) -> Never:
    raise SystemExit(128 + number)


@exit_codes
def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/gpu", description=__doc__)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--quick", action="store_true", help="the sample corpus and few updates")
    parser.add_argument("--minutes", type=float, default=9.0, help="begin and run nothing after this time")
    parser.add_argument(
        "--out", type=Path, help="logs, runs and the table (default: runs/gpu, with -cpu and -quick)"
    )
    args = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _stop)
    out = args.out or Path(f"runs/gpu{'-cpu' * (args.device == 'cpu')}{'-quick' * args.quick}")
    outcomes = run_session(out, args.device, minutes=args.minutes, is_quick=args.quick)
    print(report(outcomes, trainings(out, is_quick=args.quick)))
    sys.exit(0 if all(each.state == "passed" for each in outcomes) else 1)


if __name__ == "__main__":
    main()
