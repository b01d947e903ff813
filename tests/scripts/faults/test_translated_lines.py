"""Lines that come out of a translation: what is wrong with them is told."""

import pytest
from faults.case import BrokenPromiseError
from faults.lines import check_lines


def test_good_lines_pass() -> None:
    check_lines("Ein Hund.\n\nä 犬\n".encode(), [b"a", b"", b"\xff"], for_each=1)
    check_lines(b"a\nb\n", [b"x"], for_each=2)


@pytest.mark.parametrize(
    ("out", "complaint"),
    [
        (b"a\nb", r"the last line does not end in \\n"),
        (b"a\n", "2 lines in, 1 out"),
        (b"a\nb\nc\n", "2 lines in, 3 out"),
        (b"a\n\xff\n", "no UTF-8"),
        (b"a\x1b[2J\nb\n", r"\['\\x1b'\] in a translation, from b'x'"),
        ("a\u202e\nb\n".encode(), r"\['\\u202e'\] in a translation"),
        ("a\x85\nb\n".encode(), r"\['\\x85'\] in a translation"),
        (b"a\nb\n", "'b', from nothing"),
    ],
)
def test_bad_lines_are_told(out: bytes, complaint: str) -> None:
    with pytest.raises(BrokenPromiseError, match=complaint):
        check_lines(out, [b"x", b" "], for_each=1)
