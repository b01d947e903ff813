#!/usr/bin/env bash
# sacreBLEU's paired approximate randomization counts strictly larger differences only. A good guess: "at least as large".
# sacrebleu 2.6.0, Python 3.11. Hurts whoever compares systems that differ in few sentences, or by equal amounts.
#
# Behaviour: ten sentences differ, each by one edit; eight got better, two worse. Of the 1,024 ways to swap them, 112 give
# a difference as large (p = 0.109). sacreBLEU gives a p near 22 / 1,024 = 0.021, below 0.05: it leaves out the 90 that
# are exactly as large.
# Output seen:
#   enumeration 0.1094, sacreBLEU 0.0225 (TER, 10,000 trials)
set -euo pipefail
place="$(mktemp -d)"
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install -qq --disable-pip-version-check sacrebleu==2.6.0
"$place/venv/bin/python" - <<'PY'
from math import comb

from sacrebleu.metrics.ter import TER
from sacrebleu.significance import PairedTest

refs = [f"The dog number {i} runs home ." for i in range(20)]
wrong = [ref.replace("home", "away") for ref in refs]
baseline = wrong[:8] + refs[8:]
system = refs[:8] + wrong[8:10] + refs[10:]
test = PairedTest([("a", baseline), ("b", system)], {"TER": TER()}, [refs], test_type="ar", n_samples=10_000)
_, results = test()
found = results["TER"][1].p_value
exact = sum(comb(10, k) for k in range(11) if abs(2 * k - 10) >= 6) / 2**10
print(f"enumeration {exact:.4f}, sacreBLEU {found:.4f} (TER, 10,000 trials)")
assert round(exact, 4) == 0.1094
assert found < 0.05
PY
