"""The memory of a process and of all that descend from it, while they run. Linux only."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

KIB, MB = 1 << 10, 10**6
LOOKS_PER_S = 10


@dataclass
class Memory:
    """The most that was seen at one time, in MB; what several processes share counts once."""

    own: float = 0.0
    """What the processes hold for themselves."""
    mapped: float = 0.0
    """What they have looked at of files, which the system can take back at any time."""
    whole: float = 0.0
    """Both together."""


@contextmanager
def watched(pid: int) -> Iterator[Memory]:
    """The most memory of process `pid` and its descendants, for as long as the block lasts."""
    memory, is_over = Memory(), threading.Event()

    def look() -> None:
        while not is_over.wait(1 / LOOKS_PER_S):
            seen = [sizes_of(each) for each in family(pid)]
            memory.own = max(memory.own, sum(each.get("Pss_Anon", 0.0) for each in seen))
            memory.mapped = max(memory.mapped, sum(each.get("Pss_File", 0.0) for each in seen))
            memory.whole = max(memory.whole, sum(each.get("Pss", 0.0) for each in seen))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield memory
    finally:
        is_over.set()
        thread.join()


def family(pid: int) -> Iterator[int]:
    """`pid` and all that descend from it."""
    yield pid
    try:
        children = [
            child
            for path in Path(f"/proc/{pid}/task").glob("*/children")
            for child in path.read_text().split()
        ]
    except OSError:
        return
    for child in children:
        yield from family(int(child))


def sizes_of(pid: int) -> dict[str, float]:
    """The sizes in /proc/PID/smaps_rollup, in MB; none of a process that has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return {}
    fields = (line.split() for line in lines)
    return {name.rstrip(":"): int(rest[0]) * KIB / MB for name, *rest in fields if rest[1:] == ["kB"]}
