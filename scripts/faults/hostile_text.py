"""Lines of bytes that no person writes: every kind of damage and trickery that text can hold.

Knows bytes, never who reads them. The same random numbers give the same lines.
"""

import random
from collections.abc import Callable, Sequence

WORDS = ["Ein", "Hund", "läuft", "über", "die", "Straße", "(", "lachen", ")", ",", "3", "Kinder", "!"]
SPECIALS = ["<s>", "</s>", "<pad>", "<unk>", "<0x0A>", "<0x1B>", "▁", "￭", "\u2060", "\ue000", "\ue001", "⁇"]
SPACES = ["", " ", "\t", "\u00a0", "\u1680", "\u2003", "\u3000", "\u202f", "\x0b", "\x0c", "\x85"]
INVISIBLE = [
    "\ufeff",
    "\u200b",
    "\u200d",
    "\u00ad",
    "\u061c",
    "\u202a",
    "\u202e",
    "\u2066",
    "\u2069",
    "\U000e0041",
]
ENDS = ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\r", "\r\r"]
COMBINING = ["\u0301", "\u0308", "\u0323", "\u20dd", "\u0489", "\ufe0f", "\u200d"]
SURROGATES = [b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xed\xa0\xbd\xed\xb8\x80"]
OVERLONG = [
    b"\xc0\x80",
    b"\xc1\x8a",
    b"\xe0\x80\x8a",
    b"\xf0\x80\x80\x8a",
    b"\xf8\x88\x80\x80\x80",
    b"\xfe",
    b"\xf4\x90\x80\x80",
]
TRICKS = [
    "\x1b[2J",
    "\x1b]0;owned\x07",
    '{"a": [',
    "<script>",
    "%s%n",
    "$(reboot)",
    "../../..",
    "'; --",
    "\\n",
    "&amp;",
]
FAR = [
    "\U0001f600",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "\U00020000",
    "\U0010ffff",
    "\U0001d11e",
    "\uffff",
]
MOST_PIECES = 8
LONG_EVERY = 400
"""One line in so many is very long."""
Draw = Callable[[random.Random], bytes]


def hostile_lines(number: int, *, seed: int) -> list[bytes]:
    """So many lines, none of which holds a line end."""
    drawn = random.Random(seed)
    lines = [_line(drawn, is_long=nth % LONG_EVERY == LONG_EVERY // 2) for nth in range(number)]
    return [line.replace(b"\n", b"") for line in lines]


def _line(drawn: random.Random, *, is_long: bool) -> bytes:
    if is_long:
        return drawn.choice(LONG)(drawn)
    if drawn.random() < 0.1:  # one kind alone, such as nothing but spaces
        kind = drawn.choice(KINDS)
        return b"".join(kind(drawn) for _ in range(drawn.randrange(MOST_PIECES)))
    pieces = [drawn.choice(KINDS)(drawn) for _ in range(drawn.randrange(1, MOST_PIECES))]
    return drawn.choice((b" ", b"")).join(pieces)


def _one_of(pieces: Sequence[str] | Sequence[bytes]) -> Draw:
    encoded = [piece.encode() if isinstance(piece, str) else piece for piece in pieces]
    return lambda drawn: drawn.choice(encoded)


def _noise(drawn: random.Random) -> bytes:
    return drawn.randbytes(drawn.randrange(1, 12))


def _control(drawn: random.Random) -> bytes:
    return chr(drawn.choice([*range(0x20), *range(0x7F, 0xA0)])).encode()


def _marked(drawn: random.Random) -> bytes:
    """A letter under many marks, or marks without a letter."""
    return (
        drawn.choice(["a", "ü", "", "ﬁ"]) + "".join(drawn.choices(COMBINING, k=drawn.randrange(1, 30)))
    ).encode()


def _any_letter(drawn: random.Random) -> bytes:
    code = drawn.choice([drawn.randrange(0x300), drawn.randrange(0x10000), drawn.randrange(0x110000)])
    return chr(code).encode(errors="surrogatepass")


KINDS: Sequence[Draw] = (
    _one_of(WORDS),
    _one_of(WORDS),
    _one_of(SPECIALS),
    _one_of(SPACES),
    _one_of(INVISIBLE),
    _one_of(ENDS),
    _one_of(SURROGATES),
    _one_of(OVERLONG),
    _one_of(TRICKS),
    _one_of(FAR),
    _noise,
    _control,
    _marked,
    _any_letter,
)
LONG: Sequence[Draw] = (
    lambda drawn: b"a" * drawn.randrange(1000, 20_000),
    lambda drawn: b"(" * drawn.randrange(1000, 20_000),
    lambda drawn: " ".join(drawn.choices(WORDS, k=drawn.randrange(100, 800))).encode(),
    lambda drawn: "".join(drawn.choices(COMBINING, k=5000)).encode(),
    lambda drawn: drawn.randbytes(5000),
    lambda drawn: b"\xe2\x80\xa8" * 5000,
    lambda drawn: "😀".encode() * 2000,
)
