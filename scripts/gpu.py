"""Everything that wants a GPU, in one call: tests, trainings, benches, and one table.

Called again with the same --out, it continues: what has passed is not repeated, trainings are
resumed.
"""

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Never

SAVING_S = 30
"""What a training is left to validate and to save, once its time is over."""
GRACE_S = 20
"""What a command is given to save its state before it is killed."""
READY_MODEL = Path("data/models/de-en")
ENDED = ("finished", "early_stop")
DESCRIBE = """
import subprocess, sys, torch
from mt_cli.machine.device import choose_runtime
if sys.argv[1] == "cuda":
    subprocess.run("nvidia-smi", shell=True)
    print(torch.cuda.get_arch_list(), flush=True)
runtime = choose_runtime(device=sys.argv[1])
(torch.ones(2, 2, device=runtime.device) @ torch.ones(2, 2, device=runtime.device)).sum().item()
name = torch.cuda.get_device_name() if sys.argv[1] == "cuda" else "a CPU"
print(f"PyTorch {torch.__version__} computes in {runtime.precision} on {name}")
"""
MEMORY = ("nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits")
MEMORY_EVERY_S = 2.0


@dataclass(frozen=True)
class Task:
    """One command."""

    name: str
    command: tuple[str, ...]
    limit_s: float = math.inf
    """It is told to end after so many seconds, or when the session's time is over."""
    needs: Path = Path()
    """Without it, the task is left out."""
    is_required: bool = False
    """If it fails, nothing else is begun."""
    run: Path | None = None
    """The run folder of a training. It has all the time that is left, and is over when its status
    says so.
    """


@dataclass(frozen=True)
class Outcome:
    """How a task ended."""

    state: str
    """passed, failed, out of time, or left out."""
    seconds: float
    last_line: str
    tables: str = ""
    """What it printed as Markdown tables."""
    memory_mib: int = 0
    """The most that was in use on the GPU; 0 where nothing tells."""


def plan(out: Path, device: str, *, is_quick: bool) -> Iterator[Task]:
    """All tasks, the most important first, should time run out."""
    yield Task("device", (sys.executable, "-c", DESCRIBE, device), 60, is_required=True)
    # Warnings of the versions that a GPU machine happens to have are no failures.
    options = ("-m", "gpu", "--gpu-device", device, "-rs", "-W", "default", "tests/test_gpu.py")
    yield Task("tests", (sys.executable, "-m", "pytest", *options), 240)
    first, *others = ["sample"] if is_quick else ["speedrun", "multi30k-strong"]
    yield from _train_and_evaluate(first, out, device, is_quick=is_quick)
    run = out / "runs" / first
    data = Path("data/prepared") / first
    rounds = ["--rounds", "2"]
    updates = ["--rounds", "3", "--updates", "70"]
    if is_quick:
        rounds = ["--rounds", "1", "--split", "test", "--lines", "20"]
        updates = ["--rounds", "1", "--updates", "3"]
    decode = _bench("decode", str(run), "--device", device, *rounds)
    yield Task("bench decode", decode, 420, needs=run / "best.txt")
    train = _bench("train", f"configs/{first}.toml", "--device", device, *updates)
    yield Task("bench train", train, 300, needs=data)
    for name in others:
        yield from _train_and_evaluate(name, out, device, is_quick=is_quick)


def _train_and_evaluate(name: str, out: Path, device: str, *, is_quick: bool) -> Iterator[Task]:
    run = out / "runs" / name
    command = ["train", f"configs/{name}.toml", "--run", str(run)]
    command += ["--device", device, "--auto-resume"]
    if is_quick:
        command += ["--max-steps", "80"]
    yield Task(f"train {name}", _mt_cli(*command), needs=Path("data/prepared") / name, run=run)
    evaluate = _mt_cli("evaluate", str(run), "--device", device)
    beam = ("--beam-size", "5", "--length-penalty", "1.4")
    yield Task(f"evaluate {name}, greedy", evaluate, 90, needs=run / "best.txt")
    yield Task(f"evaluate {name}, beam 5", (*evaluate, *beam), 90, needs=run / "best.txt")


def _mt_cli(*args: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "mt_cli", *args)


def _bench(*args: str) -> tuple[str, ...]:
    return (sys.executable, str(Path(__file__).with_name("bench.py")), *args)


