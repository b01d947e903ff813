"""Settings that every test runs under."""

import os

# Before torch is imported: several test processes share few cores, and one thread sums in one order.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["MKL_NUM_THREADS"] = "1"

from hypothesis import settings

# The same tree gives the same answer, on a busy machine too.
settings.register_profile("mt_cli", deadline=None, derandomize=True, database=None)
settings.load_profile("mt_cli")
