"""`scripts/best`: three trainings and two translations by the real commands, and what a second start adds."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from workspace import CONFIG, TIMEOUT_S, Workspace

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"
TESTS = """
test_2016_flickr = { src = "corpus/val.de", tgt = "corpus/val.en" }
test_2017_flickr = { src = "corpus/test.de", tgt = "corpus/test.en" }
"""
MORE = """
[data.more.forward]
src = "data/prepared/multi30k-strong/train.src.txt"
tgt = "data/translated/train.en"

[data.more.backward]
src = "data/translated/train.de"
tgt = "data/prepared/multi30k-reverse/train.src.txt"
"""


@pytest.fixture
def project(workspace: Workspace, tmp_path: Path) -> Path:
    """A project whose three configs are tiny ones."""
    forward = CONFIG.replace("max_epochs = 25", "max_epochs = 2").replace(
        'test = { src = "corpus/test.de", tgt = "corpus/test.en" }', TESTS
    )
    forward = forward.replace(
        "[data]", '[data]\nsplits = ["train", "val", "test_2016_flickr", "test_2017_flickr"]'
    )
    reverse = forward.replace("[data]", '[data]\nsrc_lang = "en"\ntgt_lang = "de"')
    for old, new in ((".de", ".x"), (".en", ".de"), (".x", ".en")):
        reverse = reverse.replace(old, new)
    for name, text in (("strong", forward), ("reverse", reverse), ("best", forward + MORE)):
        path = tmp_path / "configs" / f"multi30k-{name}.toml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    tmp_path.joinpath("corpus").symlink_to(workspace.folder / "corpus")
    executable(tmp_path / "scripts" / "best", (SCRIPTS / "best").read_text(encoding="utf-8"))
    executable(tmp_path / "scripts" / "setup", "#!/usr/bin/env bash\n")
    executable(
        tmp_path / ".venv/bin/mt-cli", f'#!/usr/bin/env bash\nexec "{sys.executable}" -m mt_cli "$@"\n'
    )
    return tmp_path


def executable(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


def best(project: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [project / "scripts" / "best", "--workers", "1"],
        capture_output=True, text=True, timeout=TIMEOUT_S, check=True, cwd=os.sep,
    )  # fmt: skip


@pytest.mark.slow
def test_the_last_model_is_trained_on_what_the_first_two_said(project: Path) -> None:
    first = best(project)
    assert [first.stdout.count(f"{name}_flickr  BLEU") for name in ("test_2016", "test_2017")] == [2, 2]
    made = {path: path.stat().st_mtime_ns for path in project.glob("data/translated/*")}
    assert sorted(path.name for path in made) == ["train.de", "train.en"]
    read = [
        project / "data" / "prepared" / f"multi30k-{name}" / "train.src.txt" for name in ("strong", "reverse")
    ]
    assert len({path.read_bytes().count(b"\n") for path in (*made, *read)}) == 1
    updates = [
        project / "runs" / f"multi30k-{name}" / "metrics.jsonl" for name in ("strong", "reverse", "best")
    ]
    trained = [path.read_bytes() for path in updates]

    again = best(project)
    assert again.stdout == first.stdout
    assert {path: path.stat().st_mtime_ns for path in made} == made
    assert [path.read_bytes() for path in updates] == trained