def run_session(tasks: list[Task], out: Path, *, minutes: float) -> dict[str, Outcome]:
    """Run the tasks that have not passed; outcomes and the table are kept in `out` as they come."""
    out.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + 60 * minutes
    kept = out / "tasks.json"
    outcomes: dict[str, Outcome] = {}
    for name, each in _json(kept).items():
        outcomes[name] = Outcome(**each)
    for task in tasks:
        before = outcomes.get(task.name)
        if before is None or before.state != "passed":
            outcome = run_task(task, out / "log.txt", deadline)
            if task.run and outcome.state != "left out":
                # What was measured of the model before it was trained further has to be measured
                # again.
                for other in tasks:
                    if other.needs.is_relative_to(task.run):
                        outcomes.pop(other.name, None)
            if before is None or outcome.state != "left out":
                outcomes[task.name] = outcome
            content = {name: asdict(each) for name, each in outcomes.items()}
            kept.write_text(json.dumps(content, indent=2))
        (out / "table.md").write_text(f"{report(tasks, outcomes)}\n", encoding="utf-8")
        if task.is_required and outcomes[task.name].state != "passed":
            break
    return outcomes


def run_task(task: Task, log: Path, deadline: float) -> Outcome:
    """Run one task until it ends or its time is over."""
    seconds = min(task.limit_s, deadline - time.monotonic())
    if not task.needs.exists():
        return Outcome("left out", 0.0, f"{task.needs} is missing")
    if seconds <= (SAVING_S if task.run else 0):
        return Outcome("left out", 0.0, "too little time is left")
    command = list(task.command)
    if task.run:
        command += ["--time-limit", f"{math.ceil(seconds - SAVING_S)}s"]
    started_at = time.monotonic()
    print(f"{task.name} …", file=sys.stderr)
    with log.open("ab") as file:
        file.write(f"\n$ {' '.join(command)}\n".encode())
        file.flush()
        start = file.tell()
        # In a session of its own: what it has started can be ended with it, and no signal reaches
        # it twice.
        process = subprocess.Popen(
            command, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
    memory_mib = 0
    try:
        while process.poll() is None and time.monotonic() < started_at + seconds:
            memory_mib = max(memory_mib, used_memory_mib())
            with suppress(subprocess.TimeoutExpired):
                left_s = started_at + seconds - time.monotonic()
                process.wait(max(0.0, min(MEMORY_EVERY_S, left_s)))
        is_late = process.poll() is None
    finally:  # after a signal too
        _end(process)
    has_more = task.run and _json(task.run / "status.json").get("state") not in ENDED
    if is_late:
        state = "out of time"
    elif process.returncode:
        state = "failed"
    else:
        state = "out of time" if has_more else "passed"
    lines = log.read_bytes()[start:].decode(errors="replace").splitlines()
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    elapsed_s = time.monotonic() - started_at
    print(f"{task.name}: {state} after {elapsed_s:.0f} s: {last}", file=sys.stderr)
    tables = "\n".join(line for line in lines if line.startswith("|"))
    return Outcome(state, round(elapsed_s, 1), last, tables, memory_mib)


def used_memory_mib() -> int:
    """Memory that is in use on the first GPU; 0 where nothing tells."""
    with suppress(OSError, ValueError, subprocess.TimeoutExpired):
        told = subprocess.run(MEMORY, capture_output=True, text=True, timeout=5, check=False).stdout
        return int(told.splitlines()[0]) if told else 0
    return 0


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Tell `process` to save what it has; then end it, and all that it has started."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(GRACE_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def report(tasks: list[Task], outcomes: Mapping[str, Outcome]) -> str:
    """The session in Markdown: the tasks, and the tables of the benches."""
    done = {task.name: outcomes[task.name] for task in tasks if task.name in outcomes}
    lines = ["| task | outcome | seconds | MiB | last line |", "| --- | --- | --- | --- | --- |"]
    for name, each in done.items():
        last = each.last_line[:100].replace("|", "/")
        memory = each.memory_mib or "–"
        lines.append(f"| {name} | {each.state} | {each.seconds:.0f} | {memory} | {last} |")
    for name, each in done.items():
        lines += ["", f"{name}:", "", each.tables] if each.tables else []
    return "\n".join(lines)


def _json(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_bytes())) if path.exists() else {}


def _stop(number: int, frame: FrameType | None) -> Never:
    raise SystemExit(128 + number)


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/gpu", description=__doc__)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--quick", action="store_true", help="the sample corpus and few updates")
    parser.add_argument(
        "--minutes", type=float, default=9.0, help="begin and run nothing after this time"
    )
    parser.add_argument("--out", type=Path, help="runs, log and table (default: runs/gpu-DEVICE)")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGHUP, _stop)
    # Outcomes of one device or corpus must not pass for those of another.
    name = f"gpu-{args.device}-quick" if args.quick else f"gpu-{args.device}"
    out = args.out or Path("runs", name)
    tasks = list(plan(out, args.device, is_quick=args.quick))
    outcomes = run_session(tasks, out, minutes=args.minutes)
    print(report(tasks, outcomes))
    # What could not run for lack of data or time is in the table, and is no failure.
    states = [outcomes[task.name].state for task in tasks if task.name in outcomes]
    sys.exit("failed" in states or "out of time" in states)


if __name__ == "__main__":
    main()
