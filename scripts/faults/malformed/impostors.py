"""What stands in place of a file: every kind of it, in place of every file of a run."""

import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from faults.malformed.malformation import (
    INSPECT,
    RESUME,
    RUN,
    TOO_DEEP,
    TOO_MANY_DIGITS,
    TRANSLATE,
    Malformation,
    best_checkpoint,
    last_checkpoint,
)

HUGE = 1 << 37
"""Bytes of a file with holes, which takes no room on a disk."""
IMPOSTORS: Mapping[str, Callable[[Path], object]] = {
    "a link outside": lambda path: path.symlink_to(_outside(path)),
    "a link to a device": lambda path: path.symlink_to("/dev/zero"),
    "a broken link": lambda path: path.symlink_to("nowhere"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a pipe": os.mkfifo,
    "a folder": Path.mkdir,
}
"""Things that are no files, each by what puts it there."""
CONTENTS: Mapping[str, bytes] = {
    "nothing": b"",
    "noise": bytes(range(256)) * 16,
    "text that is too deep": TOO_DEEP,
    "a number of too many digits": TOO_MANY_DIGITS,
    "a list": b"[1, 2, 3]",
}
"""Files of another kind."""
FILES: Mapping[str, tuple[str, ...]] = {
    "manifest.json": TRANSLATE,
    "config.toml": TRANSLATE,
    "tokenizer/tokenizer.json": TRANSLATE,
    "best.txt": TRANSLATE,
    "status.json": INSPECT,
    "env.json": INSPECT,
    "eval/test-greedy/scores.json": INSPECT,
    "last.txt": RESUME,
}
"""Files of a run, each with a command that reads it."""
OF_BEST, OF_LAST = ("manifest.json", "model.safetensors"), ("state.json", "state.safetensors")
"""Files of checkpoints."""


def impostors() -> Iterator[Malformation]:
    """Every kind of impostor in place of every file."""
    kinds: dict[str, Callable[[Path], object]] = {
        **IMPOSTORS,
        "too much": _make_huge,
        **{name: partial(_write, content=content) for name, content in CONTENTS.items()},
    }
    for kind, put in kinds.items():
        for name, command in FILES.items():
            yield Malformation(f"{kind} for {name}", partial(_replace, name=RUN / name, put=put), command)
        for name in OF_BEST:
            yield Malformation(
                f"{kind} for the best {name}", partial(_replace_in, best_checkpoint, name, put), TRANSLATE
            )
        for name in OF_LAST:  # a resume falls back to the checkpoint before
            yield Malformation(
                f"{kind} for the last {name}",
                partial(_replace_in, last_checkpoint, name, put),
                RESUME,
                (0, 3),
            )
    for kind, put in IMPOSTORS.items():
        for name in ("train.log", "metrics.jsonl"):
            yield Malformation(
                f"{kind} for {name}", partial(_replace, name=RUN / name, put=put), RESUME, (3, 5)
            )
    yield from _linked_folders()


def _linked_folders() -> Iterator[Malformation]:
    for name, command in {"tokenizer": TRANSLATE, "checkpoints": RESUME}.items():
        yield Malformation(f"a link to a folder for {name}", partial(_move_out, name=name), command)
    yield Malformation("a link to somebody's folder for checkpoints", _link_checkpoints, RESUME)
    yield Malformation("a link to somebody's folder for eval", _link_eval, ("evaluate", str(RUN)), (0,))
    yield Malformation(
        "a file for checkpoints", partial(_replace, name=RUN / "checkpoints", put=Path.touch), TRANSLATE
    )
    yield Malformation(
        "a file for a checkpoint",
        lambda folder: _put_in_place(best_checkpoint(folder), Path.touch),
        TRANSLATE,
    )


def _outside(path: Path) -> Path:
    """A file that is not of the run."""
    inside = next(each for each in path.parents if each.name == "inside")
    return inside.with_name("beside") / "kept.txt"


def _replace(folder: Path, *, name: Path, put: Callable[[Path], object]) -> None:
    _put_in_place(folder / name, put)


def _replace_in(
    where: Callable[[Path], Path], name: str, put: Callable[[Path], object], folder: Path
) -> None:
    _put_in_place(where(folder) / name, put)


def _put_in_place(path: Path, put: Callable[[Path], object]) -> None:
    path.rename(path.with_name(f"{path.name}.real"))
    put(path)


def _write(path: Path, *, content: bytes) -> None:
    path.write_bytes(content)


def _make_huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(HUGE)


def _move_out(folder: Path, *, name: str) -> None:
    place = folder / RUN / name
    place.rename(folder / name)
    place.symlink_to(folder / name)


def _link_checkpoints(folder: Path) -> None:
    _put_in_place(
        folder / RUN / "checkpoints", lambda path: path.symlink_to(_outside(path).parent / "checkpoints")
    )


def _link_eval(folder: Path) -> None:
    _put_in_place(folder / RUN / "eval", lambda path: path.symlink_to(_outside(path).parent))
