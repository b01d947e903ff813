"""Kill commands, break their disk, stop trainings and flip bits, and check that all is survived.

One process imports everything once and forks a child for each command. In the child, the calls by
which Python changes files are counted, and one of them can be struck: see `Injector`. Linux only.
"""

import argparse
import contextlib
import errno
import functools
import gc
import importlib
import itertools
import os
import pkgutil
import random
import re
import resource
import runpy
import shlex
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NoReturn

import safetensors.torch
from safetensors import SafetensorError

BUG, WRONG_USE, DATA, RESOURCES, NOT_SURVIVED = 1, 2, 3, 5, 6
"""Exit codes: no command may end with the first; this script ends with the last."""
TIME_LIMIT_S = 300  # a command that takes longer hangs, even on a busy machine

SAMPLE = Path(__file__).resolve().parents[1] / "data" / "sample"
CONFIG = """\
data.corpus = "files"
data.max_len = 30
data.files.train = { src = "corpus/train.de", tgt = "corpus/train.en" }
data.files.val = { src = "corpus/val.de", tgt = "corpus/val.en" }
data.files.test = { src = "corpus/test.de", tgt = "corpus/test.en" }
tokenizer = { kind = "spacy", min_freq = 1 }
training = { max_epochs = 3, tokens_per_batch = 64, validate_every = 4, log_every = 1 }
decoding = { max_len_factor = 0.5, max_len_extra = 4 }
runtime = { device = "cpu", precision = "fp32", threads = 1 }
model = { d_model = 8, num_heads = 2, encoder_layers = 1, decoder_layers = 1, d_ff = 8 }
"""
RUN = Path("runs/tiny")
PREPARED = Path("data/prepared/tiny")
PREPARE = ("prepare", "tiny.toml")
TRAIN = ("train", "tiny.toml")
EVALUATE = ("evaluate", str(RUN))
TRANSLATE = ("translate", str(RUN), "--text", "Ein Hund.")


class BrokenPromiseError(Exception):
    """A fault was not survived; the message says what went wrong."""


def expect(holds: bool, otherwise: str) -> None:
    """Raise `BrokenPromiseError(otherwise)` if something does not hold."""
    if not holds:
        raise BrokenPromiseError(otherwise)


# Strikes

KILL, KILL_WRITING = "kill at", "kill in a write after"
KILLS = (KILL, KILL_WRITING)
SHORT = "short writes after"
ERRORS = {"full disk from": errno.ENOSPC, "broken disk from": errno.EIO, SHORT: errno.EFBIG}
SIGNALS = {"SIGTERM at": signal.SIGTERM, "Ctrl-C at": signal.SIGINT, "hang-up at": signal.SIGHUP}
MAX_BYTES = 100
"""Of a file where writes come out short; all beyond is lost."""
CHANGES = {"os.mkdir": (0, 2), "os.rmdir": (0, 1), "os.remove": (0, 1), "os.rename": (1, 3)}
"""Audit events of Python: which arguments are the path and the folder that it is relative to."""
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


@dataclass(frozen=True)
class Strike:
    """What goes wrong at one of the calls that change files."""

    what: str = "nothing"
    at: int = 0
    """Number of the call, from 1."""


class Injector:
    """Counts the calls of this process that change files below a folder, and strikes one."""

    def __init__(self, folder: Path, strike: Strike, report: int) -> None:
        self._folder = str(folder)
        self._strike = strike
        self._report = report
        self.calls = 0

    def install(self) -> None:
        """Watch the rest of this process."""
        sys.addaudithook(self._hook)
        fsync = os.fsync  # has no audit event

        def counted_fsync(fd: int) -> None:
            self._call("fsync", str(Path(f"/proc/self/fd/{fd}").readlink()))
            fsync(fd)

        os.fsync = counted_fsync  # type: ignore[assignment]

    def tell(self, line: str) -> None:
        """Write a line for the parent; it survives a kill."""
        os.write(self._report, f"{line}\n".encode(errors="replace"))

    def _hook(self, event: str, args: tuple[Any, ...]) -> None:
        """Called by Python before it does what `event` says."""
        if event == "open" and args[2] & WRITING and not isinstance(args[0], int):
            self._call(event, _place(args[0]))
        elif event in CHANGES:
            path, dir_fd = CHANGES[event]
            self._call(event, _place(args[path], args[dir_fd]))

    def _call(self, name: str, path: str) -> None:
        """Count a call that is about to change `path`; end the process or raise if it is struck."""
        if not path.startswith(self._folder):
            return
        self.calls += 1
        what = self._strike.what
        is_struck = self.calls == self._strike.at
        if is_struck:
            self.tell(f"struck {name} {path}")
            _strike(what)
        if what in ERRORS and what != SHORT and self.calls >= self._strike.at:
            # The command has to name the first error.
            error = ERRORS[what] if is_struck else errno.ENOSPC
            raise OSError(error, os.strerror(error), path)


