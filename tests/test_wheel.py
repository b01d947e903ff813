"""The wheel: what it carries works in an empty folder, without the repository."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from workspace import READY_MODEL

ROOT = Path(__file__).resolve().parents[1]
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")


WITHOUT_POSIX = """
import builtins, os, signal, types

MODULES = {"fcntl", "grp", "pty", "pwd", "readline", "resource", "syslog", "termios", "tty"}
NAMES = {
    os: "fork geteuid getpgid getuid killpg sched_getaffinity setsid sysconf".split(),
    signal: "SIGALRM SIGHUP SIGKILL SIGPIPE SIGUSR1 SIGUSR2 SIGXCPU alarm pthread_sigmask".split(),
}

def windows(module):
    found = types.ModuleType(module.__name__)
    vars(found).update({k: v for k, v in vars(module).items() if k not in NAMES[module]})
    return found

instead = {module: windows(module) for module in NAMES}
real = builtins.__import__

def as_on_windows(name, globals=None, *rest, **others):
    is_ours = str((globals or {}).get("__name__")).startswith("mt_cli")
    if is_ours and name in MODULES:
        raise ModuleNotFoundError(f"No module named {name!r}")
    module = real(name, globals, *rest, **others)
    return instead.get(module, module) if is_ours else module

builtins.__import__ = as_on_windows
"""
"""A `sitecustomize.py`, which Python runs first: it hides from our modules what Windows lacks.

Others see everything: Python's own asyncio, for one, reads `os.sysconf` when it is imported.
"""


COMMANDS = """
import shlex, sys
from typer.testing import CliRunner
from mt_cli.cli.app import app
from mt_cli.runs import opening as run

assert not hasattr(run.os, "fork")
for line in sys.stdin:
    result = CliRunner().invoke(app, shlex.split(line))
    if result.exit_code:
        sys.exit(line + result.stderr)
    print(result.stdout)
"""
"""One process for all of them, because loading PyTorch takes most of the time."""


@pytest.mark.processes
def test_the_four_commands_of_the_wheel_need_an_empty_folder_and_nothing_of_posix(
    tmp_path: Path,
) -> None:
    build = ("wheel", ROOT, "--no-index", "--no-deps", "--no-build-isolation")
    subprocess.run([*PIP, *build, "--wheel-dir", tmp_path], check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    site, folder = tmp_path / "site", tmp_path / "empty"
    install = ("install", "--no-index", "--no-deps", "--target", site, wheel)
    subprocess.run([*PIP, *install], check=True)
    folder.mkdir()
    assert (site / "mt_cli" / "py.typed").is_file()
    site.joinpath("sitecustomize.py").write_text(WITHOUT_POSIX)
    short = "--set decoding.max_len_factor=0 --set decoding.max_len_extra=1"
    commands = (
        f"translate {READY_MODEL.name} --text 'Ein Hund schläft.'",
        "translate --text 'Zwei Hunde schlafen.'",
        "prepare sample",
        "train sample --max-steps 2 --device cpu --set training.max_epochs=1",
        f"evaluate runs/sample --split val {short}",
        f"translate runs/sample --text 'Ein Hund.' {short}",
    )
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS],
        input="\n".join(commands),
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for printed in (" dog", " dogs", "data/prepared/sample\n", "runs/sample\n", "val "):
        assert printed in done.stdout
