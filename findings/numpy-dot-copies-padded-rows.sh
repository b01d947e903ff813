#!/usr/bin/env bash
# numpy.dot copies a matrix whose rows are padded, at every call; `@` does not. A good guess: both hand BLAS the stride.
# numpy 2.4.6 (and 2.0 to 2.2), Python 3.11. Hurts decoders that pad their weights' rows against cache conflicts: a product
# with one row, as in a step of one sentence, takes three times as long, and its result is the same.
#
# Behaviour: a view of 4,096 of 4,112 columns in float32. BLAS has an argument for such a distance between rows; `@` uses
# it, and dot makes the rows contiguous first.
# Output seen (one thread):
#   dot  whole      28.3 microseconds
#   dot  padded     83.1 microseconds
#   @    whole      28.9 microseconds
#   @    padded     29.0 microseconds
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq --disable-pip-version-check numpy==2.4.6
export OPENBLAS_NUM_THREADS=1
"$folder/venv/bin/python" - <<'PYTHON'
import timeit

import numpy as np

rng = np.random.default_rng(1)
x = rng.random((1, 128), dtype=np.float32)
padded = rng.random((128, 4112), dtype=np.float32)[:, :4096]  # a view: 16 numbers of each row are left out
whole = padded.copy()


def micros(call):
    return min(timeit.repeat(call, number=200, repeat=7)) / 200 * 1e6


times = {
    ("dot", "whole"): micros(lambda: np.dot(x, whole)),
    ("dot", "padded"): micros(lambda: np.dot(x, padded)),
    ("@", "whole"): micros(lambda: x @ whole),
    ("@", "padded"): micros(lambda: x @ padded),
}
for (name, matrix), time in times.items():
    print(f"{name:4} {matrix:7} {time:7.1f} microseconds")
assert np.array_equal(np.dot(x, padded), np.dot(x, whole))
assert times["dot", "padded"] > 1.7 * times["dot", "whole"], "dot no longer copies"
assert times["@", "padded"] < 1.4 * times["@", "whole"], "@ copies too"
PYTHON