def _strike(what: str) -> None:
    """Let something happen to this process."""
    if what == KILL:
        os.kill(os.getpid(), signal.SIGKILL)
    elif what in (KILL_WRITING, SHORT):
        # The kernel cuts a write at the limit, and sends a signal, which Python ignores.
        resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_BYTES, MAX_BYTES))
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL if what == KILL_WRITING else signal.SIG_IGN)
    elif what in SIGNALS:
        signal.raise_signal(SIGNALS[what])


def _place(path: str | os.PathLike[str], dir_fd: int = -1) -> str:
    """Where `path` really is: links on the way are followed, one at the end is not."""
    folder = Path.cwd() if dir_fd == -1 else Path(f"/proc/self/fd/{dir_fd}").readlink()
    whole = folder / os.fsdecode(path)
    return str(whole.parent.resolve() / whole.name)


# Cases


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    """Minus the signal if it was killed."""
    err: str
    calls: int
    struck: str
    """The call that was struck; empty if none was."""

    def __str__(self) -> str:
        return f"exit {self.code}: {' / '.join(self.err.splitlines())[-600:]}"


class Case:
    """A folder in which commands run."""

    def __init__(self, root: Path, start: Path | None = None) -> None:
        shutil.rmtree(root, ignore_errors=True)
        self.folder = root / "folder"
        if start:
            shutil.copytree(start, self.folder)
        else:
            self.folder.mkdir(parents=True)

    def succeed(self, *args: str) -> Ended:
        """Run `mt-cli` with `args`, which has to succeed."""
        ended = self.call(*args)
        expect(ended.code == 0, f"{args} has to succeed; {ended}")
        return ended

    def call(self, *args: str, strike: Strike | None = None) -> Ended:
        """Run `mt-cli` with `args` in a child; it may neither hang nor end in a traceback."""
        err_out, err_in = os.pipe()
        report_out, report_in = os.pipe()
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            injector = Injector(self.folder, strike or Strike(), report_in)
            _be_the_child(args, self.folder, err_in, injector)
        os.close(err_in)
        os.close(report_in)
        with os.fdopen(err_out, errors="backslashreplace") as file:
            err = file.read()
        _, status = os.waitpid(pid, 0)
        with os.fdopen(report_out, errors="replace") as file:
            told = dict(line.split(" ", 1) for line in file.read().splitlines())
        code = os.waitstatus_to_exitcode(status)
        ended = Ended(code, err, calls=int(told.get("calls", 0)), struck=told.get("struck", ""))
        expect(code != -signal.SIGALRM, f"{args} hangs; {ended}")
        expect("Traceback" not in err and code != BUG, f"{args}: {ended}")
        return ended


def _be_the_child(args: Sequence[str], folder: Path, err: int, injector: Injector) -> NoReturn:
    code = BUG
    try:
        signal.alarm(TIME_LIMIT_S)  # ends the process, because nobody handles it
        # A shell lets its background jobs ignore Ctrl-C.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)
        os.dup2(err, 2)
        os.close(err)
        os.chdir(folder)
        sys.argv = ["mt-cli", *args]
        injector.install()
        runpy.run_module("mt_cli", run_name="__main__")
        code = 0
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        injector.tell(f"calls {injector.calls}")
        os._exit(code)  # without the parent's clean-up


# What is compared

OF_THE_MOMENT = ("README.md", "train.log", "status.json", "env.json")
CLOCKS = re.compile(rb'"(elapsed_s|[a-z_]+_s)": *("[^"]*"|[^,}\n]*)|"sha256": *\{[^}]*\}')
"""Times in JSON, and hashes of files that hold times."""


def check_same(found: Path, expected: Path) -> None:
    """Make sure that two folders hold the same bits, times excepted."""
    one = lasting(found)
    other = lasting(expected)
    unlike = [name for name in {**one, **other} if one.get(name) != other.get(name)]
    expect(not unlike, f"not what an uninterrupted command makes: {', '.join(sorted(unlike))}")


def lasting(folder: Path) -> dict[str, object]:
    """Content of the files below `folder`, by name, without times."""
    found: dict[str, object] = {}
    for path in folder.rglob("*"):
        if path.is_file() and path.name not in OF_THE_MOMENT:
            found[str(path.relative_to(folder))] = _content(path)
    return found


