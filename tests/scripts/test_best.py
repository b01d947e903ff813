"""`scripts/best`: the trainings and translations by the real commands, and what a second start
adds.
"""

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from itertools import product
from pathlib import Path

import pytest
import tomli_w
from workspace import CONFIG, TIMEOUT_S, Workspace

pytestmark = pytest.mark.processes

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = ("speedrun", "multi30k-reverse", "multi30k-back", "multi30k-captions")
TESTS = """
test_2016_flickr = { src = "corpus/val.de", tgt = "corpus/val.en" }
test_2017_flickr = { src = "corpus/test.de", tgt = "corpus/test.en" }
"""


@pytest.fixture
def project(workspace: Workspace, tmp_path: Path) -> Path:
    """A project whose four configs are tiny ones; they learn from one another as the real ones do."""
    forward = re.sub(r"max_epochs = \d+", "max_epochs = 40", CONFIG)
    forward = forward.replace('test = { src = "corpus/test.de", tgt = "corpus/test.en" }', TESTS)
    forward = forward.replace(
        "[data]", '[data]\nsplits = ["train", "val", "test_2016_flickr", "test_2017_flickr"]'
    )
    reverse = forward.replace("[data]", '[data]\nsrc_lang = "en"\ntgt_lang = "de"')
    for old, new in ((".de", ".x"), (".en", ".de"), (".x", ".en")):
        reverse = reverse.replace(old, new)
    tmp_path.joinpath("configs").mkdir()
    for name in CONFIGS:
        tiny = tomllib.loads(reverse if name == "multi30k-reverse" else forward)
        real = tomllib.loads((ROOT / "configs" / f"{name}.toml").read_text(encoding="utf-8"))
        if "more" in real["data"]:
            tiny["tokenizer"] = real["tokenizer"]
            tiny["training"]["init_from"] = real["training"]["init_from"]
            tiny["data"]["more"] = real["data"]["more"]
            for more in tiny["data"]["more"].values():
                if side := more.pop("captions", None):
                    more[side] = "corpus/train.de" if side == "src" else "corpus/train.en"
        tmp_path.joinpath("configs", f"{name}.toml").write_text(
            tomli_w.dumps(tiny), encoding="utf-8"
        )
    tmp_path.joinpath("corpus").symlink_to(workspace.folder / "corpus")
    return with_script(tmp_path, mt_cli=f'exec "{sys.executable}" -m mt_cli "$@"')


def with_script(folder: Path, *, mt_cli: str) -> Path:
    """`folder` with the script, nothing to set up, and an mt-cli that is the bash code `mt_cli`."""
    executable(folder / "scripts" / "best", (ROOT / "scripts" / "best").read_text(encoding="utf-8"))
    executable(folder / "scripts" / "setup", "#!/usr/bin/env bash\n")
    executable(folder / ".venv" / "bin" / "mt-cli", f"#!/usr/bin/env bash\n{mt_cli}\n")
    return folder


def executable(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


def best(project: Path, *args: str, cwd: str | Path = os.sep) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [project / "scripts" / "best", *args],
        capture_output=True, text=True, timeout=TIMEOUT_S, check=False, cwd=cwd,
    )  # fmt: skip


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.slow
def test_the_last_model_is_trained_on_what_the_others_said(project: Path) -> None:
    first = best(project)
    assert first.returncode == 0, first.stderr
    scored = re.findall(r"^(test_201[67])_flickr  BLEU [\d.]+  ", first.stdout, flags=re.MULTILINE)
    # captions, greedily and with a beam, and the system
    assert scored == ["test_2016", "test_2017"] * 3

    reports = [
        json.loads(path.read_bytes())
        for path in sorted(project.glob("data/translated/*/report.json"))
    ]
    # of the captions, then of the pairs; two configs ask for the back-translations, which are made
    # once
    assert [report["run"] for report in reports] == [
        "runs/multi30k-reverse",
        "runs/multi30k-back",
    ] * 2
    num_pairs = len((project / "data/prepared/speedrun/train.src.txt").read_bytes().splitlines())
    assert [report["lines"] + report["held_out"] for report in reports[2:]] == [
        num_pairs,
        num_pairs,
    ]

    kept = sorted(project.glob("data/translated/*/made.txt"))
    before = [(sha256(path), path.stat().st_mtime_ns) for path in kept]
    again = best(project)
    assert again.stdout == first.stdout
    assert [(sha256(path), path.stat().st_mtime_ns) for path in kept] == before


def test_captions_is_trained_and_scored_with_each_seed_and_all_are_one_system(
    tmp_path: Path,
) -> None:
    outcome = best(with_script(tmp_path, mt_cli='echo "$@"'), "--seeds", "3")
    assert outcome.returncode == 0, outcome.stderr
    trained = re.findall(
        r"^train configs/(\S+)\.toml --run runs/(\S+) --seed (\d) --auto-resume$",
        outcome.stdout,
        re.MULTILINE,
    )
    last = CONFIGS[-1]
    seeds = [(last, last, "1"), (last, f"{last}-seed2", "2"), (last, f"{last}-seed3", "3")]
    assert trained == [(name, name, "1") for name in CONFIGS[:-1]] + seeds
    scored = re.findall(r"^evaluate runs/(\S+)( --beam-size 5)?", outcome.stdout, re.MULTILINE)
    assert scored == [*product((run for _, run, _ in seeds), ("", " --beam-size 5")), (last, "")]
    system = " ".join(
        f"runs/{run}" for run in (last, f"{last}-seed2", f"{last}-seed3", CONFIGS[-2])
    )
    assert f"evaluate {system} --length-penalty" in outcome.stdout


@pytest.mark.parametrize(
    "args",
    [
        ("--set", "x=y"),
        ("--from",),
        ("--from", "a", "b"),
        ("--seeds", "0"),
        ("--seeds", "2x"),
        ("--seeds=2",),
    ],
)
def test_another_option_is_refused_before_anything_begins(
    tmp_path: Path, args: tuple[str, ...]
) -> None:
    outcome = best(with_script(tmp_path, mt_cli="exit 9"), *args)
    assert outcome.returncode == 2
    assert outcome.stderr.startswith("usage: scripts/best")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".venv", "scripts"]


def test_help_begins_nothing(tmp_path: Path) -> None:
    outcome = best(with_script(tmp_path, mt_cli="exit 9"), "--help")
    assert (outcome.returncode, outcome.stdout[:19]) == (0, "usage: scripts/best")


def test_folder_of_files_is_relative_to_where_the_user_is(tmp_path: Path) -> None:
    project = with_script(tmp_path / "project", mt_cli='echo "$@"; exit 9')
    tmp_path.joinpath("my files").mkdir()
    outcome = best(project, "--from", "my files", cwd=tmp_path)
    assert outcome.returncode == 9  # what the command says is what the script says
    assert outcome.stdout == f"prepare configs/speedrun.toml --from {tmp_path}/my files\n"
    assert best(project, "--from", "none", cwd=tmp_path).returncode == 1


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 143), (signal.SIGINT, 130)]
)
def test_signal_ends_the_command_that_runs(tmp_path: Path, number: int, code: int) -> None:
    waiting = "trap 'echo saved >&2; exit 143' TERM; touch begun; while true; do sleep 0.05; done"
    project = with_script(tmp_path, mt_cli=waiting)
    with subprocess.Popen(
        [project / "scripts" / "best"], stderr=subprocess.PIPE, text=True
    ) as process:
        deadline = time.monotonic() + TIMEOUT_S
        while not tmp_path.joinpath("begun").exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(number)
        _, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == code
    assert err.endswith("\nsaved\n")
