"""Train variants of one config with several seeds each, and compare them on the validation split.

Everything goes through the real commands, so a sweep can be stopped at any moment: called again, it
continues with the runs that are not finished. The sweep is a TOML file: `config`, `seeds`, and
tables `[all]` and `[variants.NAME]` of config keys. The first variant is what the others are
compared with.
"""

import argparse
import json
import re
import signal
import statistics
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import tomli_w

from mt_cli.config.load import load_config
from mt_cli.errors import MtCliError, UsageError
from mt_cli.machine.limits import usable_cores

NOTICEABLE = 0.6
"""BLEU: what seeds alone make; a smaller difference is none, unless the paired test says otherwise."""
T_975 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""Student's t, two-sided 95 %, for 1, 2, ... degrees of freedom; the last serves for more
(cautious).
"""
OVER, DIVERGED = ("finished", "early_stop", "diverged"), 4
"""States of a training that is not continued, and the exit code of one whose loss is no number."""


@dataclass(frozen=True)
class Job:
    """One variant with one seed, and where it lies."""

    variant: str
    seed: int
    config: Path
    data: Path
    """Its prepared data, which variants of the same data and tokenizer share."""
    run: Path

    @property
    def status(self) -> dict[str, Any]:
        """What status.json says."""
        path = self.run / "status.json"
        return dict(json.loads(path.read_bytes())) if path.exists() else {"state": "new", "step": 0}


@dataclass(frozen=True)
class Result:
    """A finished training: scores of its best checkpoint on the validation split."""

    variant: str
    seed: int
    bleu: float
    """Searched as the config says."""
    nll: float
    """Per target token."""
    beam_bleu: float | None
    seconds: float


def lay_out(sweep: Path, out: Path) -> tuple[list[Job], dict[Path, Path]]:
    """The trainings, every variant before the next seed; and the config to prepare each data folder
    by.

    Raises:
        MtCliError: the sweep or a config cannot be used, or a run was trained with another config.
    """
    try:
        file = tomllib.loads(sweep.read_text(encoding="utf-8-sig"))
        base, variants, seeds = Path(file["config"]), file["variants"], file.get("seeds", [1])
        before = tomllib.loads(base.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, KeyError) as error:
        raise UsageError(f"{sweep}: cannot be used: {error}") from error
    is_shaped = (
        isinstance(seeds, list)
        and all(type(seed) is int for seed in seeds)
        and isinstance(variants, dict)
        and all(isinstance(changes, dict) for changes in variants.values())
    )
    if not is_shaped:
        raise UsageError(
            f"{sweep}: seeds is a list of whole numbers, and each variant a table [variants.NAME]"
        )
    bad = [name for name in variants if not re.fullmatch(r"[\w-]+", name)]
    unknown = [*(file.keys() - {"config", "seeds", "all", "variants"}), *bad]
    if unknown or not variants or len(set(seeds)) != len(seeds):
        raise UsageError(
            f"{sweep}: needs [variants.NAME] and different seeds; not known: {unknown}"
        )
    made_of = {load_config(base).model_dump_json(include={"data", "tokenizer"}): base}
    places: dict[str, tuple[Path, Path]] = {}
    for name, changes in variants.items():
        path = out / "configs" / f"{out.name}-{name}.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            tomli_w.dumps(_merged(before, file.get("all", {}), changes)), encoding="utf-8"
        )
        key = load_config(path).model_dump_json(include={"data", "tokenizer"})
        places[name] = path, Path("data/prepared") / made_of.setdefault(key, path).stem
    jobs = [
        Job(name, seed, *places[name], out / "runs" / f"{name}-{seed}")
        for seed, name in product(seeds, variants)
    ]
    for job in jobs:
        _check_is_of(job)
    prepared_by = {Path("data/prepared") / path.stem: path for path in made_of.values()}
    return jobs, {data: prepared_by[data] for data in dict.fromkeys(job.data for job in jobs)}


def _merged(base: Mapping[str, Any], *changes: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with every one of `changes` laid over it, key by key."""
    result = dict(base)
    for change in changes:
        for section, keys in change.items():
            is_table = isinstance(keys, dict) and isinstance(result.get(section, {}), dict)
            result[section] = {**result.get(section, {}), **keys} if is_table else keys
    return result


def _check_is_of(job: Job) -> None:
    """Make sure that a run that is there already was trained with the same config."""
    path = job.run / "config.toml"
    if path.exists():
        old, new = (
            load_config(each).model_dump(exclude={"runtime"}) for each in (path, job.config)
        )
        if changed := [section for section in new if old[section] != new[section]]:
            raise UsageError(
                f"{job.run}: trained with another [{changed[0]}]; remove it, or rename the variant"
            )


class Commands:
    """`mt-cli` commands that run side by side, and all end when one fails or a signal comes."""

    def __init__(self) -> None:
        self._running: list[subprocess.Popen[bytes]] = []
        self.exit_code = 0
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda received, _: self.end(128 + received))

    def run(self, *args: object, allowed: Sequence[int] = (0,)) -> bytes:
        """stdout of `mt-cli` with `args`; nothing is begun after the end."""
        if self.exit_code:
            return b""
        command = [sys.executable, "-m", "mt_cli", *map(str, args)]
        # In a session of its own, so that a signal of the terminal reaches it once, from here.
        with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
            self._running.append(process)
            if self.exit_code:  # in the meantime
                process.terminate()
            out = process.communicate()[0]
            self._running.remove(process)
        if process.returncode not in allowed:
            self.end(process.returncode)
        return out

    def end(self, code: int) -> None:
        """Begin no more, and let what runs save its state and end."""
        self.exit_code = self.exit_code or code
        for process in list(self._running):
            process.terminate()


