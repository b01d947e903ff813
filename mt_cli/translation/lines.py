r"""What becomes of a line: its parts, which are translated alone and joined again; and streams of
lines.

Only `\n` ends a line, and an unterminated last line counts.
"""

import io
import logging
import os
import re
import shutil
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO, cast

from mt_cli.config.schema import DecodingConfig
from mt_cli.data.files import DAMAGE, check_is_text, open_text, read_errors_named
from mt_cli.errors import DataError, ResourceError, UsageError
from mt_cli.machine.files import replaced, write_errors_named
from mt_cli.text import BOS_ID, PAD_ID, UNK_ID
from mt_cli.text.normalize import decode_line, is_valid_utf8
from mt_cli.text.tokenizer import Tokenizers

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Translation:
    """One translation of a line."""

    text: str
    score: float
    """Natural logarithm of its probability, over the length penalty; of a line in parts, their sum."""
    tokens: tuple[str, ...] = field(default=(), repr=False)
    src_tokens: tuple[str, ...] = field(default=(), repr=False)
    alignment: tuple[tuple[int, int], ...] = field(default=(), repr=False)
    """(place in `src_tokens`, place in `tokens`) for each of `tokens`, where it was asked for."""
    log_prob: float = field(default=0.0, repr=False)
    """Natural logarithm of its probability, without the length penalty; of a line in parts, their
    sum.
    """


@dataclass(frozen=True)
class Part:
    """A line, or as much of it as the model can take at once."""

    text: str
    """Normalised, as the user wrote it."""
    ids: list[int]


def checked_lines(lines: Iterable[str]) -> list[str]:
    """`lines` as a list, once it is sure that they are lines.

    Raises:
        UsageError: they are something else, such as one line that is not in a list.
    """
    if isinstance(lines, str):
        raise UsageError(
            "lines: expected a list of lines, found a str; put the one line into a list"
        )
    if isinstance(lines, bytes) or not isinstance(lines, Iterable):
        raise UsageError(f"lines: expected a list of lines, found {type(lines).__name__}")
    return [checked_line(line, name=f"lines[{i}]") for i, line in enumerate(lines)]


def checked_line(line: object, *, name: str) -> str:
    """`line`, once it is sure that it is one; `name` is what the caller calls it.

    Raises:
        UsageError: it is no str.
    """
    if not isinstance(line, str):
        raise UsageError(f"{name}: expected a str, found {line!r:.60}")
    return line


def joined(parts: Sequence[Translation], *, space: str) -> Translation:
    """The translation of a line of which `parts` are the translations, with `space` between them."""
    if len(parts) == 1:
        return parts[0]
    src_starts = [0, *accumulate(len(part.src_tokens) for part in parts)]
    starts = [0, *accumulate(len(part.tokens) for part in parts)]
    return Translation(
        space.join(filter(None, (part.text for part in parts))),
        sum(part.score for part in parts),
        tokens=tuple(token for part in parts for token in part.tokens),
        src_tokens=tuple(token for part in parts for token in part.src_tokens),
        alignment=tuple(
            (src + src_start, tgt + start)
            for part, src_start, start in zip(parts, src_starts, starts, strict=False)
            for src, tgt in part.alignment
        ),
        log_prob=sum(part.log_prob for part in parts),
    )


def counting_lines(
    of_lines: Sequence[Sequence[Part]], on_progress: Callable[[int], None] | None
) -> Callable[[Sequence[int]], None] | None:
    """From places of parts that are done: tell `on_progress` how many lines that is, empty ones at
    once.

    A line counts with its first part.
    """
    if on_progress is None:
        return None
    is_first = [number == 0 for of_line in of_lines for number in range(len(of_line))]
    if num_empty := sum(not of_line for of_line in of_lines):
        on_progress(num_empty)
    return lambda places: on_progress(sum(is_first[place] for place in places))


NEVER_SAID = (PAD_ID, BOS_ID)
"""Symbols that no translation has."""


def forbidden_ids(tokenizers: Tokenizers, config: DecodingConfig) -> Sequence[int]:
    """Ids that a search may not choose. `<unk>` is one unless a word from the source will stand for
    it.

    No reader has any use for `<unk>`: the likeliest real word stands in its place then.
    """
    is_replaced = config.replace_unk and tokenizers.kind == "spacy"
    return NEVER_SAID if is_replaced else (*NEVER_SAID, UNK_ID)


def unk_rate(lines: Sequence[str], tokenizers: Tokenizers) -> float:
    """Share of the tokens of the source `lines` that the vocabulary lacks; subwords lack none."""
    ids = tokenizers.encode(lines, "src")
    return sum(each.count(UNK_ID) for each in ids) / max(1, sum(map(len, ids)))


# Streams of lines: what is translated, and where translations go

READ_BYTES = 1 << 18
FIRST_INVALID = 3
"""Lines that are not UTF-8 of which each is told of; of more, only their number."""
FIRST_LINES = 128
"""Few, so that the first translations come soon; each later portion is twice as large."""
LINES_AT_ONCE = 2048
"""Enough that sorting by length fills batches evenly, few enough that memory stays small."""
OPEN_FILE = re.compile(r"/dev/(stdout|stderr)|(?:/dev|/proc/(?:self|thread-self))/fd/(\d+)")
"""Names of what a shell has opened for this program, as in `-o /dev/stdout >> file`."""


