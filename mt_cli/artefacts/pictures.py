"""Picture files: which endings they have, and how a figure of matplotlib becomes one.

Knows figures, nothing of what they show. Matplotlib is imported only to draw.
"""

import io
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from mt_cli.artefacts.files import write_atomically
from mt_cli.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

log = logging.getLogger(__name__)

PICTURES = (".png", ".svg")
"""Endings of the files that can be drawn."""
DOTS_PER_INCH = 150


def check_ending(path: Path, endings: Sequence[str]) -> None:
    """Complain about a file whose ending says nothing, before any work is done.

    Raises:
        UsageError: the ending of `path` is none of `endings`.
    """
    if path.suffix.lower() not in endings:
        raise UsageError(f"{path}: the file's ending says how to draw; use {', '.join(endings)}")


def write_figure(path: Path, compose: Callable[[], "Figure"]) -> None:
    """Write what `compose` draws to `path`, in the format that its ending, one of `PICTURES`, names."""
    write_atomically(path, render(compose, image_format=path.suffix.lower().removeprefix(".")))


def render(compose: Callable[[], "Figure"], *, image_format: str) -> bytes:
    """What `compose` draws as the content of a file of `image_format`, `png` or `svg`."""
    mpl = _matplotlib()
    content = io.BytesIO()
    with mpl.rc_context(), _letters_reported(keeps_text=image_format == "svg"):
        mpl.rcdefaults()  # a picture depends on its content, not on the user's settings
        mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "mt_cli"})
        compose().savefig(
            content,
            format=image_format,
            dpi=DOTS_PER_INCH,
            bbox_inches="tight",
            metadata={"Date": None} if image_format == "svg" else None,  # the same figure, the same file
        )
    return content.getvalue()


def _matplotlib() -> ModuleType:
    """Matplotlib, even where MPLBACKEND names a window system that is not installed: none is needed."""
    backend = None if "matplotlib" in sys.modules else os.environ.pop("MPLBACKEND", None)
    import matplotlib as mpl  # late: it takes a second, and few commands draw

    if backend is not None:  # put back, for pictures that a notebook draws by itself
        os.environ["MPLBACKEND"] = backend
        with suppress(ValueError):
            mpl.rcParams["backend"] = backend
    return mpl


@contextmanager
def _letters_reported(*, keeps_text: bool) -> Iterator[None]:
    """Say once what matplotlib says of each letter that its font lacks, unless the file keeps its text."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    messages = [str(warning.message) for warning in caught]
    if not keeps_text and any("missing from font" in message for message in messages):
        log.warning("the picture's font lacks some of the letters; an .svg leaves them to its viewer")
    for message in messages:
        if "missing from font" not in message:
            log.warning("%s", message)
