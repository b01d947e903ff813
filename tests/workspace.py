"""A folder with a tiny corpus, prepared by the real command, and a tiny model.

Built once for all tests of a session, which copy a run before they change it. The model is in the
repository, so that every processor has the same weights. `python tests/workspace.py` trains it
again, which is needed when the format of runs or of prepared data changes.
"""

import contextlib
import fcntl
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from typer.testing import CliRunner

from mt_cli.cli.app import app
from mt_cli.runs import opening as runs

ROOT = Path(__file__).resolve().parents[1]
SAMPLE = ROOT / "data" / "sample"
READY_MODEL = ROOT / "data" / "models" / runs.READY_MODEL
TINY_RUN = ROOT / "tests" / "tiny_run"
TIMEOUT_S = 600
NUM_SHORT, SHORT = 24, 60
"""Training pairs: few and short (bytes), so that the tiny model knows them by heart. At each token
of theirs, its choice is 1.8 nats ahead of the next, so no rounding of another processor flips it.
"""
SEED = 4

CONFIG = f"""\
[data]
corpus = "files"
max_len = 40

[data.files]
train = {{ src = "corpus/train.de", tgt = "corpus/train.en" }}
val = {{ src = "corpus/val.de", tgt = "corpus/val.en" }}
test = {{ src = "corpus/test.de", tgt = "corpus/test.en" }}

[tokenizer]
vocab_size = 420

[model]
d_model = 32
num_heads = 2
encoder_layers = 1
decoder_layers = 1
d_ff = 64
max_len = 48
dropout = 0.05

[training]
max_epochs = 120
tokens_per_batch = 240
peak_lr = 1e-2
warmup_steps = 20
label_smoothing = 0.0
validate_every = 40
log_every = 10

[runtime]
device = "cpu"
precision = "fp32"
threads = 1
seed = {SEED}
"""


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        """stdout, which is UTF-8 whatever the locale."""
        return self.out.decode()

    @property
    def lines(self) -> list[str]:
        r"""Lines of stdout, each of which must have ended in `\n`."""
        *lines, rest = self.text.split("\n")
        assert rest == "", "stdout does not end in a line end"
        return lines


@dataclass(frozen=True)
class Workspace:
    """A working directory with `tiny.toml`, `corpus/`, `data/prepared/tiny/` and `runs/tiny/`."""

    folder: Path

    @property
    def run(self) -> Path:
        """The trained run."""
        return self.folder / "runs" / "tiny"

    @property
    def prepared(self) -> Path:
        """The data it was trained on."""
        return self.folder / "data" / "prepared" / "tiny"

    def corpus(self, name: str) -> Path:
        """A file of the corpus, such as `test.de`."""
        return self.folder / "corpus" / name

    def copy_run(self, place: Path) -> Path:
        """A run of one's own, to change at will."""
        shutil.copytree(self.run, place)
        return place

    def call(
        self, *args: object, stdin: bytes = b"", cwd: Path | None = None, charset: str = "utf-8"
    ) -> Outcome:
        """Run mt-cli in this process, which costs no start, but lacks real streams and signals."""
        with contextlib.chdir(cwd or self.folder), process_kept():
            result = CliRunner(charset).invoke(app, [str(arg) for arg in args], input=stdin)
        return Outcome(result.exit_code, result.stdout_bytes, result.stderr)

    def execute(
        self,
        *args: object,
        stdin: bytes = b"",
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Outcome:
        """Run mt-cli in a process of its own."""
        done = subprocess.run(
            [*MT_CLI, *map(str, args)],
            input=stdin,
            capture_output=True,
            cwd=cwd or self.folder,
            env={**os.environ, **(env or {})},
            timeout=TIMEOUT_S,
            check=False,
        )
        return Outcome(done.returncode, done.stdout, done.stderr.decode(errors="backslashreplace"))


MT_CLI = (sys.executable, "-m", "mt_cli")


def shared_workspace(basetemp: Path) -> Workspace:
    """The session's workspace below pytest's `basetemp`, which the first to ask builds."""
    # Each xdist worker has a folder of its own inside the session's.
    base = basetemp.parent if "PYTEST_XDIST_WORKER" in os.environ else basetemp
    workspace = Workspace(base / "workspace")
    with (base / "workspace.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not workspace.run.is_dir():
            prepare(workspace)
            shutil.copytree(TINY_RUN, workspace.run)
    return workspace


def prepare(workspace: Workspace) -> None:
    """Write the corpus and the config, and prepare them."""
    shutil.rmtree(workspace.folder, ignore_errors=True)
    workspace.folder.joinpath("corpus").mkdir(parents=True)
    workspace.folder.joinpath("tiny.toml").write_text(CONFIG)
    sides = {lang: _sample_lines(f"train.{lang}") for lang in ("de", "en")}
    lengths = [max(map(len, pair)) for pair in zip(*sides.values(), strict=True)]
    short = [i for i, length in enumerate(lengths) if length <= SHORT][:NUM_SHORT]
    for lang, lines in sides.items():
        known = [lines[i] for i in short]
        # Longer than the model takes: it is translated sentence by sentence.
        too_long = b" ".join(line.rstrip() for line in known[:3]) + b"\n"
        train = [too_long, *known]
        test = _sample_lines(f"test.{lang}")[:8]
        workspace.corpus(f"train.{lang}").write_bytes(b"".join(train))
        workspace.corpus(f"val.{lang}").write_bytes(b"".join(train[:20]))
        workspace.corpus(f"test.{lang}").write_bytes(b"".join(test + train[1:13]))
    outcome = workspace.call("prepare", "tiny.toml")
    assert outcome.code == 0, outcome.err


def train_tiny_run(folder: Path) -> Path:
    """Train the tiny model in a new workspace, `folder`; its run."""
    workspace = Workspace(folder)
    prepare(workspace)
    outcome = workspace.call("train", "tiny.toml")
    assert outcome.code == 0, outcome.err
    return workspace.run


def _sample_lines(name: str) -> list[bytes]:
    return SAMPLE.joinpath(name).read_bytes().splitlines(keepends=True)


@contextlib.contextmanager
def process_kept() -> Iterator[None]:
    """Undo what a command does to its process: PyTorch's threads, and the log, which tests read.

    Errors name the program, which is not what the tests were started with.
    """
    import torch  # late: the process that only hands tests out to workers does without

    package = logging.getLogger("mt_cli")
    handlers, level, propagate = package.handlers, package.level, package.propagate
    threads, argv = torch.get_num_threads(), sys.argv
    sys.argv = ["mt-cli"]
    try:
        yield
    finally:
        sys.argv = argv
        torch.set_num_threads(threads)
        package.handlers, package.propagate = handlers, propagate
        package.setLevel(level)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        run = train_tiny_run(Path(temporary) / "workspace")
        shutil.rmtree(TINY_RUN, ignore_errors=True)
        shutil.copytree(run, TINY_RUN)
