r"""Text that may be shown: what a terminal would obey, or hide, is spelled out, such as `\x1b` or `\u202e`.

Whatever reaches a terminal, a log or an error message passes through here, at the boundary: names of files,
keys of configs and entries of vocabularies were written by somebody else.
"""

import logging


def visible(text: str, *, kept: str = "") -> str:
    r"""`text` with each control or invisible character but those of `kept` spelled out, such as `\u200b`.

    So is a lone surrogate, as which Python keeps a byte of a path that is not UTF-8.
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter in kept else spelled(letter) for letter in text)


def visible_lines(text: str) -> str:
    """The same of text that is more than one line, or in columns: line ends and tabs stay."""
    return visible(text, kept="\n\t")


def spelled(letter: str) -> str:
    r"""The escape that stands for `letter` in Python, such as `\x1b`."""
    code = ord(letter)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


class VisibleFormatter(logging.Formatter):
    """Formats log records as text that may be shown."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as text, tracebacks included."""
        return visible_lines(super().format(record))
