"""What stays untranslated in a line: find it by rules, cut it out, put it back after translation.

A new rule needs a line in `UNTRANSLATED` and a row in tests/translation/test_untranslated.py.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from mt_cli.text.tokenizers import Learnt

MARKS = ".,;:!?…"
"""Marks that follow a word without a space."""
BESIDE = r"\s<>\"„“”«»‹›（）「」『』《》，、。；！？"
"""Spaces and marks that end an address."""
BRACKETS = r"()\[\]{}’"
"""Marks that may also stand within an address."""
WITHIN = f"[^{BRACKETS}{BESIDE}]"
URL = rf"""
    (?<![a-z0-9+.-]) (?: [a-z] [a-z0-9+.-]*+ :// | www\. )
    (?: {WITHIN} | \( {WITHIN}* \) | \[ {WITHIN}* \] | \{{ {WITHIN}* \}}
      | [{BRACKETS}] (?= [{BRACKETS}]{{0,3}} [^{BRACKETS}{BESIDE}.,;:!?]) )+"""
NO_AT = f"[^{BRACKETS}{BESIDE}@]"
EMAIL = rf"(?<! {NO_AT} ) {NO_AT}++ @ [^{BRACKETS}{BESIDE}@.]++ \. {WITHIN}+"
ADDRESSES = rf"(?: {URL} | {EMAIL} ) (?<! [.,;:!?…] )"
ENCLOSED = " | ".join(
    f"{begin} (?: {ADDRESSES} ) {end}"
    for begin, end in ("<>", '""', "„“", "«»", (r"\(", r"\)"), (r"\[", r"\]"))
)
SYMBOL = "\u2190-\u2bff\U0001f000-\U0001faff"
"""Arrows, signs and emoji."""
NUMBER = r"\d++(?:[.,:]\d++)*+"
FORMS = "¹²³¼-¾⁰-₟⅐-↉"
"""Superscript and subscript digits, and fractions."""
BINDING = rf"&+\#@°%‰§$¢£¥€₽™®©{FORMS}"
"""Signs that form one word with what they touch: `km²`, `AT&T`, `C++`, `5€`."""


class Rule(NamedTuple):
    """Something within a line that stays untranslated."""

    name: str
    pattern: str
    """A verbose regular expression that ignores case."""
    always: bool
    """Whether it stays even without signs that the model never saw in training."""


UNTRANSLATED = (
    Rule("address", f"{ENCLOSED} | {ADDRESSES}", True),
    Rule("code", "`[^`]{1,200}`", True),
    Rule(
        "path",  # /etc/passwd, ~/a/b, C:\\Windows
        r"(?<! [\w./\\] )"
        r"(?: (?: ~ | \.{1,2} )? (?: / [\w.-]*\w ){2,50} | [a-z]: (?: \\ [\w.-]*\w ){1,50} )",
        True,
    ),
    Rule(
        "placeholder",  # tags, {name}, ${x}, #{x}, %s, %1$s, &amp; and \n in two letters
        r"""</? [a-z] [^<>]{0,200} > | [$\#]? \{\{? [^{}\s]{0,50} \}\}? | (?<!:) \\ [nrt]
        | & (?: \#\d{1,7} | [a-z]\w{1,30} ) ;
        | (?<![\d%]) % (?: \d{1,2} \$ | \( \w{1,50} \) )? [-+0]? \d{0,2} (?: \.\d )? [sdfiux@]
        (?![^\W_])""",
        True,
    ),
    Rule(
        "speaker",  # - Hi. - Hello!
        r"(?: (?<= [.!?…] \s ) | (?<= [.!?…] [\"“”»)] \s ) ) [-–—] (?= \s [\w\"„“«(] )",
        True,
    ),
    Rule("emphasis", r"\*{2,3} | ~~", True),
    Rule("quote", r'["„“”] | (?<! \w ) \( | \) (?! \w )', True),
    Rule("mention", r"(?<! [\w@\#&.] ) [@\#] \w [\w.]{0,60} (?<!\.)", True),
    Rule(
        "formula",  # 3 + 4 = 7, 1/2, 3/5/2020
        rf"(?<![\w.,]) {NUMBER} (?: \s? [^\w\s.,:;!?()] \s? {NUMBER} ){{1,20}}+",
        False,
    ),
    Rule(
        "quantity",  # km², 5€, AT&T, 30 °C, § 5, 200 km/h
        rf"(?<!\w) [§$¢£¥€] \s {NUMBER} (?!\w)"
        rf"| (?<!\w) {NUMBER} \s? [^\W\d_]{{1,3}} / [^\W\d_]{{1,3}} (?!\w)"
        rf"| (?<!\w) (?: {NUMBER} \s )?+ (?: {NUMBER} | [^\W{FORMS}]{{1,3}}+ )?+"
        rf"(?: [{BINDING}] (?: {NUMBER} | [^\W{FORMS}]{{1,3}}+ )?+ ){{1,8}}+ (?!\w)",
        False,
    ),
    Rule("symbols", f"[{SYMBOL}][{SYMBOL}\u200d\ufe0f\u20e3]*", False),
    Rule("sign", rf"[^\w\s.,:;!?]\ufe0f? | [_{FORMS}]", False),
)
"""What stays untranslated within a line; the first matching rule wins."""
WITHIN_A_LINE = re.compile(
    " | ".join(f"(?P<{rule.name}> {rule.pattern} )" for rule in UNTRANSLATED),
    re.VERBOSE | re.IGNORECASE,
)
ALWAYS = {rule.name for rule in UNTRANSLATED if rule.always}
ADDRESS = re.compile(UNTRANSLATED[0].pattern, re.VERBOSE | re.IGNORECASE)
"""A web or e-mail address with the marks around it; matching takes linear time in long words."""
RARE = frozenset("&+=@#$*/")
"""Signs that a few lines are enough to bring into a vocabulary; they count as unlearnt."""
USUAL = re.compile(r"(?:[^\W_]|[ ,.;!?'](?!www\.)|-(?! ))*", re.IGNORECASE)
"""Lines in which no rule can match, unless they have unlearnt signs: nearly all lines."""
MONTHS = (
    "januar|jänner|february?|märz|april|mai|juni|juli|august|september|oktober|november|dezember"
    "|january|march|may|june|july|october|december"
)
"""Before these, a number is no list mark: "3. Oktober" is a date."""
LIST_MARK = re.compile(
    rf"""(?: [-–—*+•‣◦▪▫●○■□☐☑➢➤►▶·>»] | >{{2,4}} | \#{{1,6}} | [a-z] \) | [ivx]{{2,4}} \)
      | (?-i: [A-Z] | [IVX]{{2,4}} ) \. (?= \s+ (?-i: [A-ZÄÖÜ][a-zäöüß] ) )
      | \d{{1,3}} (?: \) | \. (?! \s (?:{MONTHS})\b ) ) | \d{{1,2}} (?: \.\d{{1,2}} )+ [.)]
      | \( (?: \d{{1,3}} | [a-z] | [ivx]{{2,4}} ) \) | \[ [ x] \] ) \s+ (?=\S)
      | [-–—•] (?=[^\W\d_])""",
    re.VERBOSE | re.IGNORECASE,
)
"""A list mark at the beginning of a line; always stays untranslated."""
PAIRS: Sequence[Sequence[str]] = (
    "„“", "„”", "“”", '""', "«»", "»«", "‹›", "›‹", "‚‘", "‘’", "''", "()", "[]", "（）", "「」",
    "『』", "《》", "【】", ("***", "***"), ("**", "**"), ("__", "__"), "**", "__", ("~~", "~~"),
)  # fmt: skip
"""Marks around a whole line; they always stay untranslated."""
INDENTATION = re.compile(r"[ \t\u00a0\u2003\u3000]*")
"""Kept if it is more than one blank; see `cut`."""


@dataclass(frozen=True)
class Segment:
    """A piece of a line that stays untranslated."""

    text: str
    place: int
    """The number of translatable words before it."""
    joins_left: bool = False
    """Whether there is no space before it."""
    joins_right: bool = False
    has_mark: bool = False
    """Whether it goes before the marks at the end of the word on its left."""
    opening: int | None = None
    """Index of the segment that this one closes."""


def cut(text: str, learnt: Learnt, *, indentation: str = "") -> tuple[str, list[Segment]]:
    """Split the normalized `text` into what to translate and what stays untranslated.

    A text without words stays as a whole. `indentation` is the blanks before the text: a tab, or
    more than one blank.
    """
    rest = ""
    segments = []
    if indentation:
        segments.append(Segment(indentation, 0, joins_left=True, joins_right=True))
    end = 0
    for begin, found_end in _spans(text, learnt):
        rest += text[end:begin]
        end = found_end
        if not rest.strip():  # there is no word that the marks could follow
            end += len(text[end:]) - len(text[end:].lstrip(MARKS))
        kept = text[begin:end]
        joins_left = begin > 0 and not text[begin - 1].isspace()
        is_within = joins_left and end < len(text)
        follows = text[end : end + 1] or " "
        if follows in MARKS:
            rest = rest.rstrip()
            marks = rest[len(rest.rstrip(MARKS)) :]
            if marks:  # the comma of "Hello, {name}!"
                rest = rest.removesuffix(marks)
                kept = marks + ("" if joins_left else " ") + kept
                joins_left = True
        segments.append(
            Segment(
                kept,
                len(rest.split()),
                joins_left=joins_left,
                joins_right=not follows.isspace() and follows not in MARKS,
                has_mark=follows in MARKS or (is_within and text[begin - 1] not in MARKS),
            )
        )
        rest += "" if follows in MARKS else " "
    rest = " ".join((rest + text[end:]).split())
    if not any(map(str.isalpha, ADDRESS.sub("", rest))):
        return "", [Segment(indentation + text, 0)] if text else []
    return rest, _paired(segments)


def _paired(segments: Sequence[Segment]) -> list[Segment]:
    """The `segments`, with `opening` set where one closes another."""
    paired: list[Segment] = []
    waiting: dict[str, list[int]] = {}  # closing text → indices of the segments it would close
    for place, each in enumerate(segments):
        opened = waiting.get(each.text.lstrip(f"{MARKS} "))
        if opened:
            opening = opened.pop()
            for closing in _closings(paired[opening].text):
                waiting[closing] = [i for i in waiting[closing] if i < opening]
            paired.append(replace(each, opening=opening))
        else:
            for closing in _closings(each.text):
                waiting.setdefault(closing, []).append(place)
            paired.append(each)
    return paired


def _closings(text: str) -> list[str]:
    """The texts that may close `text`; empty if it is not an opening mark or tag."""
    tag = re.match(r"<(\w+)", text)
    if tag and not text.endswith("/>"):
        return [f"</{tag[1]}>"]
    return [closing for opening, closing in PAIRS if opening == text]


def _spans(text: str, learnt: Learnt) -> Iterator[tuple[int, int]]:
    """Begin and end of each segment of `text`."""
    begin, end = _edges(text)
    if begin:
        yield 0, begin
    unlearnt = learnt.lacks(text) | RARE.intersection(text)
    if unlearnt or not USUAL.fullmatch(text):
        for found in WITHIN_A_LINE.finditer(text, begin, end):
            if _stays(found, unlearnt):
                yield found.span()
    if end < len(text):
        yield end, len(text)


def _stays(found: re.Match[str], unlearnt: set[str]) -> bool:
    signs = unlearnt.intersection(found[0])
    return found.lastgroup in ALWAYS or any(map(is_sign, signs))


def is_sign(character: str) -> bool:
    """Whether a character is punctuation, a symbol or a form such as `½`: no letter, no digit."""
    category = unicodedata.category(character)
    return category[0] in "PS" or category in ("No", "Nl")


def _edges(text: str) -> tuple[int, int]:
    """Begin and end of the text without list marks and without marks around the whole line."""
    begin = 0
    end = len(text)
    while True:
        inner = text[begin:end]
        mark = LIST_MARK.match(inner)
        around = next((pair for pair in PAIRS if _is_within(inner, *pair)), None)
        if around is not None:
            begin += len(around[0])
            end -= len(around[1])
            begin += len(text[begin:end]) - len(text[begin:end].lstrip())
            end = begin + len(text[begin:end].rstrip())
        elif mark is not None:
            begin += mark.end()
        else:
            return begin, end


def _is_within(text: str, opening: str, closing: str) -> bool:
    """Whether the two marks enclose all of `text` and occur nowhere within."""
    if not (text.startswith(opening) and text.endswith(closing)):
        return False
    inner = text[len(opening) : -len(closing)]
    return bool(inner.strip()) and opening not in inner and closing not in inner


def put_back(translation: str, segments: Sequence[Segment], places: Sequence[int]) -> str:
    """`translation` with the `segments` inserted; `places` says after how many words."""
    words = translation.split()
    text = ""
    done = 0
    joins = True  # the next word joins what is before it
    for segment, wanted_place in zip(segments, places, strict=True):
        place = max(done, wanted_place)
        if place > done:
            text += ("" if joins else " ") + " ".join(words[done:place])
            joins = False
        done = place
        marks = text[len(text.rstrip(MARKS)) :] if segment.has_mark else ""
        text = text.removesuffix(marks)
        if segment.joins_left and segment.text[0] in MARKS:  # "…" replaces the model's full stop
            text = text.removesuffix(".")
        text += ("" if joins or segment.joins_left else " ") + segment.text + marks
        joins = segment.joins_right
    if words[done:]:
        text += ("" if joins else " ") + " ".join(words[done:])
    return text
