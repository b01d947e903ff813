"""Make faults on purpose, and check that the commands survive them.

One process imports everything once and forks a child for each command. There, the calls by which
Python changes files are counted, and one can be struck: see `Injector`. Linux only.
"""

import argparse
import builtins
import contextlib
import errno
import functools
import gc
import hashlib
import importlib
import io
import itertools
import json
import os
import pkgutil
import random
import re
import resource
import runpy
import select
import shlex
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple, NoReturn, cast

from malformed import (
    EXPORTED,
    PREPARED,
    RESUME,
    RUN,
    TRAIN,
    TRANSLATE,
    TRANSLATE_EXPORTED,
    Malformation,
    malformations,
)

BUG, WRONG_USE, DATA, RESOURCES, NOT_SURVIVED = 1, 2, 3, 5, 6
"""Exit codes: no command may end with the first; the last is that of this script."""
TIME_LIMIT_S = 300.0
"""Of a command; longer is a hang, on a busy machine too."""
MOST_MB = 400.0
"""Memory of a command that refuses, over what it begins with; PyTorch alone takes 180."""
SAMPLE = Path(__file__).resolve().parents[1] / "data" / "sample"
NUM_TRAIN, NUM_TEST, MOST_LETTERS = 24, 4, 40
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
[model]
d_model = 8
num_heads = 2
encoder_layers = 1
decoder_layers = 1
d_ff = 8
max_len = 32
"""
PREPARE, FIT, EVALUATE = ("prepare", "tiny.toml"), ("train", "tiny.toml"), ("evaluate", str(RUN))
ANEW = (*FIT, "--seed", "7")
"""Trains a run that can be told from the old one."""
EXPORT = ("export", str(RUN), "--to", "ctranslate2", str(EXPORTED))
CAN_EXPORT = find_spec("ctranslate2") is not None


class BrokenPromiseError(Exception):
    """A fault was not survived; the message says what went wrong."""


def expect(holds: bool, otherwise: str) -> None:
    """Make sure that something holds; `otherwise` says what is wrong if it does not."""
    if not holds:
        raise BrokenPromiseError(otherwise)


# Strikes

KILLS = ("kill before", "kill after", "kill midst")
ERRORS = {
    "full disk from": (errno.ENOSPC, errno.ENOSPC),
    "broken disk from": (errno.EIO, errno.ENOSPC),  # the first error is the one to tell
    "short write, then full disk from": (0, errno.ENOSPC),
}
"""Errors of the struck call and of all that follow; 0 is none."""
SIGNALS = {
    "SIGTERM at": signal.SIGTERM,
    "Ctrl-C at": signal.SIGINT,
    "lost terminal at": signal.SIGHUP,
}
AN_HOUR = "an hour passes at"
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


@dataclass(frozen=True)
class Strike:
    """What goes wrong at one of the calls that change files."""

    what: str
    at: int
    """Number of the call, from 1."""

    def __str__(self) -> str:
        return f"{self.what} call {self.at}"


class Injector:
    """Counts the calls of this process that change files below a folder, and strikes at one of
    them.
    """

    def __init__(self, folder: Path, strike: Strike, report: Path) -> None:
        self._folder, self._strike = str(folder.resolve()), strike
        self._report, self._write = os.open(report, os.O_WRONLY | os.O_APPEND), os.write
        self.calls = 0

    def install(self) -> None:
        """Patch Python's own functions for the rest of this process."""
        for name in ("mkdir", "rmdir", "unlink", "remove"):
            self._count(name, lambda path, *_, dir_fd=None: _place(path, dir_fd))
        for name in ("rename", "replace", "link", "symlink"):
            self._count(name, lambda _, to, dst_dir_fd=None, **__: _place(to, dst_dir_fd))
        self._count(
            "open",
            lambda path, flags, *_, dir_fd=None: _place(path, dir_fd) if flags & WRITING else "",
        )
        self._count("fsync", _path_of)
        real = io.open

        def opened(file: str | int, mode: str = "r", *args: object, **options: object) -> object:
            """`open`, which gives a file whose writes count."""
            if mode not in ("w", "wb", "a", "ab") or file in (0, 1, 2):
                return real(file, mode, *args, **options)  # type: ignore[call-overload]
            place = "" if isinstance(file, int) else _place(file, None)
            raw = cast("CountedFile", self.call("open", place, lambda: CountedFile(file, mode[0])))
            raw.injector = self
            binary = io.BufferedWriter(raw)
            encoding = cast("str | None", args[1] if len(args) > 1 else options.get("encoding"))
            return binary if "b" in mode else io.TextIOWrapper(binary, encoding)

        io.open = builtins.open = opened  # type: ignore[assignment]

    def tell(self, what: str) -> None:
        """Tell the parent something, which survives this process."""
        self._write(self._report, f"{what}\n".encode(errors="replace"))

    def call(
        self,
        name: str,
        path: str,
        do: Callable[[], object],
        half: Callable[[], object] | None = None,
    ) -> object:
        """Make a call on `path` by `do`, or what the strike makes of it; `half` does half of it."""
        if not path.startswith(self._folder):
            return do()
        self.calls += 1
        what, since = self._strike.what, self.calls - self._strike.at
        if since == 0:
            self.tell(f"struck {name} {path}")
            if what == "kill before":
                os.kill(os.getpid(), signal.SIGKILL)
            elif what in SIGNALS:
                signal.raise_signal(SIGNALS[what])
            elif what == AN_HOUR:
                real = time.monotonic
                time.monotonic = lambda: real() + 3600.0
        error = ERRORS.get(what, (0, 0))[since > 0] if since >= 0 else 0
        if error:
            raise OSError(error, os.strerror(error), path)
        is_halved = (
            half is not None and since == 0 and what.startswith(("kill midst", "short write"))
        )
        try:
            return half() if half and is_halved else do()
        finally:
            if since == 0 and what in KILLS:
                os.kill(os.getpid(), signal.SIGKILL)

    def _count(self, name: str, where: Callable[..., str]) -> None:
        """Let a function of `os` count; `where` gives the path that it changes."""
        real: Callable[..., object] = getattr(os, name)

        def counted(*args: object, **options: object) -> object:
            return self.call(name, where(*args, **options), lambda: real(*args, **options))

        setattr(os, name, counted)


