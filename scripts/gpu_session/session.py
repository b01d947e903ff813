"""Run the steps of the plan that have not succeeded yet, within a time, and print one table.

Called again with the same --out, it goes on: what has succeeded is not repeated, trainings are resumed.
"""

import argparse
import json
import math
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from gpu_session.plan import SAVING_S, Device, Step, Training, plan, trainings
from mt_cli.artefacts.metrics import read_metrics

SCORES = (38.0, 39.5, 41.0, 42.0, 43.0, 44.0)
"""Validation BLEU whose time is told."""
TABLE = "table.md"
GRACE_S = 20
"""What a command is given to save its state before it is killed."""

State = Literal["passed", "failed", "out of time", "left out"]


@dataclass(frozen=True)
class Outcome:
    """How a step ended."""

    name: str
    state: State
    seconds: float
    last_line: str


def run_session(out: Path, device: Device, *, minutes: float, is_quick: bool) -> list[Outcome]:
    """Run what is left of the plan; outcomes and the table are kept in `out` as they come."""
    out.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + 60 * minutes
    kept = out / "steps.json"
    outcomes = (
        {each["name"]: Outcome(**each) for each in json.loads(kept.read_text())} if kept.exists() else {}
    )
    steps = list(plan(out, device, is_quick=is_quick))
    for step in steps:
        before = outcomes.get(step.name)
        if before is None or before.state != "passed":
            outcome = _run(step, out / "log.txt", deadline)
            if step.run is not None and outcome.state != "left out":
                # What was measured of the model before it was trained further has to be measured again.
                for other in steps:
                    if any(path.is_relative_to(step.run) for path in other.needs):
                        outcomes.pop(other.name, None)
            if before is None or outcome.state != "left out":
                outcomes[step.name] = outcome
            kept.write_text(json.dumps([asdict(each) for each in outcomes.values()], indent=2))
        so_far = [outcomes[each.name] for each in steps if each.name in outcomes]
        text = table(so_far, trainings(out, is_quick=is_quick))
        (out / TABLE).write_text(f"{text}\n", encoding="utf-8")
    return [outcomes[step.name] for step in steps]


def _run(step: Step, log: Path, deadline: float) -> Outcome:
    missing = [path for path in step.needs if not path.exists()]
    if missing:
        return Outcome(step.name, "left out", 0.0, f"{missing[0]} is missing")
    seconds = min(step.limit_s, deadline - time.monotonic())
    if seconds <= step.least_s:
        return Outcome(step.name, "left out", 0.0, "too little time is left")
    command = step.command
    if step.run:
        command += ("--time-limit", f"{math.ceil(seconds - SAVING_S)}s")
    print(f"{step.name} …", file=sys.stderr)
    begin = time.monotonic()
    with log.open("ab") as file:
        file.write(f"\n$ {' '.join(command)}\n".encode())
        file.flush()
        start = file.tell()
        with subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT) as process:
            is_late = _is_late(process, seconds)
    state: State = "passed"
    if is_late or (step.run and not process.returncode and not _is_trained(step.run)):
        state = "out of time"
    elif process.returncode:
        state = "failed"
    lines = log.read_bytes()[start:].decode(errors="replace").splitlines()
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    print(f"{step.name}: {state} after {time.monotonic() - begin:.0f} s: {last}", file=sys.stderr)
    return Outcome(step.name, state, round(time.monotonic() - begin, 1), last)


def _is_late(process: "subprocess.Popen[bytes]", seconds: float) -> bool:
    """Whether `process` had to be told to end."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
        return False
    process.send_signal(signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(GRACE_S)
        return True
    process.kill()
    return True


def _is_trained(run: Path) -> bool:
    return json.loads((run / "status.json").read_text())["state"] in ("finished", "early_stop")


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


def table(outcomes: Sequence[Outcome], trained: Sequence[Training]) -> str:
    """The session in Markdown: the steps, then the time to each score."""
    lines = ["| step | outcome | seconds | last line |", "| --- | --- | --- | --- |"]
    lines += [
        f"| {each.name} | {each.state} | {each.seconds:.0f} | {each.last_line[:100].replace('|', '/')} |"
        for each in outcomes
    ]
    lines += ["", "| training | validation BLEU, greedy |", "| --- | --- |"]
    lines += [f"| {each.config.stem} | {seconds_to_scores(each)} |" for each in trained]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/gpu", description=__doc__)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--quick", action="store_true", help="the sample corpus and few updates")
    parser.add_argument("--minutes", type=float, default=9.0, help="begin and run nothing after this time")
    parser.add_argument("--out", type=Path, default=Path("runs/gpu"), help="logs, runs and the table")
    args = parser.parse_args()
    outcomes = run_session(args.out, args.device, minutes=args.minutes, is_quick=args.quick)
    print(table(outcomes, trainings(args.out, is_quick=args.quick)))
    sys.exit(0 if all(each.state == "passed" for each in outcomes) else 1)


if __name__ == "__main__":
    main()
