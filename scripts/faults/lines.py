"""Hostile lines through `translate`: n lines in, n lines out, and nothing in them that a terminal obeys.

Every search there is, the exported model, and random subwords, which spell control characters on purpose.
"""

import unicodedata
from collections.abc import Iterator
from functools import partial

from faults.case import Case, Site, expect
from faults.hostile_text import INVISIBLE, hostile_lines
from faults.trial import Fault

PROMISE, FAMILY = 5, "lines"
NUM_LINES, AT_ONCE = 10_000, 2_000
QUICK_LINES = 60
N_BEST = 3
RUN, EXPORTED = "runs/tiny", "exported/tiny"
PASSES: dict[str, tuple[str, ...]] = {
    "greedy": (RUN,),
    "beam": (RUN, "--beam-size", "3"),
}
"""Passes that all lines go through."""
HIDDEN = {*INVISIBLE[:-1], "\u202b", "\u202c", "\u202d", "\u2067", "\u2068"}
"""Marks that hide letters or change their order."""


def lines(site: Site) -> Iterator[Fault]:
    """A fault for each pass and portion of lines, which stands for all of them."""
    number = QUICK_LINES if site.is_quick else NUM_LINES
    portions = [(begin, min(AT_ONCE, number - begin)) for begin in range(0, number, AT_ONCE)]
    passes = dict(PASSES)
    if (site.template / EXPORTED).is_dir():
        passes["exported"] = (EXPORTED,)
    for name, args in passes.items():
        for begin, size in portions:
            work = partial(_translate, args=args, number=size, seed=site.seed + begin)
            yield Fault(PROMISE, FAMILY, f"{name}, from line {begin + 1}", work)
    n_best = (RUN, "--beam-size", f"{N_BEST}", "--n-best", f"{N_BEST}")
    short = partial(_translate, args=n_best, number=number // 10, seed=site.seed, for_each=N_BEST)
    yield Fault(PROMISE, FAMILY, "the three best", short)
    yield Fault(PROMISE, FAMILY, "random subwords", partial(_sample, number=number // 10, seed=site.seed))


def _sample(case: Case, *, number: int, seed: int) -> None:
    """Draw random translations from a model that has hardly learned anything."""
    config = (
        (case.folder / "tiny.toml").read_text().replace('kind = "spacy"', 'kind = "bpe"\nvocab_size = 340')
    )
    (case.folder / "subwords.toml").write_text(config)
    case.succeed("prepare", "subwords.toml")
    case.succeed("train", "subwords.toml", "--max-steps", "1")
    _translate(case, args=("runs/subwords", "--sample", "--temperature", "3"), number=number, seed=seed)


def _translate(case: Case, *, args: tuple[str, ...], number: int, seed: int, for_each: int = 1) -> None:
    """Translate `number` lines, and look at what comes out `for_each` of them."""
    lines = hostile_lines(number, seed=seed)
    case.tried = number
    ended = case.succeed("translate", *args, "--quiet", stdin=b"\n".join(lines) + b"\n")
    check_lines(ended.out, lines, for_each=for_each)
    shown = ended.err.replace("\n", "").replace("\t", "")
    expect(shown.isprintable(), f"control characters in warnings: {shown[-200:]!a}")


def check_lines(out: bytes, lines: list[bytes], *, for_each: int) -> None:
    """Make sure that `out` has the right number of lines, and nothing that they must not hold.

    Raises:
        BrokenPromiseError: it is not so.
    """
    expect(out.endswith(b"\n"), r"the last line does not end in \n")
    found = out.removesuffix(b"\n").split(b"\n")
    expect(
        len(found) == len(lines) * for_each, f"{len(lines)} lines in, {len(found)} out, of {for_each} each"
    )
    for number, raw in enumerate(found):
        source = lines[number // for_each]
        try:
            text = raw.decode()
        except UnicodeDecodeError as error:
            expect(False, f"no UTF-8 ({error}), from {source[:200]!r}")
            return
        bad = [letter for letter in text if unicodedata.category(letter) == "Cc" or letter in HIDDEN]
        expect(not bad, f"{bad[:3]!a} in a translation, from {source[:200]!r}")
        expect(not text or bool(source.strip()), f"{text[:80]!a}, from nothing: {source[:200]!r}")