class CountedFile(io.FileIO):
    """A file whose writes count."""

    injector: Injector

    def write(self, data: object, /) -> int:
        view = memoryview(cast("bytes", data)).cast("B")
        half = view[: max(1, len(view) // 2)]
        whole, halved = (functools.partial(io.FileIO.write, self, part) for part in (view, half))
        return cast("int", self.injector.call("write", _path_of(self.fileno()), whole, halved))


def _place(path: str | os.PathLike[str], dir_fd: int | None) -> str:
    """Where `path` really is: links on the way are followed, one at the end is not."""
    whole = Path(_path_of(dir_fd) if dir_fd is not None else Path.cwd(), path)
    return str(whole.parent.resolve() / whole.name)


def _path_of(fd: int) -> str:
    return str(Path(f"/proc/self/fd/{fd}").readlink())


# Cases


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    """Of one that was killed, minus the signal."""
    out: bytes
    err: str
    peak_mb: float
    """Most memory, over what its process began with."""
    is_hang: bool
    calls: int
    struck: str
    """The call that was struck; empty if none was."""

    def __str__(self) -> str:
        return f"exit {self.code}: {' / '.join(self.err.splitlines())[-600:]}"


class Case:
    """A folder in which commands run, one beside it which nobody may change, and what has failed."""

    def __init__(self, root: Path, start: Path | None = None) -> None:
        self.folder, self.beside, self._streams = root / "inside", root / "beside", root / "streams"
        shutil.rmtree(root, ignore_errors=True)
        for folder in (self.beside / "checkpoints" / "step-00000001", self._streams):
            folder.mkdir(parents=True)
        (self.beside / "kept.txt").write_text("Nobody may change this.\n")
        if start:
            shutil.copytree(start, self.folder, symlinks=True)
        self.tried, self.failed = 1, list[str]()

    def call(self, *args: str, strike: Strike | None = None, stdin: bytes = b"") -> Ended:
        """Run `mt-cli` with `args`, and hold it to what every command must do."""

        def work() -> None:
            sys.argv = ["mt-cli", *args]
            runpy.run_module("mt_cli", run_name="__main__")

        ended = self.fork(work, strike=strike, stdin=stdin)
        expect(not ended.is_hang, f"{args} hangs; {ended}")
        expect("Traceback" not in ended.err and ended.code != BUG, f"{args}: {ended}")
        return ended

    def succeed(self, *args: str, stdin: bytes = b"") -> Ended:
        """Run `mt-cli` with `args`, which has to succeed."""
        ended = self.call(*args, stdin=stdin)
        expect(ended.code == 0, f"{args} has to succeed; {ended}")
        return ended

    def fork(
        self,
        work: Callable[[], object],
        *,
        strike: Strike | None = None,
        stdin: bytes = b"",
        time_limit_s: float = TIME_LIMIT_S,
    ) -> Ended:
        """Run `work` in a child whose working directory is the case's folder."""
        names = ("stdin", "stdout", "stderr", "report")
        given, out, err, report = streams = [self._streams / name for name in names]
        for path in streams:
            path.write_bytes(stdin if path == given else b"")
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            _be_the_child(work, self.folder, strike or Strike("nothing at", 0), streams)
        handle = os.pidfd_open(pid)
        is_hang = not select.select([handle], [], [], time_limit_s)[0]
        os.close(handle)
        if is_hang:
            os.kill(pid, signal.SIGKILL)
        _, status, usage = os.wait4(pid, 0)
        told = dict(line.split(" ", 1) for line in report.read_text(errors="replace").splitlines())
        return Ended(
            os.waitstatus_to_exitcode(status),
            out.read_bytes(),
            err.read_bytes().decode(errors="backslashreplace"),
            peak_mb=max(0, usage.ru_maxrss * 1024 - int(told.get("began", 0))) / 1e6,
            is_hang=is_hang,
            calls=int(told.get("calls", 0)),
            struck=told.get("struck", ""),
        )


def _be_the_child(
    work: Callable[[], object], folder: Path, strike: Strike, streams: Sequence[Path]
) -> NoReturn:
    code = BUG
    try:
        signal.signal(
            signal.SIGINT, signal.default_int_handler
        )  # a job in the background ignores it
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        *standard, report = streams
        for fd, path in enumerate(standard):
            os.dup2(os.open(path, os.O_RDONLY if fd == 0 else os.O_WRONLY | os.O_APPEND), fd)
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", buffering=1, closefd=False)  # noqa: SIM115
        os.chdir(folder)
        injector = Injector(folder, strike, report)
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        injector.tell(f"began {pages * resource.getpagesize()}")
        injector.install()
        try:
            work()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0 if end.code is None else BUG
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        injector.tell(f"calls {injector.calls}")
    finally:
        os._exit(code)  # no clean-up of the parent's


def check_printable(text: str) -> None:
    """Make sure that a terminal finds nothing to obey in `text`."""
    shown = text.replace("\n", "").replace("\t", "")
    expect(shown.isprintable(), f"control characters: {shown[-200:]!a}")


def check_same(found: Path, expected: Path) -> None:
    """Make sure that two folders hold the same, to the last bit, but for what clocks say."""
    one, other = lasting(found), lasting(expected)
    unlike = [name for name in {**one, **other} if one.get(name) != other.get(name)]
    expect(not unlike, f"not what an uninterrupted command makes: {', '.join(sorted(unlike))}")


OF_THE_MOMENT = ("README.md", "train.log", "status.json", "env.json")
CLOCKS = re.compile(rb'"(elapsed_s|[a-z_]+_s)": *("[^"]*"|[^,}\n]*)|"sha256": *\{[^}]*\}')
"""What tells time in JSON, and hashes of that."""


def lasting(folder: Path) -> dict[str, object]:
    """What lies below `folder`, by name, without what clocks say."""
    files = {str(path.relative_to(folder)): path for path in folder.rglob("*")}
    return {name: _content(path) for name, path in files.items() if path.name not in OF_THE_MOMENT}


def _content(path: Path) -> object:
    if not path.is_file() or path.is_symlink():
        return path.readlink() if path.is_symlink() else "folder"
    content = path.read_bytes()
    if path.suffix in (".json", ".jsonl"):
        return CLOCKS.sub(b"", content)
    if path.suffix == ".safetensors":
        begin = 8 + int.from_bytes(content[:8], "little")
        places = {
            name: entry.get("data_offsets") for name, entry in json.loads(content[8:begin]).items()
        }
        tensors = {name: content[begin:][slice(*place)] for name, place in places.items() if place}
        return {
            name: bits for name, bits in tensors.items() if "meter" not in name
        }  # they hold seconds
    return content


@dataclass(frozen=True)
class Site:
    """What all faults share."""

    scratch: Path
    seed: int
    is_quick: bool

    @property
    def template(self) -> Path:
        """The folder that most cases begin with a copy of: corpus, prepared data, a run, its
        export.
        """
        return self.scratch / "template" / "inside"

    def start(self, name: str, change: Callable[[Case], object], start: Path | None = None) -> Path:
        """Another folder to begin with: `start` or the template, changed."""
        case = Case(self.scratch / "starts" / name, start or self.template)
        change(case)
        return case.folder


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong, and what must hold then."""

    name: str
    """Tells it from all others of its family and seed."""
    work: Callable[[Case], None]
    """Makes it and looks at what follows; raises `BrokenPromiseError`, or fills the case's
    `failed`.
    """
    start: Path


def build_template(site: Site) -> None:
    """Make the folder that cases begin with, by the real commands."""
    case = Case(site.scratch / "template")
    case.folder.joinpath("corpus").mkdir(parents=True)
    case.folder.joinpath("tiny.toml").write_text(CONFIG)
    sides = {
        lang: SAMPLE.joinpath(f"train.{lang}").read_bytes().splitlines(True)
        for lang in ("de", "en")
    }
    lengths = [max(map(len, pair)) for pair in zip(*sides.values(), strict=True)]
    short = [i for i, length in enumerate(lengths) if length <= MOST_LETTERS]
    parts = {"train": short[:NUM_TRAIN], "val": short[:NUM_TEST], "test": short[-NUM_TEST:]}
    for (lang, lines), (name, chosen) in itertools.product(sides.items(), parts.items()):
        (case.folder / "corpus" / f"{name}.{lang}").write_bytes(b"".join(lines[i] for i in chosen))
    for command in (PREPARE, FIT, EVALUATE, *([EXPORT] if CAN_EXPORT else [])):
        case.succeed(*command)


# Kills and broken disks


@dataclass(frozen=True)
class Target:
    """A command that writes a folder, and what is known of it when nothing goes wrong."""

    name: str
    command: tuple[str, ...]
    place: Path
    """The folder that it makes, changes or replaces."""
    again: tuple[str, ...]
    """The next command of the kind, where it did not end."""
    start: Path
    calls: int = 0
    end: Path = Path()
    """How its working directory looks after it."""


@functools.cache
def targets(site: Site) -> list[Target]:
    """All commands that write, each run once without a fault; only two if the site is quick."""
    found = [
        Target(
            "train --overwrite", (*ANEW, "--overwrite"), RUN, (*ANEW, "--resume"), site.template
        ),
        Target("evaluate", EVALUATE, RUN, EVALUATE, site.template),
    ]
    if not site.is_quick:
        force = (*PREPARE, "--force")
        no_run = site.start("no run", lambda case: shutil.rmtree(case.folder / RUN))
        train = measured(site, Target("train", FIT, RUN, (*FIT, "--resume"), no_run))
        middle = Strike("SIGTERM at", train.calls * 2 // 3)
        stopped = site.start("stopped", lambda case: case.call(*FIT, strike=middle), no_run)
        no_data = site.start("no data", lambda case: shutil.rmtree(case.folder / PREPARED))
        other_data = site.start("other data", _ask_for_other_data)
        found += [
            train,
            replace(train, name="train --resume", command=train.again, start=stopped),
            Target("prepare", PREPARE, PREPARED, PREPARE, no_data),
            Target("prepare --force", force, PREPARED, force, other_data),
        ]
    if CAN_EXPORT and not site.is_quick:
        int8 = (*EXPORT, "--overwrite", "--quantization", "int8")
        found.append(Target("export --overwrite", int8, EXPORTED, int8, site.template))
    return [measured(site, target) for target in found]


def measured(site: Site, target: Target) -> Target:
    """`target` with the number of its calls and what it ends with."""
    case = Case(site.scratch / "ends" / target.name, target.start)
    ended = case.succeed(*target.command)
    return replace(target, calls=ended.calls, end=case.folder)


def _ask_for_other_data(case: Case) -> None:
    (case.folder / "tiny.toml").write_text(CONFIG.replace("min_freq = 1", "min_freq = 2"))


def spread(calls: int, count: int, draw: random.Random) -> list[int]:
    """`count` of the numbers from 1 to `calls`, one of each of as many equal stretches."""
    count = min(count, calls)
    edges = [1 + calls * i // count for i in range(count + 1)]
    return [draw.randrange(begin, end) for begin, end in itertools.pairwise(edges)]


def kills(site: Site) -> Iterator[Fault]:
    """`kill -9` at random calls that are spread over each command."""
    draw = random.Random(site.seed)
    for target in targets(site):
        for at in spread(target.calls, 2 if site.is_quick else 40, draw):
            yield _struck(target, Strike(draw.choice(KILLS), at))


def broken_disks(site: Site) -> Iterator[Fault]:
    """Calls that fail, spread over each command; of a training, all of them."""
    draw = random.Random(site.seed)
    for target in targets(site):
        many = 1 if site.is_quick else target.calls if target.name == "train" else 12
        for at, what in itertools.product(spread(target.calls, many, draw), ERRORS):
            yield _struck(target, Strike(what, at))


def _struck(target: Target, strike: Strike) -> Fault:
    return Fault(
        f"{target.name}: {strike}", functools.partial(_strike, target, strike), target.start
    )


def _strike(target: Target, strike: Strike, case: Case) -> None:
    """Run the target's command with a strike, and look at what follows."""
    ended = case.call(*target.command, strike=strike)
    try:
        expect(bool(ended.struck), "nothing was struck")
        if strike.what in KILLS:
            expect(ended.code == -signal.SIGKILL, "it was not killed")
        else:
            _check_told(ended, strike)
        follow_up(target, case)
    except BrokenPromiseError as error:
        raise BrokenPromiseError(f"{error} (struck: {ended.struck}; {ended})") from error


def _check_told(ended: Ended, strike: Strike) -> None:
    """Make sure that the command ended well in spite of a broken disk, or says what failed and
    where.
    """
    expect(ended.code in (0, RESOURCES), "the exit code is that of no broken disk")
    if ended.code == RESOURCES:
        is_needless = ended.struck.startswith(
            ("mkdir", "rmdir", "unlink")
        )  # these may fail unnoticed
        reason = (
            os.strerror(ERRORS[strike.what][0] or errno.ENOSPC).removesuffix(" on device").lower()
        )
        expect(is_needless or reason in ended.err.lower(), "another reason is told")
        place, last = Path(ended.struck.split(" ", 1)[1]), ended.err.rstrip().splitlines()[-1]
        named = [
            part for part in ("runs", "data", "exported") if part in place.parts and part in last
        ]
        expect(last.startswith("error: ") and bool(named), "no place is named")


def follow_up(target: Target, case: Case) -> None:
    """Make sure that all is as it was or as it should be, and that the next command makes it so."""
    place, old, new = (folder / target.place for folder in (case.folder, target.start, target.end))
    aside = place.with_name(f".{place.name}.old")
    if aside.exists() and not place.exists():  # whoever opens the folder puts it back
        aside.rename(place)
    expect(
        place.exists() or not old.exists(), "the old folder is gone, and no new one in its place"
    )
    again = target.again
    has_checkpoint = False
    if target.place != RUN:
        expect(
            lasting(place) in (lasting(new), lasting(old)),
            "it is neither the old one nor the new one",
        )
    elif not place.exists() or (
        target.name == "train --overwrite" and lasting(place) == lasting(old)
    ):
        again = target.command
    else:
        has_best, has_checkpoint = (place / "best.txt").exists(), (place / "last.txt").exists()
        case.succeed("inspect", str(RUN))
        expect(
            case.call(*TRANSLATE).code == (0 if has_best else WRONG_USE),
            "translate cannot use the run",
        )
    went_on = "resumed after update" in case.succeed(*again).err
    expect(
        went_on or not has_checkpoint or "--resume" not in again,
        "it began anew, in spite of a checkpoint",
    )
    check_same(case.folder, target.end)


# Resumes

STOPS = (*SIGNALS, "kill after", AN_HOUR)
SETTINGS: Sequence[Sequence[str]] = (
    (),
    ("training.accumulation=2", "training.max_epochs=6"),
    ("training.r_drop=1.0",),
    ('training.optimizer="adam"', "training.clip_norm=0.1"),
    ('training.best_by="loss"', "model.dropout=0.3"),
    ('model.backend="torch"',),
)


def resumes(site: Site) -> Iterator[Fault]:
    """Trainings that are stopped once or twice in every way, and continue as if they had not been."""
    draw = random.Random(site.seed)
    for number in range(2 if site.is_quick else 36):
        what, settings = STOPS[number % len(STOPS)], SETTINGS[number // len(STOPS) % len(SETTINGS)]
        shares = [draw.uniform(0.5, 0.95) for _ in range(draw.choice((1, 2)))]
        name = " ".join([what, *(f"{share:.2f}" for share in shares), *settings])
        yield Fault(name, functools.partial(_resume, what, shares, settings), site.template)


def _resume(what: str, shares: Sequence[float], settings: Sequence[str], case: Case) -> None:
    """Train at once and in pieces, each of which ends after a share of its calls, and compare."""
    sets = [word for each in settings for word in ("--set", each)]
    whole, pieces = ((*FIT, *sets, "--run", f"runs/{name}") for name in ("whole", "pieces"))
    calls = case.succeed(*whole).calls
    limit = ("--time-limit", "30m", "--no-validate") if what == AN_HOUR else ()
    by_signal = -signal.SIGKILL if what in KILLS else 128 + SIGNALS[what] if what in SIGNALS else 0
    resume: tuple[str, ...] = ()
    for share in shares:
        ended = case.call(*pieces, *resume, *limit, strike=Strike(what, int(calls * share)))
        expect(ended.code == (by_signal if ended.struck else 0), f"another exit code: {ended}")
        resume = ("--resume",)
    case.succeed(*pieces, *resume)
    check_same(case.folder / "runs/pieces", case.folder / "runs/whole")


# Flips

HASHED: Mapping[str, tuple[str, ...]] = {
    f"{RUN}/config.toml": TRANSLATE,
    f"{RUN}/tokenizer/*": TRANSLATE,
    f"{RUN}/checkpoints/BEST/model.safetensors": TRANSLATE,
    f"{RUN}/checkpoints/LAST/state.*": RESUME,
    f"{PREPARED}/tokenizer/*": TRAIN,
    f"{PREPARED}/train.*.npy": TRAIN,
    f"{PREPARED}/val.*.npy": TRAIN,
    f"{EXPORTED}/config.toml": TRANSLATE_EXPORTED,
    f"{EXPORTED}/model.bin": TRANSLATE_EXPORTED,
    f"{EXPORTED}/tokenizer/*": TRANSLATE_EXPORTED,
}
"""Files whose sha256 stands in a manifest, and a command that uses them."""


def flips(site: Site) -> Iterator[Fault]:
    """Random bits of each file that is hashed, one after the other: each has to be noticed."""
    draw, run = random.Random(site.seed), site.template / RUN
    best, last = ((run / f"{name}.txt").read_text().strip() for name in ("best", "last"))
    for pattern, command in HASHED.items():
        for path in sorted(site.template.glob(pattern.replace("BEST", best).replace("LAST", last))):
            places = [
                draw.randrange(8 * path.stat().st_size) for _ in range(1 if site.is_quick else 30)
            ]
            name = path.relative_to(site.template)
            yield Fault(str(name), functools.partial(_flip, name, command, places), site.template)


def _flip(name: Path, command: tuple[str, ...], places: Sequence[int], case: Case) -> None:
    path, kept, case.tried = case.folder / name, case.beside.with_name("kept"), len(places)
    shutil.copytree(case.folder / "runs", kept)
    for place in places:
        content = bytearray(path.read_bytes())
        content[place // 8] ^= 1 << place % 8
        whole = path.read_bytes()
        path.write_bytes(content)
        ended = case.call(*command)
        # A resume may warn, and continue from the checkpoint before.
        if (
            ended.code not in ((0, DATA) if command == RESUME else (DATA,))
            or str(name) not in ended.err
        ):
            case.failed.append(f"bit {place} is not noticed, or its file is not named: {ended}")
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(whole)
        shutil.rmtree(case.folder / "runs")
        shutil.copytree(kept, case.folder / "runs")


# Malformed things


def malformed(site: Site) -> Iterator[Fault]:
    """Folders and configs that no program wrote: each is refused at once, and nothing of it is
    obeyed.
    """
    for nth, each in enumerate(malformations(has_export=CAN_EXPORT)):
        if not site.is_quick or nth % 20 == 0:
            yield Fault(each.name, functools.partial(_meet, each), site.template)


def _meet(each: Malformation, case: Case) -> None:
    """Put something malformed into the case's folder, and let its command meet it."""
    each.make(case.folder)
    ended = case.call(*each.command)
    expect(
        ended.code in each.codes,
        f"expected exit {' or '.join(map(str, each.codes))}, found {ended}",
    )
    expect(ended.code == 0 or not ended.out, f"something on stdout: {ended.out[:80]!r}")
    check_printable(ended.out.decode() + ended.err)
    expect(len(ended.err) < 20_000, f"a message of {len(ended.err):,} letters")
    expect(ended.code == 0 or ended.peak_mb <= MOST_MB, f"{ended.peak_mb:,.0f} MB; {ended}")


# Hostile lines

WORDS = "Ein Hund läuft über die Straße ( lachen ) , 3 Kinder ! <s> </s> <pad> <unk> <0x0A> <0x1B> ▁ ￭ ⁇ \ue000"
TRICKS = '\x1b[2J|\x1b]0;owned\x07|{"a": [|<script>|%s%n|$(reboot)|../..|\\n|&amp;|\0|\u2060|😀|👨\u200d👩'
DAMAGED = (
    b"\xed\xa0\x80",
    b"\xed\xbf\xbf",
    b"\xc0\x80",
    b"\xe0\x80\x8a",
    b"\xf8\x88\x80\x80\x80",
    b"\xfe",
)
PIECES: Sequence[Sequence[str | bytes]] = (
    WORDS.split(),
    TRICKS.split("|"),
    DAMAGED,
    " \t\u00a0\u1680\u2003\u3000\x0b\x0c\x85\u2028\u2029\r",
    "\ufeff\u200b\u200d\u00ad\u061c\u202a\u202e\u2066\u2069\U000e0041",
    "\u0301\u0308\u0323\u20dd\u0489\ufe0fﬁ",
)
LONG = (b"a", b"(", b"Ein Hund ", b"\xe2\x80\xa8", "😀".encode(), "\u0301".encode(), b"\xff")
HIDDEN = {*"\ufeff\u200b\u200d\u00ad\u061c\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"}
"""Marks that hide letters or change their order."""


def hostile_lines(number: int, *, seed: int) -> list[bytes]:
    """So many lines of bytes that no person writes; the same seed makes the same."""
    draw = random.Random(seed)
    return [_hostile_line(draw).replace(b"\n", b"") for _ in range(number)]


def _hostile_line(draw: random.Random) -> bytes:
    if draw.random() < 0.003:
        return draw.choice(LONG) * draw.randrange(500, 4000)
    kinds = (
        draw.choices(PIECES, k=1) if draw.random() < 0.1 else PIECES
    )  # one kind: nothing but spaces
    pieces = [draw.choice(draw.choice(kinds)) for _ in range(draw.randrange(8))]
    pieces += (
        [draw.randbytes(draw.randrange(4)), chr(draw.randrange(0xD800))]
        if draw.random() < 0.2
        else []
    )
    encoded = [piece.encode() if isinstance(piece, str) else piece for piece in pieces]
    return draw.choice((b" ", b"")).join(encoded)


def lines(site: Site) -> Iterator[Fault]:
    """Hostile lines through each search: n lines in, n lines out, and nothing that a terminal
    obeys.
    """
    number, run = 60 if site.is_quick else 4000, str(RUN)
    searches = {"greedy": (run,), "beam": (run, "--beam-size", "3"), "exported": (str(EXPORTED),)}
    for name, args in searches.items():
        if name != "exported" or CAN_EXPORT:
            yield Fault(name, functools.partial(_translate, args, number, site.seed), site.template)
    sample = functools.partial(_sample, number // 4, site.seed)
    yield Fault("random subwords, which spell control characters", sample, site.template)


def _sample(number: int, seed: int, case: Case) -> None:
    """Draw random translations from a model that has hardly learned anything."""
    subwords = CONFIG.replace('kind = "spacy"', 'kind = "bpe", vocab_size = 340')
    (case.folder / "subwords.toml").write_text(subwords)
    case.succeed("prepare", "subwords.toml")
    case.succeed("train", "subwords.toml", "--max-steps", "1")
    _translate(("runs/subwords", "--sample", "--temperature", "3"), number, seed, case)


def _translate(args: tuple[str, ...], number: int, seed: int, case: Case) -> None:
    given, case.tried = hostile_lines(number, seed=seed), number
    ended = case.succeed("translate", *args, "--quiet", stdin=b"\n".join(given) + b"\n")
    check_lines(ended.out, given)
    check_printable(ended.err)


def check_lines(out: bytes, given: Sequence[bytes]) -> None:
    """Make sure that `out` has a line for each one `given`, and nothing in it that must not be
    there.
    """
    expect(out.endswith(b"\n"), "the last line does not end")
    found = out.removesuffix(b"\n").split(b"\n")
    expect(len(found) == len(given), f"{len(given)} lines in, {len(found)} out")
    for source, raw in zip(given, found, strict=True):
        text = raw.decode(errors="replace")
        expect(text.encode() == raw, f"no UTF-8, from {source[:200]!r}")
        bad = [
            letter for letter in text if unicodedata.category(letter) == "Cc" or letter in HIDDEN
        ]
        expect(not bad, f"{bad[:3]!a} in a translation, from {source[:200]!r}")
        expect(not text or bool(source.strip()), f"{text[:80]!a}, from nothing: {source[:200]!r}")


# Downloads

FILE = b"zwei Hunde\n" * 1000
DEADLINE_S, ATTEMPTS, GRACE_S = 1.0, 3, 10.0
OK, ESCAPE = b"HTTP/1.1 200 OK\r\n", b"\x1b[2J\x1b]0;owned\x07"


class Answer(NamedTuple):
    """What a broken server sends: something first, then pieces without end, or nothing for some
    seconds.
    """

    first: bytes
    piece: bytes = b""
    pause_s: float = 0.0
    code: int = RESOURCES
    """What a download from it exits with."""


def _body(content: bytes, length: int, *, pause_s: float = 0.0, code: int = RESOURCES) -> Answer:
    return Answer(OK + b"Content-Length: %d\r\n\r\n" % length + content, b"", pause_s, code)


ANSWERS: Mapping[str, Answer] = {
    "an endless body": Answer(OK + b"\r\n", b"x" * 65_536, code=DATA),
    "a byte in a tenth of a second": Answer(OK + b"\r\n", b"x", 0.1),
    "a header that never ends": Answer(OK + b"X: ", b"a" * 100, 0.001),
    "headers that never end": Answer(OK, b"X: y\r\n", 0.0001),
    "a status that is garbage": Answer(ESCAPE * 99 + b"\r\n\r\n"),
    "no answer": Answer(b"", pause_s=60.0),
    "a hung-up connection": Answer(b""),
    "silence in the midst": _body(FILE[:5000], len(FILE), pause_s=60.0),
    "a body that is too short": _body(FILE[:-50], len(FILE)),
    "a length that is a lie": _body(FILE, 10**15),
    "another file": _body(FILE.replace(b"z", b"Z"), len(FILE), code=DATA),
    "a chunk without end": Answer(OK + b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 100_000),
    "a redirect to a file": Answer(b"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\n\r\n"),
    "a redirect to another host": Answer(
        b"HTTP/1.1 302 Found\r\nLocation: http://198.51.100.1/x\r\n\r\n"
    ),
    "404 with an escape": Answer(b"HTTP/1.1 404 " + ESCAPE * 999 + b"\r\n\r\n"),
}


def downloads(site: Site) -> Iterator[Fault]:
    """Servers that mean no good: a download ends in time, and leaves the old file as it was."""
    for nth, (name, answer) in enumerate(ANSWERS.items()):
        if not site.is_quick or nth % 6 == 0:
            yield Fault(name, functools.partial(_fetch, answer), site.template)


def _fetch(answer: Answer, case: Case) -> None:
    """Download from a broken server in place of a file that is there, and of none."""
    kept = case.folder / "old.gz"
    kept.write_bytes(FILE)
    before = lasting(case.folder)
    with _served(answer) as port:
        for path in (kept, kept.with_name("new.gz")):
            work = functools.partial(_download, port, path)
            ended = case.fork(work, time_limit_s=ATTEMPTS * DEADLINE_S + GRACE_S)
            expect(ended.code == answer.code, f"expected exit {answer.code}, found {ended}")
            check_printable(ended.err)
            expect(len(ended.err) < 3_000, f"a message of {len(ended.err):,} letters")
            expect(ended.peak_mb <= MOST_MB, f"{ended.peak_mb:,.0f} MB; {ended}")
            expect(lasting(case.folder) == before, "files are left, or the old one was changed")


def _download(port: int, path: Path) -> None:
    """Download as `prepare` does, which takes the address of no other server."""
    from mt_cli.data import corpora
    from mt_cli.errors import MtCliError
    from mt_cli.machine.terminal import print_aside, set_up_logging

    set_up_logging(is_quiet=False, is_verbose=False)
    os.environ["no_proxy"] = "127.0.0.1"
    url, sha256 = f"http://127.0.0.1:{port}/train.de.gz", hashlib.sha256(FILE).hexdigest()
    try:
        corpora.TIMEOUT_S = corpora.DEADLINE_S = DEADLINE_S
        corpora.download(url, path, sha256=sha256, most=len(FILE), backoff_s=0.0)
    except MtCliError as error:
        print_aside(str(error))
        raise SystemExit(error.exit_code) from error


@contextlib.contextmanager
def _served(answer: Answer) -> Iterator[int]:
    """The port of a server on this machine that gives each who connects the same answer."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection = server.accept()[0]
                    threading.Thread(target=_serve, args=(answer, connection), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield int(server.getsockname()[1])
        server.shutdown(socket.SHUT_RDWR)


def _serve(answer: Answer, connection: socket.socket) -> None:
    with contextlib.suppress(OSError), connection:
        connection.recv(1 << 16)
        connection.sendall(answer.first)
        while answer.piece:
            connection.sendall(answer.piece)
            time.sleep(answer.pause_s)
        connection.settimeout(answer.pause_s or 0.01)
        connection.recv(1)  # until the other side gives up


# The command

FAMILIES: Mapping[str, Callable[[Site], Iterator[Fault]]] = {
    "kills": kills,
    "broken disks": broken_disks,
    "resumes": resumes,
    "flips": flips,
    "malformed": malformed,
    "lines": lines,
    "downloads": downloads,
}
LATE_IMPORTS = ("sacrebleu", "sentencepiece", "spacy.lang.de", "spacy.lang.en", "torchtext.vocab")
"""What commands import late, and so the parent early."""


class Outcome(NamedTuple):
    """What came of one case, which holds one fault or many."""

    fault: str
    tried: int
    failed: Sequence[str]


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/torture", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few faults of each family")
    parser.add_argument(
        "--only", action="append", choices=FAMILIES, metavar="FAMILY", help="may be repeated"
    )
    parser.add_argument("--match", metavar="FAULT", help="only the fault of this name")
    parser.add_argument("--seed", type=int, default=1, help="of all that is random (default: 1)")
    cores = len(os.sched_getaffinity(0))
    parser.add_argument(
        "--jobs", type=int, default=cores, help="faults at a time (default: the cores)"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="torture-") as folder:
        site = Site(Path(folder).resolve(), options.seed, options.quick)
        _import_everything(site.scratch)
        build_template(site)
        rows = [torture(site, family, options) for family in options.only or FAMILIES]
    print("| faults | tried | survived | seconds |\n| --- | --- | --- | --- |")
    for family, tried, survived, seconds in rows:
        print(f"| {family} | {tried:,} | {survived:,} | {seconds:.0f} |")
    if options.match and not any(row.tried for row in rows):
        sys.exit(WRONG_USE)
    sys.exit(NOT_SURVIVED if any(row.survived < row.tried for row in rows) else 0)


class Row(NamedTuple):
    """What came of a family."""

    family: str
    tried: int
    survived: int
    seconds: float


def torture(site: Site, family: str, options: argparse.Namespace) -> Row:
    """Try the faults of a family; each that was not survived is told with the command that makes it
    again.
    """
    started_at, tried, failed = time.monotonic(), 0, 0
    faults = [fault for fault in FAMILIES[family](site) if options.match in (None, fault.name)]
    quick = ["--quick"] if site.is_quick else []
    for outcome in try_all(faults, site, jobs=options.jobs):
        tried, failed = tried + outcome.tried, failed + len(outcome.failed)
        again = [*quick, "--seed", str(site.seed), "--only", family, "--match", outcome.fault]
        for why in outcome.failed:
            print(f"{family}: {outcome.fault}: {why}", file=sys.stderr)
            print(f"    again: scripts/torture {shlex.join(again)}", file=sys.stderr, flush=True)
    print(f"{family}: {tried - failed:,} of {tried:,} survived", file=sys.stderr, flush=True)
    return Row(family, tried, tried - failed, time.monotonic() - started_at)


def try_all(faults: Sequence[Fault], site: Site, *, jobs: int) -> Iterator[Outcome]:
    """The outcome of each of `faults`, as they end; so many are tried at a time."""
    with ProcessPoolExecutor(
        jobs, get_context("fork"), initializer=_hold, initargs=(faults, site)
    ) as pool:
        for done in as_completed([pool.submit(_try, number) for number in range(len(faults))]):
            yield done.result()


_held: tuple[Sequence[Fault], Site]
"""In a process of the pool: what it has to try. Faults hold functions, which cannot be sent to it."""


def _hold(faults: Sequence[Fault], site: Site) -> None:
    global _held  # noqa: PLW0603
    _held = faults, site


def _try(number: int) -> Outcome:
    """Try one fault, in a folder of its own."""
    faults, site = _held
    fault, root = faults[number], site.scratch / f"case-{os.getpid()}"
    case = Case(root, fault.start)
    beside = lasting(case.beside)
    try:
        fault.work(case)
        expect(lasting(case.beside) == beside, "a file outside of the folder was changed")
    except BrokenPromiseError as error:
        case.failed.append(str(error))
    except Exception as error:
        case.failed.append(f"the trial itself failed: {''.join(traceback.format_exception(error))}")
    shutil.rmtree(root, ignore_errors=True)
    return Outcome(fault.name, case.tried, case.failed)


def _import_everything(scratch: Path) -> None:
    """Import what commands import, once for all children, with one thread each."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = "1"
    os.environ["MPLCONFIGDIR"], sys.dont_write_bytecode = str(scratch), True
    import mt_cli

    own = [module.name for module in pkgutil.walk_packages(mt_cli.__path__, "mt_cli.")]
    for name in [*(name for name in own if not name.endswith("__main__")), *LATE_IMPORTS]:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # or the first collection of every child would copy all of it


if __name__ == "__main__":
    main()
