"""Resumes: a training is stopped in every way there is, at any update, and goes on as if it had not been."""

import functools
import random
import signal
from collections.abc import Callable, Iterator, Sequence

from faults.case import Case, Site, clipped, expect, expect_code
from faults.targets import stops_at
from faults.training_facts import differences, facts_of
from faults.trial import Fault
from faults.workspace import FIRST_VALIDATION, TRAIN, UPDATES

FAMILY = "resumes"
RESUMES, QUICK_RESUMES = 36, 2
SETTINGS: Sequence[Sequence[str]] = (
    (),
    ("training.accumulation=2", "training.max_epochs=6"),
    ("training.r_drop=1.0",),
    ('training.optimizer="adam"', "training.clip_norm=0.1"),
    ('training.best_by="loss"', "model.dropout=0.3"),
    ('model.backend="torch"',),
)
"""What trainings differ in, one after the other."""
ALSO = {
    "fewer updates": (
        "training.max_epochs=9",
        'training.schedule="constant"',
        "training.warmup_steps=2",
        "training.log_every=2",
        "training.validate_every=6",
    )
}
"""Settings that a kind of stop needs: here, a schedule that does not depend on the number of updates."""
Stop = Callable[[Case, Sequence[str], int], None]


def resumes(site: Site) -> Iterator[Fault]:
    """Stops of every kind, each at one or two random updates."""
    draw = random.Random(site.seed)
    for number in range(QUICK_RESUMES if site.is_quick else RESUMES):
        kind = list(STOPS)[number % len(STOPS)]
        settings = SETTINGS[number // len(STOPS) % len(SETTINGS)]
        steps = sorted(draw.sample(range(1, UPDATES), draw.choice((1, 2))))
        name = (
            f"{kind} after update {' and '.join(map(str, steps))}{''.join(f', {each}' for each in settings)}"
        )
        yield Fault(
            promise=2,
            family=FAMILY,
            name=name,
            work=functools.partial(_resume, kind, steps, settings),
        )


def _resume(kind: str, steps: Sequence[int], settings: Sequence[str], case: Case) -> None:
    """Train in pieces and at once, and compare."""
    flags = [word for each in (*settings, *ALSO.get(kind, ())) for word in ("--set", each)]
    case.succeed(*TRAIN, *flags, "--run", "runs/whole")
    resuming: list[str] = []
    for step in steps:
        STOPS[kind](case, [*flags, "--run", "runs/pieces", *resuming], step)
        resuming = ["--resume"]
    case.succeed(*TRAIN, *flags, "--run", "runs/pieces", "--resume")
    runs = case.folder / "runs"
    unlike = differences(facts_of(runs / "pieces"), facts_of(runs / "whole"))
    expect(not unlike, f"not what an uninterrupted run gives: {', '.join(unlike)}")


def _by_signal(case: Case, flags: Sequence[str], step: int, *, number: int) -> None:
    ended = case.call(*TRAIN, *flags, before=stops_at(step, number=number))
    expected = -number if number == signal.SIGKILL else 128 + number
    expect_code(ended, expected)


def _by_time_limit(case: Case, flags: Sequence[str], step: int) -> None:
    """Let the limit be reached after an update; before the first validation it would bring one about."""
    at = max(step, FIRST_VALIDATION)

    def change() -> None:
        from mt_cli.stages.train.session import Session

        real = Session._limit_left_s
        Session._limit_left_s = lambda self: -1.0 if self._trainer.progress.step >= at else real(self)  # type: ignore[method-assign]

    ended = case.succeed(*TRAIN, *flags, "--time-limit", "1h", before=change)
    expect("time_limit" in ended.err, f"the time limit was not reached: {clipped(ended.err)}")


def _by_fewer_steps(case: Case, flags: Sequence[str], step: int) -> None:
    """Ask for fewer updates, as many as end with a validation and a log line anyway."""
    case.succeed(*TRAIN, *flags, "--max-steps", UPDATES if step % 2 else UPDATES // 2 * 3)


STOPS: dict[str, Stop] = {
    "SIGTERM": functools.partial(_by_signal, number=signal.SIGTERM),
    "kill -9": functools.partial(_by_signal, number=signal.SIGKILL),
    "a time limit": _by_time_limit,
    "Ctrl-C": functools.partial(_by_signal, number=signal.SIGINT),
    "fewer updates": _by_fewer_steps,
    "a lost terminal": functools.partial(_by_signal, number=signal.SIGHUP),
}
