"""What a model knows of its source language, and whether a text is in it."""

from collections.abc import Sequence

from mt_cli.machine.terminal import visible
from mt_cli.text import SPECIALS
from mt_cli.text.language import other_language
from mt_cli.text.normalize import normalize
from mt_cli.text.tokenizers import Tokenizers
from mt_cli.translation.lines import ADDRESS

MIN_LETTERS = 5
"""Shortest line, in letters, that is checked for unknown letters."""
MIN_TEXT = 20
"""Shortest line, in characters, whose language is guessed."""
MAX_LINES = 100
"""Most lines whose language is guessed."""


class SourceSide:
    """The letters and addresses that a source vocabulary has."""

    def __init__(self, tokenizers: Tokenizers) -> None:
        self._options = tokenizers.options
        entries = tokenizers.src.entries[len(SPECIALS) :]
        letters = {" "}
        for entry in entries:
            if not entry.startswith("<0x"):
                letters.update(entry)
        self._letters = frozenset(letters)
        self._has_addresses = any(
            sign in entry for entry in entries for sign in ("http", "www", "@")
        )

    def knows(self, copied: str) -> bool:
        """Whether the vocabulary has such addresses or symbols."""
        if ADDRESS.fullmatch(copied):
            return self._has_addresses
        return self._letters.issuperset(copied)

    def warning(self, lines: Sequence[str], *, first_line: int, min_lines: int) -> str | None:
        """Why `lines` are probably not for this model; `first_line` is the number of the first.

        The language is told from `min_lines` or more: that takes as long as translating one.
        """
        texts = [normalize(line, lowercase=self._options.lowercase) for line in lines]
        return self._warning_of_language(texts, min_lines) or self._warning_of_letters(
            texts, first_line
        )

    def _warning_of_language(self, texts: Sequence[str], min_lines: int) -> str | None:
        long = [text for text in texts if len(text) >= MIN_TEXT][:MAX_LINES]
        if len(long) < min_lines:
            return None
        others = [other_language(text, self._options.src_lang) for text in long]
        found = [other for other in others if other]
        if len(found) <= len(long) / 2:
            return None
        return (
            f"the text looks like {', '.join(dict.fromkeys(found))}; the model translates "
            f"{self._options.src_lang}"
        )

    def _warning_of_letters(self, texts: Sequence[str], first_line: int) -> str | None:
        for number, text in enumerate(texts, first_line):
            if self._letters.issuperset(text):  # nearly every line, at a glance
                continue
            letters = [letter for letter in text if letter.isalpha()]
            unknown = [letter for letter in letters if letter not in self._letters]
            if len(letters) >= MIN_LETTERS and len(unknown) > len(letters) / 2:
                return (
                    f"line {number}: the model does not know most letters of {visible(text)[:60]!r}"
                )
        return None
