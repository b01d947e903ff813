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
    build = ("wheel", ROOT, "--no-index", "--no-deps", "--no-build-isolation", "--wheel-dir", folder)
    subprocess.run([*PIP, *build], check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    site = folder / "site"
    subprocess.run([*PIP, "install", "--no-index", "--no-deps", "--target", site, wheel], check=True)
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
    assert outcome.stderr.startswith("error: no_such: no such config file, and no config of that name comes ")
    assert "; these do: classic/note, " in outcome.stderr
    assert outcome.stderr.endswith(", multi30k-words, sample\n")


def test_installed_wheel_prepares_the_sample_in_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    prepared = call(installed, tmp_path, "prepare", "sample")
    assert (prepared.returncode, prepared.stdout) == (0, "data/prepared/sample\n"), prepared.stderr