def _content(path: Path) -> object:
    content = path.read_bytes()
    if path.suffix in (".json", ".jsonl"):
        return CLOCKS.sub(b"", content)
    if path.suffix == ".safetensors":
        with contextlib.suppress(SafetensorError):  # a file that was killed is only bytes
            return _tensors(content)
    return content


def _tensors(content: bytes) -> dict[str, bytes]:
    """The bytes of each tensor; the trainer's meter is left out, because it holds seconds."""
    tensors = safetensors.torch.load(content)
    return {name: each.numpy().tobytes() for name, each in tensors.items() if "meter" not in name}


@dataclass(frozen=True)
class Site:
    """What all faults share."""

    scratch: Path
    template: Path
    """The folder that most cases start from: corpus, prepared data and a run."""
    seed: int
    is_quick: bool


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong, and what must hold then."""

    name: str
    """Unique among the faults of its family and seed."""
    work: Callable[[Case], None]
    """Makes the fault and looks at what follows; raises `BrokenPromiseError`."""
    start: Path
    """The folder of which the case gets a copy."""


def build_template(scratch: Path) -> Path:
    """Make the folder that cases start from, by the real commands."""
    case = Case(scratch / "template")
    (case.folder / "corpus").mkdir()
    (case.folder / "tiny.toml").write_text(CONFIG)
    for lang in ("de", "en"):
        lines = (SAMPLE / f"train.{lang}").read_bytes().splitlines(keepends=True)
        (case.folder / f"corpus/train.{lang}").write_bytes(b"".join(lines[:24]))
        (case.folder / f"corpus/val.{lang}").write_bytes(b"".join(lines[:4]))
        (case.folder / f"corpus/test.{lang}").write_bytes(b"".join(lines[-4:]))
    case.succeed(*PREPARE)
    case.succeed(*TRAIN)
    case.succeed(*EVALUATE)
    return case.folder


# Kills and broken disks


@dataclass(frozen=True)
class Target:
    """A command that writes a folder, and what it does when nothing goes wrong."""

    name: str
    command: tuple[str, ...]
    place: Path
    """The folder that it makes, changes or replaces."""
    again: tuple[str, ...]
    """The command to call after it was interrupted."""
    start: Path
    calls: int = 0
    end: Path = Path()
    """How its working directory looks after it."""


@functools.cache
def targets(site: Site) -> list[Target]:
    """Commands that write, each run once without a fault; only two if the site is quick."""
    no_run = Case(site.scratch / "no run", site.template).folder
    shutil.rmtree(no_run / RUN)
    other_data = Case(site.scratch / "other data", site.template).folder
    (other_data / "tiny.toml").write_text(CONFIG.replace("min_freq = 1", "min_freq = 2"))
    anew = (*TRAIN, "--seed", "7")  # makes another run than the one in the template
    overwrite = (*anew, "--overwrite")
    force = (*PREPARE, "--force")
    found = [
        Target("train --overwrite", overwrite, RUN, (*anew, "--resume"), site.template),
        Target("evaluate", EVALUATE, RUN, EVALUATE, site.template),
        Target("train", TRAIN, RUN, (*TRAIN, "--resume"), no_run),
        Target("prepare --force", force, PREPARED, force, other_data),
    ]
    measured = []
    for target in found[: 2 if site.is_quick else None]:
        case = Case(site.scratch / "ends" / target.name, target.start)
        ended = case.succeed(*target.command)
        measured.append(replace(target, calls=ended.calls, end=case.folder))
    return measured


def strikes(kinds: Sequence[str], site: Site) -> Iterator[Fault]:
    """Strikes of these kinds at random calls of each command."""
    draw = random.Random(site.seed)
    for target in targets(site):
        count = min(target.calls, 1 if site.is_quick else 40)
        for at in draw.sample(range(1, target.calls + 1), count):
            for what in kinds:
                work = functools.partial(_meet, target, Strike(what, at))
                yield Fault(f"{target.name}: {what} call {at}", work, target.start)


def _meet(target: Target, strike: Strike, case: Case) -> None:
    """Run the target's command with a strike, and look at what follows."""
    ended = case.call(*target.command, strike=strike)
    try:
        expect(bool(ended.struck), "nothing was struck")
        if strike.what in ERRORS:
            _check_told(ended, strike)
        else:
            # After the last write that is long enough, nothing is left to kill.
            codes = (-signal.SIGKILL,) if strike.what == KILL else (-signal.SIGXFSZ, 0)
            expect(ended.code in codes, "it was not killed")
        again = _check_left(target, case)
        has_checkpoint = (case.folder / RUN / "last.txt").exists()
        done = case.succeed(*again)
        if "--resume" in again and has_checkpoint:
            expect("resumed after update" in done.err, "it began anew, in spite of a checkpoint")
        check_same(case.folder, target.end)
    except BrokenPromiseError as error:
        raise BrokenPromiseError(f"{error} (struck: {ended.struck}; {ended})") from error


