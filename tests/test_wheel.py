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


def test_installed_wheel_prepares_and_trains_the_sample_in_an_empty_folder(
    installed: Path, tmp_path: Path
) -> None:
    prepared = call(installed, tmp_path, "prepare", "sample")
    assert (prepared.returncode, prepared.stdout) == (0, "data/prepared/sample\n"), prepared.stderr
    settings = (
        "--set",
        "model.d_model=8",
        "--set",
        "model.num_heads=1",
        "--set",
        "decoding.max_len_factor=0",
    )
    trained = call(installed, tmp_path, "train", "sample", "--max-steps", "1", *settings)
    assert (trained.returncode, trained.stdout) == (0, "runs/sample\n"), trained.stderr


def test_installed_wheel_names_its_configs(installed: Path, tmp_path: Path) -> None:
    outcome = call(installed, tmp_path, "prepare", "no_such")
    assert outcome.returncode == 2
    assert outcome.stderr.startswith("error: no_such: no such config file, and no config of that name comes ")
    assert "; these do: classic/note, " in outcome.stderr
    assert outcome.stderr.endswith(", multi30k-words, sample\n")


def test_installed_wheel_is_the_one_that_ran(installed: Path, tmp_path: Path) -> None:
    script = "import mt_cli; print(mt_cli.__file__)"
    found = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(found.stdout.strip()).is_relative_to(installed)


def test_installed_wheel_has_the_parts_of_a_report(installed: Path) -> None:
    folder = installed / "mt_cli" / "stages" / "report"
    assert sorted(path.name for path in folder.glob("page.*")) == [
        "page.css",
        "page.html",
        "page.js",
        "page.py",
    ]
