"""One changed bit: every one of manifests, pointers and what is sealed, and random ones of all other files.

A flip is survived if it is noticed before anything is used (exit 3, the file named), or if all that is read
is what was read before. Thousands are tried in one process: in place of whole commands, what these call.

    open_run, checkpoint_folder                 all that take a run: its manifest, config, tokenizer, pointers
    load_model                                  translate, evaluate, export: weights
    load_state, load_training_tensors           train --resume: progress, the optimiser's state
    describe_status, read_facts                 inspect, report: status.json, env.json
    curves_of_run                               plot, report: metrics.jsonl
    read_scores, open_evaluation                inspect, evaluate: scores.json, and the texts beside it
    open_prepared                               train, evaluate: encoded splits, their lines, tokenizers
    open_exported_run                           translate: an exported model
"""

import os
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import product
from pathlib import Path

from torch import Tensor

from faults.case import Case, Site
from faults.trial import Fault
from mt_cli.artefacts.checkpoint import load_state, load_training_tensors, shapes_of
from mt_cli.artefacts.evaluation import open_evaluation, read_scores
from mt_cli.artefacts.exported_run import open_exported_run
from mt_cli.artefacts.prepared import open_prepared
from mt_cli.artefacts.run import open_run
from mt_cli.artefacts.run_facts import ENVIRONMENT, read_facts
from mt_cli.errors import DataError, MtCliError
from mt_cli.stages.curves import curves_of_run
from mt_cli.stages.inspect.inspect import describe_status

PROMISE, FAMILY = 3, "flips"
BITS = 8
NUM_ELSEWHERE = 300
QUICK_STRIDE = 211
"""Of the bits of a manifest, the quick part flips one in so many; of the other files, a tenth."""
RUN, PREPARED, EXPORTED = Path("runs/tiny"), Path("data/prepared/tiny"), Path("exported/tiny")
Flip = tuple[int, int]
"""Number of a byte, and of a bit in it."""
Read = Callable[[Path], object]
"""What a command learns from the file at a path. Of two readings, it can be told whether they differ."""


def flips(site: Site) -> Iterator[Fault]:
    """A fault for each file, which stands for many flips of it."""
    for pattern, read in EVERY_BIT.items():
        for path in sorted(site.template.glob(pattern)):
            flips = list(product(range(path.stat().st_size), range(BITS)))
            yield _fault(site, path, read, flips[:: QUICK_STRIDE if site.is_quick else 1])
    others = list(_files_elsewhere(site.template))
    drawn = random.Random(site.seed)
    number = NUM_ELSEWHERE // 10 if site.is_quick else NUM_ELSEWHERE
    for nth, (path, read) in enumerate(others):
        size, share = path.stat().st_size, len(range(nth, number, len(others)))
        yield _fault(site, path, read, [(drawn.randrange(size), drawn.randrange(BITS)) for _ in range(share)])


def _fault(site: Site, path: Path, read: Read, flips: Iterable[Flip]) -> Fault:
    name = path.relative_to(site.template)
    return Fault(PROMISE, FAMILY, str(name), partial(flip, name=name, read=read, flips=flips))


def flip(case: Case, *, name: Path, read: Read, flips: Iterable[Flip]) -> None:
    """Flip a bit of the file `name`, read it, and flip the bit back; for each of `flips`."""
    path = case.folder / name
    whole, expected = path.read_bytes(), read(path)
    case.tried = 0
    with path.open("r+b", buffering=0) as file:
        for byte, bit in flips:
            os.pwrite(file.fileno(), bytes([whole[byte] ^ 1 << bit]), byte)
            why = _what_is_wrong(path, read, expected)
            os.pwrite(file.fileno(), whole[byte : byte + 1], byte)
            case.tried += 1
            if why:
                case.failed.append(f"byte {byte}, bit {bit}: {why}")


def _what_is_wrong(path: Path, read: Read, expected: object) -> str:
    """What is wrong with the way in which the damaged file is read; empty if nothing is."""
    try:
        found = read(path)
    except MtCliError as error:
        if error.exit_code != DataError.exit_code:
            return f"exit {error.exit_code}: {error}"
        return "" if str(path) in str(error) else f"the file is not named: {error}"
    except Exception as error:
        return f"a traceback: {error!r}"
    return "" if found == expected else "used as if nothing were wrong"


def _files_elsewhere(template: Path) -> Iterator[tuple[Path, Read]]:
    for pattern, read in RANDOM_BITS.items():
        every = {path for other in EVERY_BIT for path in template.glob(other)}
        yield from (
            (path, read) for path in sorted(template.glob(pattern)) if path not in every and path.is_file()
        )


# What is read through a file


def _run(path: Path) -> object:
    return open_run(_above(path, RUN))


def _pointer(path: Path) -> object:
    return open_run(path.parent).checkpoint_folder(path.stem)


def _status(path: Path) -> object:
    return describe_status(open_run(path.parent))


def _environment(path: Path) -> object:
    return read_facts(path.parent, ENVIRONMENT)


def _metrics(path: Path) -> object:
    return curves_of_run(path.parent)


def _checkpoint(path: Path) -> object:
    model = open_run(_above(path, RUN)).load_model(checkpoint=path.parent.name)
    tensors = load_training_tensors(path.parent, shapes_of(model))
    return load_state(path.parent), _as_bytes(dict(model.named_parameters())), _as_bytes(tensors)


def _as_bytes(tensors: Mapping[str, Tensor]) -> dict[str, bytes]:
    return {name: tensor.detach().numpy().tobytes() for name, tensor in tensors.items()}


def _scores(path: Path) -> object:
    return read_scores(path.parent, run=_above(path, RUN))


def _evaluation(path: Path) -> object:
    found = open_evaluation(path.parent, run=_above(path, RUN))
    if found is None:  # then the sentences are translated anew: what is damaged is not used
        raise DataError(f"{path}: not used")
    return found


def _prepared(path: Path) -> object:
    return open_prepared(_above(path, PREPARED))


def _exported(path: Path) -> object:
    return open_exported_run(_above(path, EXPORTED))


def _above(path: Path, folder: Path) -> Path:
    """The one of the folders above `path` that ends like `folder`."""
    return next(each for each in path.parents if each.parts[-len(folder.parts) :] == folder.parts)


EVERY_BIT: dict[str, Read] = {
    "runs/tiny/manifest.json": _run,
    "runs/tiny/*.txt": _pointer,
    "runs/tiny/status.json": _status,
    "runs/tiny/env.json": _environment,
    "runs/tiny/metrics.jsonl": _metrics,
    "runs/tiny/checkpoints/*/*.json": _checkpoint,
    "runs/tiny/eval/*/scores.json": _scores,
    "data/prepared/tiny/manifest.json": _prepared,
    "exported/tiny/manifest.json": _exported,
}
"""Files that are flipped bit by bit, and how each is read."""
RANDOM_BITS: dict[str, Read] = {
    "runs/tiny/config.toml": _run,
    "runs/tiny/tokenizer/*": _run,
    "runs/tiny/checkpoints/*/*.safetensors": _checkpoint,
    "runs/tiny/eval/*/*.txt": _evaluation,
    "data/prepared/tiny/**/*": _prepared,
    "exported/tiny/**/*": _exported,
}
"""Files of which some bits are flipped."""