def _check_told(ended: Ended, strike: Strike) -> None:
    """Make sure that the command succeeded in spite of a broken disk, or named what failed."""
    expect(ended.code in (0, RESOURCES), "the exit code is not that of a broken disk")
    if ended.code == 0:
        return
    reason = os.strerror(ERRORS[strike.what]).removesuffix(" on device").lower()
    # Leftovers may stay, so these may fail without a word.
    may_fail = ended.struck.startswith(("os.mkdir", "os.rmdir", "os.remove"))
    expect(may_fail or reason in ended.err.lower(), "another reason is told")
    last_line = ended.err.rstrip().splitlines()[-1]
    is_named = "runs/" in last_line or "data/" in last_line
    expect(last_line.startswith("error: ") and is_named, "no place is named")


def _check_left(target: Target, case: Case) -> tuple[str, ...]:
    """Make sure that the old or the new folder is there; gives the command to call next."""
    place = case.folder / target.place
    old = target.start / target.place
    aside = place.with_name(f".{place.name}.old")
    if aside.exists() and not place.exists():
        aside.rename(place)  # as the next command that opens the folder does
    expect(place.exists() or not old.exists(), "the old folder is gone, without a new one")
    if target.place != RUN:
        is_whole = lasting(place) in (lasting(old), lasting(target.end / target.place))
        expect(is_whole, "it is neither the old folder nor the new one")
        return target.again
    is_old = target.name == "train --overwrite" and lasting(place) == lasting(old)
    if is_old or not place.exists():
        return target.command
    case.succeed("inspect", str(RUN))
    has_best = (place / "best.txt").exists()
    translated = case.call(*TRANSLATE)
    expect(translated.code == (0 if has_best else WRONG_USE), "translate cannot use the run")
    return target.again


# Resumes

STOPS = {**{what: 128 + number for what, number in SIGNALS.items()}, KILL: -signal.SIGKILL}
"""Ways to stop a training, and the exit code that follows."""
SETTINGS: Sequence[Sequence[str]] = (
    (),
    ("training.accumulation=2", "training.max_epochs=6"),
    ("training.r_drop=1.0",),
    ('training.optimizer="adam"', "training.clip_norm=0.1"),
    ('training.best_by="loss"', "model.dropout=0.3"),
    ('model.backend="torch"',),
)