def line_chunks(source: io.BufferedIOBase, *, side: str = "") -> Iterator[list[str]]:
    """The lines of `source` as they arrive: one by one when a person types, many at once from a
    file.

    `side` is what warnings of lines that are not UTF-8 call it, beside the line's number.
    """
    rest, most, number, data = b"", FIRST_LINES, 0, b"\n"
    num_invalid = 0
    while data:
        with read_errors_named(Path(str(getattr(source, "name", "the input")))):
            data = source.read1(READ_BYTES)
        if number == 0 and not rest:
            check_is_text(data, "standard input")
        *lines, rest = (rest + data).split(b"\n")
        if rest and not data:
            lines, rest = [rest], b""
        # Never kept back for more to come: whoever writes may be waiting for the answer.
        while lines:
            for raw in lines[:most]:
                number += 1
                if not is_valid_utf8(raw):
                    num_invalid += 1
                    if num_invalid <= FIRST_INVALID:
                        place = f"{side} line {number}".lstrip()
                        log.warning(
                            "%s: not valid UTF-8; what could not be read was left out", place
                        )
            yield list(map(decode_line, lines[:most]))
            lines, most = lines[most:], min(2 * most, LINES_AT_ONCE)
    if num_invalid > FIRST_INVALID:
        log.warning("%d lines in all are not valid UTF-8", num_invalid)


def typed_lines() -> Iterator[list[str]]:
    """Lines as a person types them at a prompt, which can be edited; Ctrl-D ends them."""
    with suppress(ImportError):  # Windows has none
        import readline  # noqa: F401 — input() uses it
    while True:
        try:
            line = input("> ")
        except EOFError:
            return
        yield [decode_line(line.encode("utf-8", "surrogateescape"))]


def open_source(name: str, *, text: str | None = None) -> AbstractContextManager[io.BufferedIOBase]:
    """The bytes to translate: `text` if given, else the file `name`, where `-` is stdin."""
    if text is not None:
        if name != "-":
            raise UsageError("give either --text or --input, not both")
        return io.BytesIO(text.encode("utf-8", "surrogateescape") + b"\n")
    if name == "-":
        if sys.stdin is None:
            raise UsageError("standard input is closed; name a file with --input, or use --text")
        with suppress(OSError):  # no real stream, as in a test
            os.set_blocking(
                sys.stdin.fileno(), True
            )  # or what has not come yet would be taken for the end
        return nullcontext(cast("io.BufferedReader", sys.stdin.buffer))
    return open_text(Path(name))


def count_lines(source: io.BufferedIOBase) -> int | None:
    """Lines from where `source` stands; None if it is no file, so that nobody can know before its
    end.
    """
    try:
        if not stat.S_ISREG(os.fstat(source.fileno()).st_mode):
            return None
        begin = source.tell()
        num_lines = sum(1 for _ in source)
        source.seek(begin)
    except (
        OSError,
        *DAMAGE,
    ):  # no real stream, or one that cannot be read: translating it will say so
        return None
    return num_lines


class Target:
    """Where translations go."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self.file, self._path = file, path
        self.num_lines = 0

    def write(self, data: bytes) -> None:
        """Write whole lines at once."""
        with write_errors_named(self._path):
            self.file.write(data)
            self.file.flush()
        self.num_lines += data.count(b"\n")

    def keep(self) -> None:
        """Keep what is written of a file that will not be completed, in one of another name."""
        kept = self._path.with_name(f"{self._path.name}.partial")
        with suppress(OSError):
            shutil.copyfile(self.file.name, kept)
            log.warning("%d translated lines are kept in %s", self.num_lines, kept)


@contextmanager
def open_target(name: str) -> Iterator[Target]:
    """Where translations go: stdout for `-`, else a file that appears under its name when complete."""
    path = Path(name)
    if name == "-":
        if sys.stdout is None:
            raise ResourceError("standard output is closed; name a file with --output")
        yield Target(sys.stdout.buffer, path)
        return
    with ExitStack() as stack:
        with write_errors_named(path):
            if found := OPEN_FILE.fullmatch(str(path)):
                stream, number = found.groups()
                descriptor = {"stdout": 1, "stderr": 2}[stream] if stream else int(number)
                # A copy of it writes where the shell's own stands: behind what others have written.
                file = stack.enter_context(os.fdopen(os.dup(descriptor), "wb"))
            elif (
                path.exists() and not path.is_file()
            ):  # a pipe, or a device: neither must be replaced
                file = stack.enter_context(path.open("wb"))
            else:
                file = None
        if file is not None:
            yield Target(file, path)
            return
        place = (
            path.resolve() if path.is_symlink() else path
        )  # the file is replaced, and not the link
        with write_errors_named(path):
            place.parent.mkdir(parents=True, exist_ok=True)
        with replaced(place) as replacement:
            target = Target(replacement, path)
            try:
                yield target
            except BaseException:
                if target.num_lines:
                    target.keep()
                raise


def check_aligned(path: Path, lines: Sequence[str], to: str, to_lines: Sequence[str]) -> None:
    """Make sure that `lines`, of `path`, are as many as `to_lines`, those of what `to` names.

    Raises:
        DataError: they are not.
    """
    if len(lines) != len(to_lines):
        raise DataError(
            f"{path}: {len(lines)} lines, but {to} has {len(to_lines)}; the files must align line "
            "by line"
        )
