"""The screen of a training on a terminal: its facts, validations, samples, and how far it has come.

It fits the terminal and is drawn in place; what else is logged meanwhile scrolls by above it.
"""

import logging
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from mt_cli.machine.terminal import is_listened_to, is_terminal, visible

DRAW_EVERY_S = 0.25
FEWEST_ROWS = 5
"""Validations that stay on the screen, at the cost of some facts."""
FIRST_FACTS = ("run", "device", "pairs", "updates", "BLEU")
"""What is shown where there is no room for all facts."""
BEST = "bold green"
GONE = (OSError, ValueError)
"""What writing to a terminal raises that is not there any more, which must not end a training."""


class Screen:
    """What is drawn; whoever trains sets it."""

    def __init__(self, console: Console, *, total_steps: int, head: str) -> None:
        """`head` is the line above the validations."""
        self._console, self._total, self._head = console, total_steps, head
        self._drawn_at, self._is_done = -1.0, False
        self.facts: dict[str, str] = {}
        self.rows: list[tuple[str, bool]] = []
        """A line for each validation, and whether it was the best so far."""
        self.samples: Sequence[str] = ()
        """Lines, of the last validation."""
        self.step, self.doing = 0, ""
        self._live = Live(console=console, auto_refresh=False, get_renderable=self._drawn)

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Draw until the end of the block, and then once more, with every validation."""
        with suppress(*GONE):
            self._live.start()
            self._console.show_cursor(
                True
            )  # or a killed process would leave the terminal without one
        self.draw()
        try:
            yield
        finally:
            self._is_done = True
            self.draw()
            with suppress(*GONE):
                self._live.stop()

    def draw(self, *, at_most_now_and_then: bool = False) -> None:
        """Draw what is known now."""
        now = time.monotonic()
        if not at_most_now_and_then or now - self._drawn_at >= DRAW_EVERY_S:
            self._drawn_at = now
            with suppress(*GONE):
                self._live.refresh()

    def _drawn(self) -> RenderableType:
        """The bar, some validations, samples and facts, as far as there is room; then more
        validations.
        """
        facts, samples, rows = (
            [*self.facts.items()],
            self.samples,
            last_rows(self.rows, len(self.rows)),
        )
        if not self._is_done:
            room = self._console.height - 2  # the bar, and the cursor's line
            num_rows = min(len(rows), FEWEST_ROWS, max(0, room - 1))
            room -= num_rows + bool(num_rows)
            samples = samples[: max(0, (room - 1) // 3 * 3)]
            room -= len(samples) + bool(samples)
            if len(facts) >= room:
                facts = [fact for fact in facts if fact[0] in FIRST_FACTS][: max(0, room - 1)]
            room -= len(facts) + bool(facts)
            rows = last_rows(self.rows, num_rows + max(0, room))
        blocks = [
            [_line(f"{name:<10}  {fact}") for name, fact in facts],
            [
                _line(self._head, style="bold"),
                *(_line(row, style=BEST if best else "") for row, best in rows),
            ],
            list(map(_line, samples)),
        ]
        lines: list[RenderableType] = []
        for block, has_text in zip(blocks, (facts, rows, samples), strict=True):
            if has_text:
                lines += [*block, Text("")]
        if self._is_done:
            return Group(*lines[:-1])
        bar = Table.grid(padding=(0, 1))
        bar.add_row(
            ProgressBar(total=self._total, completed=self.step, width=20), _line(self.doing)
        )
        return Group(*(lines[:-1] if samples or rows else lines), bar)


def last_rows(rows: Sequence[tuple[str, bool]], most: int) -> list[tuple[str, bool]]:
    """The last of `rows`, of which only the very best is marked, and that one first if it is an
    older one.
    """
    best = max((place for place, (_, is_best) in enumerate(rows) if is_best), default=-1)
    marked = [(row, place == best) for place, (row, _) in enumerate(rows)]
    shown = marked[max(0, len(rows) - most) :]
    return [marked[best], *shown[1:]] if shown and 0 <= best < len(rows) - most else shown


def open_screen(*, total_steps: int, head: str) -> Screen | None:
    """A screen on stderr, if somebody sees it there who has not asked for every line of the log."""
    if (
        not is_terminal(sys.stderr)
        or not is_listened_to(logging.INFO)
        or is_listened_to(logging.DEBUG)
    ):
        return None
    console = Console(file=sys.stderr, highlight=False, markup=False, emoji=False)
    return None if console.is_dumb_terminal else Screen(console, total_steps=total_steps, head=head)


def _line(text: str, *, style: str = "") -> Text:
    return Text(visible(text), style=style, no_wrap=True, overflow="ellipsis")
