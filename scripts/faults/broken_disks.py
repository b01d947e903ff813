"""Broken disks: each call that changes files fails, once or from then on, for want of space or of rights."""

import errno
import functools
import random
import re
from collections.abc import Iterator

from faults.case import BrokenPromiseError, Case, Site, clipped, expect, expect_code
from faults.child import Ended
from faults.kills import spread
from faults.plan import Action, Strike
from faults.targets import Target, measured_targets
from faults.trial import Fault

FAMILY = "broken disks"
RESOURCES = 5
"""The exit code of a disk that fails."""
REASONS = {
    errno.ENOSPC: "no space left on the disk",
    errno.EIO: "Input/output error",
    errno.EACCES: "Permission denied",
}
"""What users are told."""
WAYS = (
    (Action.FAIL_ON, errno.ENOSPC, 0),
    (Action.FAIL_ON, errno.EIO, errno.ENOSPC),  # the first error is the one to tell
    (Action.FAIL_ONCE, errno.EACCES, 0),
)
NEEDLESS = ("mkdir", "rmdir", "unlink")
"""Calls that may fail unnoticed: they make folders that are there already, and remove what nobody needs."""
PLACE = re.compile(r"^error: [^ ]*(runs|data|exported)/")
"""A path at the beginning."""
EVERY_CALL = "short training"
"""The command whose every call fails; of the others, some do."""
CALLS_EACH, QUICK_EACH = 8, 2


def broken_disks(site: Site) -> Iterator[Fault]:
    """Every call of a training, and some of each other command, failing in each way."""
    draw = random.Random(site.seed)
    for target in measured_targets(site):
        many = target.calls if target.name == EVERY_CALL else CALLS_EACH
        for at in spread(target.calls, QUICK_EACH if site.is_quick else many, draw):
            for action, error, later in WAYS:
                strike = Strike(action, at, error, later)
                yield Fault(
                    promise=1,
                    family=FAMILY,
                    name=f"{target.name}: {strike}",
                    work=functools.partial(_break, target, strike),
                    start=target.start,
                )


def _break(target: Target, strike: Strike, case: Case) -> None:
    ended = case.call(*target.command, strike=strike, before=target.before)
    try:
        expect(bool(ended.seen.struck), "nothing failed")
        _check_told(ended, strike)
        target.follow_up(case)
    except BrokenPromiseError as error:
        raise BrokenPromiseError(f"{error} (failed: {ended.seen.struck}; ended with {ended.code})") from error


def _check_told(ended: Ended, strike: Strike) -> None:
    """Make sure that the command ended well in spite of it, or says what failed and where.

    Raises:
        BrokenPromiseError: it did not.
    """
    expect_code(ended, 0, RESOURCES)
    if ended.code == RESOURCES:
        *_, last = ended.err.rstrip().splitlines()
        expect(last.startswith("error: "), f"the last line is no error: {clipped(ended.err)}")
        is_needless = ended.seen.struck.startswith(NEEDLESS)
        told = last if not strike.later else ended.err  # of the log, a warning tells
        expect(is_needless or REASONS[strike.error] in told, f"another reason is told: {last}")
        expect(PLACE.search(last) is not None, f"no place is named: {last}")
