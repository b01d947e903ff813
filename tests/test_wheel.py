"""The wheel: what it carries works in an empty folder, without the repository."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

ROOT = Path(__file__).resolve().parents[1]
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the installed wheel; its packages are this environment's."""
    folder = tmp_path_factory.mktemp("wheel")
    build = (
        "wheel",
        ROOT,
        "--no-index",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        folder,
    )
    subprocess.run([*PIP, *build], check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    site = folder / "site"
    subprocess.run(
        [*PIP, "install", "--no-index", "--no-deps", "--target", site, wheel], check=True
    )
    return site


def call(site: Path, folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mt_cli", *args],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_installed_wheel_names_its_configs(installed: Path, tmp_path: Path) -> None:
    outcome = call(installed, tmp_path, "prepare", "no_such")
    assert outcome.returncode == 2
    assert outcome.stderr.startswith(
        "error: no_such: no such config file, and no config of that name comes "
    )
    assert "; these do: classic/note, " in outcome.stderr
    assert outcome.stderr.endswith(", multi30k-words, sample, speedrun\n")


WITHOUT_POSIX = """
import builtins, os, signal

MODULES = {"fcntl", "grp", "pty", "pwd", "readline", "resource", "syslog", "termios", "tty"}
NAMES = {
    os: ("fork", "geteuid", "getpgid", "getuid", "killpg", "sched_getaffinity", "setsid", "sysconf"),
    signal: ("SIGALRM", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGUSR1", "SIGUSR2", "alarm", "pthread_sigmask"),
}
real = builtins.__import__

def as_on_windows(name, globals=None, *rest, **others):
    if name in MODULES and str((globals or {}).get("__name__")).startswith("mt_cli"):
        raise ModuleNotFoundError(f"No module named {name!r}")
    return real(name, globals, *rest, **others)

builtins.__import__ = as_on_windows
for module, names in NAMES.items():
    for name in names:
        if hasattr(module, name):
            delattr(module, name)
"""
"""Python runs a `sitecustomize.py` before the program: this one hides from it what Windows does not
have.
"""


def test_the_four_commands_of_the_wheel_need_an_empty_folder_and_nothing_of_posix(
    installed: Path, tmp_path: Path
) -> None:
    installed.joinpath("sitecustomize.py").write_text(WITHOUT_POSIX)
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    is_hidden = "import os, sys; sys.exit(hasattr(os, 'fork'))"
    subprocess.run([sys.executable, "-c", is_hidden], env=environment, check=True)
    for args, printed in (
        (("prepare", "sample"), "data/prepared/sample\n"),
        (("train", "sample", "--max-steps", "2", "--device", "cpu"), "runs/sample\n"),
        (
            ("evaluate", "runs/sample", "--split", "val", "--set", "decoding.max_len_extra=1"),
            "val ",
        ),
        (("translate", "runs/sample", "--text", "Ein Hund."), ""),
    ):
        outcome = call(installed, tmp_path, *args)
        assert outcome.returncode == 0, outcome.stderr
        assert printed in outcome.stdout
