"""Commands that write folders: what each begins with, what it makes, and what must hold if it is cut short.

Knows commands and folders, not what goes wrong.
"""

import functools
import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from faults.case import Case, Site, expect, expect_code, tree_of
from faults.training_facts import differences, facts_of
from faults.workspace import CAN_EXPORT, EVALUATE, EXPORT, PREPARE, TRAIN

RUN, DATA, EXPORTED = "runs/tiny", "data/prepared/tiny", "exported/tiny"
SEED = ("--seed", "7")
"""Tells a new run from the old one."""
NEW_RESUMED = (*TRAIN, *SEED, "--resume")
SPEED = re.compile(rb"\d+ sentences/s")
Before = Callable[[], None]


@dataclass(frozen=True)
class Target:
    """A command, and what is known of it when nothing goes wrong."""

    name: str
    command: tuple[str, ...]
    start: Path
    """What its folder begins with."""
    place: str
    """The folder that it makes or replaces."""
    again: tuple[str, ...]
    """The next command of the kind, where it did not end."""
    before: Before | None = None
    """Done in the command's process before it."""
    calls: int = 0
    """Calls that change files."""
    end: Path = Path()
    """How its folder looks after it."""

    def follow_up(self, case: Case) -> None:
        """Make sure that all is as it was or as it should be, and that the next command makes it so.

        Raises:
            BrokenPromiseError: something is not.
        """
        _let_time_pass(case)
        if self.place == RUN and self.command != EVALUATE:
            _follow_up_training(self, case)
        elif self.place == RUN:
            _follow_up_evaluation(self, case)
        else:
            _follow_up_folder(self, case)
        left = set(tree_of(case.folder)) - set(tree_of(self.end))
        expect(not left, f"leftovers: {', '.join(sorted(left))}")


@functools.cache
def measured_targets(site: Site) -> list[Target]:
    """All targets, or some if the site is quick, each run once without a fault."""
    measured = []
    for target in _quick_targets(site) if site.is_quick else _targets(site):
        with site.case(target.name, start=target.start) as case:
            ended = case.succeed(*target.command, before=target.before)
            end = site.scratch / "ends" / target.name
            shutil.copytree(case.folder, end)
            measured.append(replace(target, calls=ended.seen.calls, end=end))
    return measured


def _quick_targets(site: Site) -> Iterator[Target]:
    yield Target("train --overwrite", (*TRAIN, *SEED, "--overwrite"), site.template, RUN, NEW_RESUMED)
    yield Target("evaluate", EVALUATE, site.template, RUN, EVALUATE)


def _targets(site: Site) -> Iterator[Target]:
    template = site.template
    resume, overwrite = (*TRAIN, "--resume"), (*TRAIN, *SEED, "--overwrite")
    without_run = _start(site, "without run", lambda case: shutil.rmtree(case.folder / RUN))
    yield Target("train", TRAIN, without_run, RUN, resume)
    stopped = _start(site, "stopped", lambda case: _cut_short(case, stops_at(6)), start=without_run)
    yield Target("train --resume", resume, stopped, RUN, resume)
    torn = _start(site, "torn", lambda case: _cut_short(case, dies_between_pointers), start=without_run)
    yield Target("train --resume, best saved again", resume, torn, RUN, resume)
    yield Target("train --overwrite", overwrite, template, RUN, NEW_RESUMED)
    without_data = _start(site, "without data", lambda case: shutil.rmtree(case.folder / DATA))
    yield Target("prepare", PREPARE, without_data, DATA, PREPARE)
    other_data = _start(site, "other data", _change_data)
    yield Target("prepare --force", (*PREPARE, "--force"), other_data, DATA, PREPARE)
    without_scores = _start(site, "no scores", lambda case: shutil.rmtree(case.folder / RUN / "eval"))
    yield Target("evaluate", EVALUATE, without_scores, RUN, EVALUATE)
    short = (*TRAIN, "--max-steps", "5")
    yield Target("short training", short, without_run, RUN, (*short, "--resume"))
    if CAN_EXPORT:
        without_export = _start(site, "no export", lambda case: shutil.rmtree(case.folder / "exported"))
        new_export = (*EXPORT, "--overwrite", "--quantization", "int8")
        yield Target("export", EXPORT, without_export, EXPORTED, (*EXPORT, "--overwrite"))
        yield Target("export --overwrite", new_export, template, EXPORTED, new_export)
    # Where a file system cannot exchange two names, there are two renames instead.
    name = "train --overwrite, without exchange"
    yield Target(name, overwrite, template, RUN, NEW_RESUMED, without_exchange)
    name = "prepare --force, without exchange"
    yield Target(name, (*PREPARE, "--force"), other_data, DATA, PREPARE, without_exchange)


def _start(site: Site, name: str, change: Callable[[Case], object], *, start: Path | None = None) -> Path:
    """A folder to begin with: `start` or the template, changed."""
    place = site.scratch / "starts" / name
    with site.case(name, start=start) as case:
        change(case)
        shutil.copytree(case.folder, place)
    return place