def resumes(site: Site) -> Iterator[Fault]:
    """Trainings stopped once or twice in every way, which must end like uninterrupted ones."""
    draw = random.Random(site.seed)
    for number in range(2 if site.is_quick else 36):
        what = list(STOPS)[number % len(STOPS)]
        settings = SETTINGS[number // len(STOPS) % len(SETTINGS)]
        shares = [draw.uniform(0.3, 0.8) for _ in range(draw.choice((1, 2)))]
        name = " ".join([what, *(f"{share:.2f}" for share in shares), *settings])
        yield Fault(name, functools.partial(_resume, what, shares, settings), site.template)


def _resume(what: str, shares: Sequence[float], settings: Sequence[str], case: Case) -> None:
    """Train once as a whole and once in pieces, each of which ends after a share of the calls."""
    sets: list[str] = []
    for setting in settings:
        sets += ["--set", setting]
    calls = case.succeed(*TRAIN, *sets, "--run", "runs/whole").calls
    pieces = [*TRAIN, *sets, "--run", "runs/pieces"]
    for share in shares:
        ended = case.call(*pieces, strike=Strike(what, int(calls * share)))
        code = STOPS[what] if ended.struck else 0
        was_over = ended.code == 0 and "finished  step" in ended.err  # when the signal came
        expect(ended.code == code or was_over, f"another exit code than {code}: {ended}")
        if "--resume" not in pieces:
            pieces.append("--resume")
    case.succeed(*pieces)
    check_same(case.folder / "runs/pieces", case.folder / "runs/whole")


# Flips

RESUME = (*TRAIN, "--resume", "--set", "training.max_epochs=4")
TRAIN_NEW = (*TRAIN, "--run", "runs/new", "--max-steps", "1")
HASHED: Mapping[str, tuple[str, ...]] = {
    f"{RUN}/config.toml": TRANSLATE,
    f"{RUN}/tokenizer/*": TRANSLATE,
    f"{RUN}/checkpoints/BEST/model.safetensors": TRANSLATE,
    f"{RUN}/checkpoints/LAST/state.*": RESUME,
    f"{PREPARED}/tokenizer/*": TRAIN_NEW,
    f"{PREPARED}/train.*.npy": TRAIN_NEW,
    f"{PREPARED}/val.*.npy": TRAIN_NEW,
}
"""Files whose sha256 stands in a manifest, and a command that uses them."""


def flips(site: Site) -> Iterator[Fault]:
    """Random bits of each file that is hashed: the damage has to be noticed."""
    draw = random.Random(site.seed)
    best = (site.template / RUN / "best.txt").read_text().strip()
    last = (site.template / RUN / "last.txt").read_text().strip()
    for pattern, command in HASHED.items():
        paths = sorted(site.template.glob(pattern.replace("BEST", best).replace("LAST", last)))
        for path in paths[: 1 if site.is_quick else None]:
            name = path.relative_to(site.template)
            for _ in range(1 if site.is_quick else 30):
                bit = draw.randrange(8 * path.stat().st_size)
                work = functools.partial(_flip, name, bit, command)
                yield Fault(f"{name}: bit {bit}", work, site.template)


def _flip(name: Path, bit: int, command: tuple[str, ...], case: Case) -> None:
    path = case.folder / name
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
    ended = case.call(*command)
    # A resume may warn, and continue from the checkpoint before.
    codes = (0, DATA) if command == RESUME else (DATA,)
    is_noticed = ended.code in codes and str(name) in ended.err
    expect(is_noticed, f"the damage is not noticed, or its file is not named: {ended}")


# The command

FAMILIES: Mapping[str, Callable[[Site], Iterator[Fault]]] = {
    "kills": functools.partial(strikes, KILLS),
    "broken disks": functools.partial(strikes, list(ERRORS)),
    "resumes": resumes,
    "flips": flips,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/torture", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few faults of each family")
    parser.add_argument("--only", action="append", choices=FAMILIES, help="may be repeated")
    parser.add_argument("--match", metavar="FAULT", help="only the fault of this name")
    parser.add_argument("--seed", type=int, default=1, help="random seed (default: 1)")
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--jobs", type=int, default=cores, help="faults at a time (default: cores)")
    options = parser.parse_args()
    tried = failed = 0
    with tempfile.TemporaryDirectory(prefix="torture-") as folder:
        scratch = Path(folder).resolve()
        _import_everything()
        site = Site(scratch, build_template(scratch), options.seed, options.quick)
        for family in options.only or FAMILIES:
            faults = [each for each in FAMILIES[family](site) if options.match in (None, each.name)]
            tried += len(faults)
            failed += torture(family, faults, site, jobs=options.jobs)
    if tried == 0:
        sys.exit(WRONG_USE)
    sys.exit(NOT_SURVIVED if failed else 0)


def torture(family: str, faults: Sequence[Fault], site: Site, *, jobs: int) -> int:
    """Try the faults of a family; gives how many were not survived, and says how to repeat them."""
    started_at = time.monotonic()
    failed = 0
    with ProcessPoolExecutor(jobs, get_context("fork")) as pool:
        outcomes = pool.map(attempt, faults, itertools.repeat(site.scratch))
        for fault, why in zip(faults, outcomes, strict=True):
            if why:
                failed += 1
                again = ["--quick"] if site.is_quick else []
                again += ["--seed", str(site.seed), "--only", family, "--match", fault.name]
                print(f"{family}: {fault.name}: {why}")
                print(f"    again: scripts/torture {shlex.join(again)}", flush=True)
    elapsed_s = time.monotonic() - started_at
    survived = len(faults) - failed
    print(f"{family}: {survived:,} of {len(faults):,} survived, {elapsed_s:.0f} s", flush=True)
    return failed


def attempt(fault: Fault, scratch: Path) -> str:
    """Try one fault in a folder of its own; gives why it was not survived, or nothing."""
    root = scratch / f"case-{os.getpid()}"
    try:
        fault.work(Case(root, fault.start))
    except BrokenPromiseError as error:
        return str(error)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return ""


def _import_everything() -> None:
    """Import what commands import, once for all children, with one thread each."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = "1"
    import mt_cli

    own = [module.name for module in pkgutil.walk_packages(mt_cli.__path__, "mt_cli.")]
    for name in [*own, "sacrebleu", "spacy.lang.de", "spacy.lang.en"]:
        if not name.endswith("__main__"):
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
    gc.collect()
    gc.freeze()  # or the first collection of every child would copy all of it


if __name__ == "__main__":
    main()
