"""Parts of a page that are made by a program: each stands between two lines that mark it.

Knows marks, nothing of what stands between them.
"""


def with_part(page: str, part: str, *, begin: str, end: str) -> str:
    """`page` with `part` between the marks `begin` and `end`, in place of what stood there."""
    before, found_begin, rest = page.partition(begin)
    _, found_end, after = rest.partition(end)
    if not found_begin or not found_end:
        raise ValueError(f"the page has no line '{begin}' with a line '{end}' after it")
    return f"{before}{begin}\n\n{part}\n\n{end}{after}"
