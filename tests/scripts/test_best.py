"""`scripts/best` with a stand-in for mt-cli: which commands it calls, and how it ends."""

import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from started import Start
from workspace import TIMEOUT_S

pytestmark = pytest.mark.processes

ROOT = Path(__file__).resolve().parents[2]
REVERSE = "multi30k-reverse"
BASE = "multi30k-large-base"
LAST = "multi30k-large"


def project_with(folder: Path, *, mt_cli: str) -> Path:
    """A folder with the script, nothing to set up, and an mt-cli that is the bash code `mt_cli`."""
    text = (ROOT / "scripts" / "best").read_text(encoding="utf-8")
    programs = {"scripts/best": text, "scripts/setup": "", ".venv/bin/mt-cli": mt_cli}
    for name, code in programs.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/usr/bin/env bash\n{code}\n", encoding="utf-8")
        path.chmod(0o755)
    return folder


def test_each_seed_is_trained_and_scored_and_all_are_one_system(tmp_path: Path) -> None:
    script = project_with(tmp_path, mt_cli='echo "$@"') / "scripts" / "best"
    command = [str(script), "--seeds", "2"]
    outcome = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    trained = re.findall(
        r"^train configs/(\S+)\.toml --run runs/(\S+) --seed (\d) --auto-resume"
        r"(?: --init-from runs/(\S+))?$",
        outcome.stdout,
        re.MULTILINE,
    )
    assert trained == [
        (REVERSE, REVERSE, "1", ""),
        (BASE, BASE, "1", ""),
        (LAST, LAST, "1", BASE),
        (BASE, f"{BASE}-seed2", "2", ""),
        (LAST, f"{LAST}-seed2", "2", f"{BASE}-seed2"),
    ]
    assert f"evaluate runs/{LAST}-seed2 --beam-size 5" in outcome.stdout
    system = f"runs/{LAST} runs/{LAST}-seed2"
    assert f"evaluate {system} --length-penalty" in outcome.stdout


def test_signal_ends_the_command_that_runs(tmp_path: Path, start: Start) -> None:
    waiting = "trap 'echo saved >&2; exit 143' TERM; touch begun; while true; do sleep 0.05; done"
    script = project_with(tmp_path, mt_cli=waiting) / "scripts" / "best"
    process = start(script)
    while not tmp_path.joinpath("begun").exists():
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 143
    assert err.endswith("\nsaved\n")
