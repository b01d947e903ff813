#!/usr/bin/env bash
# Every memory-mapped NumPy array keeps its file open, until it is gone. A good guess: mmap(2) needs no descriptor later.
# numpy 2.4.6, Python 3.11 and 3.12 (3.13's mmap has trackfd=False, which NumPy does not pass). Hurts training over sharded
# corpora: two sides with ids and offsets are four files a shard, so that the usual soft limit of 1,024 ends at shard 255,
# with an error that names a file which is all right. Raising the soft limit in the process (resource.setrlimit) is allowed.
#
# Behaviour: np.memmap closes the file object that it has opened, but Python's mmap has duplicated the descriptor by then.
# Output seen:
#   descriptors before 6, with 20 arrays 26, after they are gone 6
#   at a soft limit of 64: OSError 24 (EMFILE) at array 58
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq --disable-pip-version-check numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import errno
import os
import resource

import numpy as np

np.save("ids.npy", np.arange(1000, dtype=np.uint16))


def descriptors():
    return len(os.listdir("/proc/self/fd"))


before = descriptors()
arrays = [np.load("ids.npy", mmap_mode="r") for _ in range(20)]
within = descriptors()
del arrays
after = descriptors()
print(f"descriptors before {before}, with 20 arrays {within}, after they are gone {after}")
assert within == before + 20, "the files are closed by now"
assert after == before

_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
arrays = []
try:
    while len(arrays) < 100:
        arrays.append(np.load("ids.npy", mmap_mode="r"))
except OSError as error:
    print(f"at a soft limit of 64: OSError {error.errno} ({errno.errorcode[error.errno]}) at array {len(arrays)}")
    assert error.errno == errno.EMFILE
assert len(arrays) < 64, "a limit of 64 descriptors holds more than 64 arrays"
PYTHON