def _change_data(case: Case) -> None:
    """Let the config ask for other data than are there."""
    path = case.folder / "tiny.toml"
    path.write_text(path.read_text().replace("min_freq = 1", "min_freq = 2"))


def _cut_short(case: Case, how: Before) -> None:
    expect(case.call(*TRAIN, before=how).code != 0, "training was to be cut short and was not")


def without_exchange() -> None:
    """Let folders be replaced by two renames, in this process."""
    from mt_cli.artefacts import folders

    folders.exchange = lambda one, other: False  # type: ignore[attr-defined]


def stops_at(step: int, *, number: int = signal.SIGTERM) -> Before:
    """Let this process receive signal `number` once update `step` is made."""

    def change() -> None:
        from mt_cli.training.trainer import StepReport, Trainer

        real = Trainer.run

        def run(self: Trainer) -> Iterator[StepReport]:
            for report in real(self):
                if report.step == step:
                    signal.raise_signal(number)
                yield report

        Trainer.run = run  # type: ignore[method-assign]

    return change


def dies_between_pointers() -> None:
    """Let this process be killed at its first checkpoint, when it is the best but not yet the last."""
    from mt_cli.artefacts.run import Run

    real = Run.point

    def point(self: Run, name: str, *, step: int) -> None:
        if name == "last":
            signal.raise_signal(signal.SIGKILL)
        real(self, name, step=step)

    Run.point = point  # type: ignore[method-assign]


# What must hold


def _let_time_pass(case: Case) -> None:
    """Let unfinished folders be old: of one that is empty and new, the maker may be about to lock it."""
    for partial in case.folder.rglob(".*.partial"):
        os.utime(partial, (0, 0), follow_symlinks=False)


def _follow_up_training(target: Target, case: Case) -> None:
    run, old = case.folder / RUN, target.start / RUN
    inspected = case.call("inspect", RUN)
    is_there = run.exists()
    expect(is_there or not old.exists(), "the old run is gone, and no new one in its place")
    expect_code(inspected, 0 if is_there else 2)
    is_new = is_there and not (
        old.exists() and (old / "config.toml").read_bytes() == (run / "config.toml").read_bytes()
    )
    has_best, has_last = (run / "best.txt").exists(), (run / "last.txt").exists()
    has_checkpoint = any(run.glob("checkpoints/step-*"))
    again = target.again
    if "--overwrite" in target.command and not is_new:
        expect(tree_of(run) == tree_of(old), "the old run is not whole")
        again = target.command
    elif is_there:
        expect_code(case.call("translate", RUN, "--text", "Ein Hund."), 0 if has_best else 2)
        expect(not has_last or has_best, "there is a last checkpoint and no best one")
    else:
        again = target.command
    went_on = case.succeed(*again)
    if has_checkpoint and "--resume" in again:
        expect("resumed after update" in went_on.err, "it began anew, though there was a checkpoint")
    unlike = differences(facts_of(run), facts_of(target.end / RUN))
    expect(not unlike, f"not what an uninterrupted run gives: {', '.join(unlike)}")


def _follow_up_evaluation(target: Target, case: Case) -> None:
    run, old = case.folder / RUN, tree_of(target.start / RUN)
    changed = {
        name
        for name, content in tree_of(run).items()
        if old.get(name) != content
        and not name.startswith("eval")
        and name != "README.md"
        and not _is_partial(name)
    }
    expect(not changed, f"evaluating has changed {', '.join(sorted(changed))}")
    case.succeed("inspect", RUN)
    case.succeed(*target.again)
    hyps = "eval/test-greedy/hyp.txt"
    expect((run / hyps).read_bytes() == (target.end / RUN / hyps).read_bytes(), "other translations")


def _follow_up_folder(target: Target, case: Case) -> None:
    folder, old, new = case.folder / target.place, target.start / target.place, target.end / target.place
    if target.place == DATA:
        used = case.call(*TRAIN, "--run", "runs/used", "--max-steps", "1")
        shutil.rmtree(case.folder / "runs" / "used", ignore_errors=True)
        expect_code(used, 0, 3)
    else:
        used = case.call("translate", EXPORTED, "--text", "Ein Hund.")
        expect_code(used, 0 if folder.exists() else 2)
    whole = [_lasting(new), _lasting(old) if old.exists() else None]
    is_whole = (_lasting(folder) if folder.exists() else None) in whole
    expect(is_whole, f"{target.place} is neither the old one nor the new one")
    case.succeed(*target.again)
    unlike = {name for name, _ in _lasting(folder).items() ^ _lasting(new).items()}
    expect(not unlike, f"not what an uninterrupted command makes: {', '.join(sorted(unlike))}")


def _lasting(folder: Path) -> dict[str, object]:
    """What lies below `folder`, without the speed that an export's page tells."""
    tree = tree_of(folder)
    page = tree.get("README.md")
    return {**tree, "README.md": SPEED.sub(b"", page)} if isinstance(page, bytes) else tree


def _is_partial(name: str) -> bool:
    return name.endswith(".partial")
