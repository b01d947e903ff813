"""Streams of lines: each as it arrives, whatever the pieces."""

import io
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from mt_cli.text.normalize import decode_line
from mt_cli.translation.streams import line_chunks


class Pieces(io.BufferedIOBase):
    """A stream whose bytes arrive in the given pieces."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._pieces = [piece for piece in pieces if piece]

    def read1(self, size: int = -1, /) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""


ATOMS = ["\n", "\r\n", "a", " ", "ä", "\u2028", "\x0b"]
PIECE = st.lists(
    st.sampled_from([*map(str.encode, ATOMS), b"\xff", b"\x85", b"\xc3", b"\xb6"])
).map(b"".join)


@settings(max_examples=50)
@given(st.lists(PIECE))
def test_stream_gives_its_lines_in_order_however_they_arrive(pieces: list[bytes]) -> None:
    parts = b"".join(pieces).split(b"\n")
    expected = parts if parts[-1] else parts[:-1]
    found = [line for lines in line_chunks(Pieces(pieces)) for line in lines]
    assert found == [decode_line(line) for line in expected]


def test_lines_are_handed_on_before_the_next_ones_are_asked_for() -> None:
    handed_on, seen = 0, []

    class Typist(Pieces):
        def read1(self, size: int = -1, /) -> bytes:
            seen.append(handed_on)
            return super().read1(size)

    # A piece that fills a pipe, too: whoever sent it may wait for the answer.
    for lines in line_chunks(Typist([b"a\n", b"b\nc", b"\n", b"x" * 65535 + b"\n"])):
        handed_on += len(lines)
    assert seen == [0, 1, 2, 3, 4]