def train(job: Job, commands: Commands, side_by_side: int) -> None:
    """Train until the end, continuing where an earlier call stopped."""
    if job.status["state"] not in OVER:
        args = ["train", job.config, "--run", job.run, "--data", job.data, "--seed", job.seed]
        args += ["--quiet", "--auto-resume"]
        args += ["--threads", max(1, usable_cores() // side_by_side)] if side_by_side > 1 else []
        commands.run(*args, allowed=(0, DIVERGED))
        print(f"{job.run}: {job.status['state']}", file=sys.stderr)


def result_of(job: Job, commands: Commands, beam: Sequence[object]) -> Result | None:
    """What a finished training scored, searched with the flags `beam` too; none of one that is not."""
    status = job.status
    if status["state"] not in OVER or status["state"] == "diverged":
        return None
    lines = map(json.loads, (job.run / "metrics.jsonl").read_text().splitlines())
    *_, best = [line for line in lines if line["kind"] == "validation" and line["is_best"]]
    beam_bleu = None
    if beam:
        args = ["evaluate", job.run, "--data", job.data, "--split", "val", "--json", "--quiet"]
        answer = commands.run(*args, *beam)
        beam_bleu = json.loads(answer)["splits"]["val"]["bleu"]["score"] if answer else None
    return Result(job.variant, job.seed, best["bleu"], best["nll"], beam_bleu, status["elapsed_s"])


def table(variants: Sequence[str], results: Sequence[Result]) -> str:
    """Markdown: a row for each of `variants` that has results, compared with the first.

    A difference is the mean over the seeds that both have.
    """
    first = {each.seed: each.bleu for each in results if each.variant == variants[0]}
    rows = [
        ["variant", "seeds", "nll", "BLEU", "beam", "difference", "verdict", "seconds"],
        ["---"] * 8,
    ]
    for name in variants:
        own = [each for each in results if each.variant == name]
        if not own:
            continue
        differences = [each.bleu - first[each.seed] for each in own if each.seed in first]
        is_compared = name != variants[0] and differences
        beams = [each.beam_bleu for each in own if each.beam_bleu is not None]
        rows.append(
            [
                name,
                str(len(own)),
                f"{statistics.mean(each.nll for each in own):.3f}",
                spread([each.bleu for each in own]),
                spread(beams) if beams else "–",
                f"{statistics.mean(differences):+.2f}" if is_compared else "",
                verdict(differences) if is_compared else "",
                f"{statistics.mean(each.seconds for each in own):.0f}",
            ]
        )
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def spread(scores: Sequence[float]) -> str:
    """Mean and, of several, standard deviation."""
    deviation = f" ± {statistics.stdev(scores):.2f}" if len(scores) > 1 else ""
    return f"{statistics.mean(scores):.2f}{deviation}"


def verdict(differences: Sequence[float]) -> str:
    """What paired `differences` of BLEU, one for each seed, allow to be said.

    Of several, a t test decides; a single one is exploratory, and none below what seeds alone make.
    """
    n, mean = len(differences), statistics.mean(differences)
    t = T_975[min(n - 1, len(T_975)) - 1] if n > 1 else 0.0
    least = t * statistics.stdev(differences) / n**0.5 if n > 1 else NOTICEABLE
    if abs(mean) <= least:
        return "none"
    return ("better" if mean > 0 else "worse") + (" (one seed)" if n == 1 else "")


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/sweep", description=__doc__)
    parser.add_argument("sweep", type=Path, help="TOML file")
    parser.add_argument(
        "--out", type=Path, help="folder of the runs and the table; runs/<name of the file>"
    )
    parser.add_argument(
        "--from", dest="source", type=Path, help="folder that holds the corpus files already"
    )
    parser.add_argument(
        "--jobs", type=int, default=1, help="trainings side by side, which share the cores"
    )
    parser.add_argument("--beam-size", type=int, help="search the validation split with a beam too")
    parser.add_argument("--length-penalty", type=float, default=1.0, help="of that beam")
    args = parser.parse_args()
    out = args.out or Path("runs") / args.sweep.stem
    try:
        jobs, prepared = lay_out(args.sweep, out)
    except MtCliError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    commands = Commands()
    for data, config in prepared.items():
        print(f"{data}: from {config}", file=sys.stderr)
        commands.run("prepare", config, *(["--from", args.source] if args.source else []))
    with ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(lambda job: train(job, commands, args.jobs), jobs))
    beam = ["--beam-size", args.beam_size, "--length-penalty", args.length_penalty]
    results = {job: result_of(job, commands, beam if args.beam_size else []) for job in jobs}
    if commands.exit_code:
        sys.exit(commands.exit_code)
    text = table(
        list(dict.fromkeys(job.variant for job in jobs)),
        [each for each in results.values() if each],
    )
    for job in (job for job, result in results.items() if result is None):
        text += f"\n\n{job.variant}, seed {job.seed}: {job.status['state']} at update {job.status['step']}"
    (out / "table.md").write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
