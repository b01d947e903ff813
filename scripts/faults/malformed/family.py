"""The family of malformed things: what is put where, which command meets it, and how that has to end.

Knows nothing of any one of them.
"""

from collections.abc import Iterator
from functools import partial
from itertools import chain

from faults.case import Case, Site, clipped, expect
from faults.malformed.configs import malformed_configs
from faults.malformed.exports import malformed_exports
from faults.malformed.impostors import impostors
from faults.malformed.malformation import Malformation
from faults.malformed.prepared import malformed_prepared
from faults.malformed.runs import malformed_runs
from faults.malformed.weights import malformed_weights
from faults.trial import Fault

PROMISE, FAMILY = 4, "malformed"
MOST_CPU_S, MOST_MB = 2.0, 300.0
"""Of a command that refuses: seconds of a processor, and memory over what it begins with."""
TIME_LIMIT_S = 120.0
"""Longer is a hang, on a busy machine too."""
QUICK_STRIDE = 29


def malformed(site: Site) -> Iterator[Fault]:
    """A fault for each malformed thing; some of them where the site is quick."""
    everything = chain(
        impostors(),
        malformed_runs(),
        malformed_weights(),
        malformed_prepared(),
        malformed_exports(has_export=(site.template / "exported").is_dir()),
        malformed_configs(),
    )
    for nth, each in enumerate(everything):
        if not site.is_quick or nth % QUICK_STRIDE == 0:
            yield Fault(PROMISE, FAMILY, each.name, partial(_meet, each=each))


def _meet(case: Case, *, each: Malformation) -> None:
    """Put something malformed into the case's folder, and let its command meet it."""
    each.make(case.folder)
    ended = case.call(*each.command, time_limit_s=TIME_LIMIT_S)
    said = f"exit {ended.code}: {clipped(ended.err)}"
    expect(ended.code in each.codes, f"expected exit {' or '.join(map(str, each.codes))}, found {said}")
    expect(ended.code == 0 or not ended.out, f"something on stdout: {ended.out[:80]!r}")
    for text in (ended.out.decode(), ended.err):
        shown = text.replace("\n", "").replace("\t", "")
        expect(shown.isprintable(), f"control characters in the streams: {shown[-200:]!a}")
    expect(len(ended.err) < 20_000, f"a message of {len(ended.err):,} letters")
    if ended.code == 0:  # what is harmless may be worked with
        return
    expect(ended.cpu_s <= MOST_CPU_S, f"{ended.cpu_s:.1f} s of a processor; {said}")
    expect(ended.peak_mb <= MOST_MB, f"{ended.peak_mb:,.0f} MB; {said}")
