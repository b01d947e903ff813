"""How much memory this process may take: the machine's, or less where a container or `ulimit -v` allows less.

Imports nothing large, because it is asked before anything large is imported.
"""

import os
import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePath

from mt_cli.errors import ResourceError

MIB = 1 << 20
LEAST_ADDRESS_SPACE = 768 * MIB
"""The libraries take up 600 MiB. With less, some of them end the process themselves, without a word."""
CONTROL_GROUPS, OWN_CONTROL_GROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def memory_size() -> int | None:
    """Bytes of memory that the machine has; None where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


def usable_memory() -> int | None:
    """Bytes of memory that this process may take at most; None where the system does not say."""
    limits = (memory_size(), _address_space_limit(), *_container_limits())
    return min((limit for limit in limits if limit is not None), default=None)


def check_address_space() -> None:
    """Make sure that the libraries can be loaded: some end the process where there is no room for them.

    Raises:
        ResourceError: there is too little room.
    """
    limit = _address_space_limit()
    if limit is not None and limit < LEAST_ADDRESS_SPACE:
        raise ResourceError(
            f"out of memory: this process may take up {limit // MIB:,} MiB (ulimit -v), and needs "
            f"{LEAST_ADDRESS_SPACE // MIB:,} MiB at least; raise the limit"
        )


def _address_space_limit() -> int | None:
    """What `ulimit -v` allows."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if limit == resource.RLIM_INFINITY else limit


def _container_limits() -> Iterator[int]:
    """What the control groups allow that this process is in; each is in another, up to the outermost."""
    try:
        lines = OWN_CONTROL_GROUPS.read_text(errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, name = rest.partition(":")
        if not controllers:  # version 2, of which there is one tree
            root, file = CONTROL_GROUPS, "memory.max"
        elif "memory" in controllers.split(","):
            root, file = CONTROL_GROUPS / "memory", "memory.limit_in_bytes"
        else:
            continue
        group = PurePath(name.lstrip("/"))
        for place in (group, *group.parents):
            with suppress(OSError, ValueError):  # the name may be the host's; no limit is `max`
                yield int((root / place / file).read_text())
