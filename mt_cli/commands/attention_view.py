"""`AttentionView`: which attention maps a command shows, and where they go.

Knows flags and files; `translation` makes and draws the maps.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from mt_cli.commands.terminal import for_stderr, print_aside, print_lines, width_of
from mt_cli.errors import UsageError

if TYPE_CHECKING:  # torch is imported when something is shown
    from mt_cli.translation.sentence_attention import AttentionMaps
    from mt_cli.translation.translator import Translator


@dataclass(frozen=True)
class AttentionView:
    """What `--attention`, `--attention-of`, `--layer` and `--head` ask for."""

    file: str | None
    kind: Literal["encoder", "decoder", "cross"] | None
    layer: int | None
    head: str | None

    @property
    def is_wanted(self) -> bool:
        """Whether any of the flags was given."""
        return any(flag is not None for flag in (self.file, self.kind, self.layer, self.head))

    @property
    def picture(self) -> Path | None:
        """The file to write; None is the terminal."""
        return None if self.file in (None, "-") else Path(self.file)

    def check(self, text: str | None, *, taken: Path | None = None) -> None:
        """Complain about a `text` that is not one sentence, and about a file that cannot be or is `taken`."""
        if not self.is_wanted:
            return
        if text is None or "\n" in text:
            raise UsageError("attention is shown for one sentence; give it with --text")
        if self.picture is None:
            return
        from mt_cli.artefacts.pictures import check_ending
        from mt_cli.translation.sentence_attention import ENDINGS

        check_ending(self.picture, ENDINGS)
        if taken is not None and self.picture.resolve() == taken.resolve():
            raise UsageError(f"{taken}: two flags name the same file; give two files")

    def choose(self, translator: "Translator", text: str) -> "AttentionMaps":
        """The maps of the one sentence `text`."""
        from mt_cli.stages.translate import decode_argument

        attention = translator.attention(decode_argument(text))
        return attention.maps(
            self.kind or "cross", layer=self.layer, head="mean" if self.head is None else self.head
        )

    def show(self, maps: "AttentionMaps", *, is_result: bool) -> None:
        """Write `maps` to the file, or as text: to stdout where they are the command's result, else aside."""
        if self.picture is not None:
            maps.write(self.picture)
        elif is_result:
            print_lines(maps.as_text(width=width_of(sys.stdout)))
        else:
            is_ascii = for_stderr("█") != "█"
            print_aside(for_stderr(maps.as_text(is_ascii=is_ascii, width=width_of(sys.stderr))))
