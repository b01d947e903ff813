"""Every promise about files, put to the test: faults of many kinds, and a table of those that were survived.

One process imports everything, forks a child for each fault, and tells it which call is to go wrong.
"""

import argparse
import gc
import importlib
import json
import os
import pkgutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from faults.broken_disks import broken_disks
from faults.case import Site
from faults.downloads import downloads
from faults.flips import flips
from faults.kills import kills
from faults.lines import lines
from faults.malformed.family import malformed
from faults.outcome import Outcome, as_json, failures, table
from faults.resumes import resumes
from faults.shim import build_shim, find_shim, preloaded
from faults.trial import Fault, try_faults
from faults.workspace import build_template
from mt_cli.machine.workers import usable_cores

SCRATCH = "MT_CLI_TORTURE_SCRATCH"
"""Variable that tells the process under the shim where it may write."""
ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
FAILED, WRONG_USE = 6, 2
LATE_IMPORTS = (
    "sacrebleu",
    "sentencepiece",
    "spacy.lang.de",
    "spacy.lang.en",
    "torchtext.vocab",
    "ctranslate2",
)
"""What commands import late, and so a parent early."""

FAMILIES: Mapping[str, Callable[[Site], Iterator[Fault]]] = {
    "kills": kills,
    "broken disks": broken_disks,
    "resumes": resumes,
    "flips": flips,
    "malformed": malformed,
    "lines": lines,
    "downloads": downloads,
}
"""What goes wrong, by name: each gives its faults, fewer where the site is quick."""


def main(args: Sequence[str] | None = None) -> None:
    """Build the shim, and torture in a process under it."""
    options = _parser().parse_args(args)
    if SCRATCH in os.environ:
        raise SystemExit(_torture(options, Path(os.environ.pop(SCRATCH))))
    with tempfile.TemporaryDirectory(prefix="torture-") as folder:
        library = build_shim(Path(folder))
        if library is None:
            print(
                "no C compiler that works here: a stand-in of Python takes the shim's place", file=sys.stderr
            )
        environment = {
            **preloaded(library),
            **dict.fromkeys(ONE_THREAD, "1"),
            SCRATCH: folder,
            "MPLCONFIGDIR": folder,
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        command = [sys.executable, "-m", "faults.torture", *(sys.argv[1:] if args is None else args)]
        raise SystemExit(subprocess.run(command, env=environment, check=False).returncode)


def _torture(options: argparse.Namespace, scratch: Path) -> int:
    """Try what was asked for, under the shim, and give the exit code."""
    os.environ.pop("LD_PRELOAD", None)  # for processes that are started, not forked
    started_at = time.monotonic()
    _import_everything()
    from faults.stand_in import arm_stand_in  # late: it imports mt_cli

    arm = find_shim() or arm_stand_in
    template = build_template(scratch / "template", arm)
    site = Site(template, scratch, arm, options.seed, options.quick)
    outcomes = []
    for name in options.only or FAMILIES:
        faults = (fault for fault in FAMILIES[name](site) if not options.match or fault.name == options.match)
        own = list(_told(try_faults(faults, site, jobs=options.jobs)))
        outcomes += own
        _tell(
            f"{name}: {sum(each.tried for each in own):,} tried, {time.monotonic() - started_at:.0f} s so far"
        )
    if options.match and not outcomes:
        _tell(f"no fault is called {options.match!r}; a fault that failed was told with its name")
        return WRONG_USE
    broken = failures(outcomes, seed=options.seed, is_quick=options.quick)
    for line in broken:
        print(line, file=sys.stderr)
    print(json.dumps(as_json(outcomes, seed=options.seed), indent=2) if options.json else table(outcomes))
    _tell(f"{time.monotonic() - started_at:.0f} s on {options.jobs} cores, seed {options.seed}")
    return FAILED if broken else 0


def _import_everything() -> None:
    """Import what commands import, once for all children."""
    import mt_cli

    names = [name for _, name, _ in pkgutil.walk_packages(mt_cli.__path__, "mt_cli.")]
    for name in [*(name for name in names if not name.endswith("__main__")), *LATE_IMPORTS]:
        try:
            importlib.import_module(name)
        except ImportError:
            _tell(f"{name} is not installed; what needs it is left out")
    gc.collect()
    gc.freeze()  # or the first collection of every child would copy all of it


def _told(outcomes: Iterator[Outcome]) -> Iterator[Outcome]:
    """`outcomes`, each failure told at once."""
    for outcome in outcomes:
        for why in outcome.failed:
            _tell(f"not survived: {outcome.family}: {outcome.fault}: {why}")
        yield outcome


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/torture", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few faults of each family")
    parser.add_argument("--only", action="append", choices=FAMILIES, metavar="FAMILY", help="may be repeated")
    parser.add_argument("--match", metavar="FAULT", help="only the fault of this name")
    parser.add_argument("--seed", type=int, default=1, help="of all that is random (default: 1)")
    parser.add_argument(
        "--jobs", type=int, default=usable_cores(), help="cases at a time (default: the cores at hand)"
    )
    parser.add_argument("--json", action="store_true", help="a JSON document in place of the table")
    return parser


if __name__ == "__main__":
    main()
