"""Texts of requests: passages, which are translated, and what stays as it is between them."""

import html
import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mt_cli.text.subwords import SPACE_MARK
from mt_cli.text.words import JOINER
from mt_cli.translation.lines import ADDRESSES, COPIED, SYMBOL, Translation

Stack = tuple[str, ...]
"""The tags that are open at a place, the outermost first."""
MARKUP = re.compile(
    r"""(
    # a comment
    <!--(?:-?>|.*?--!?>|.*)
    | <!\[CDATA\[.*?\]\]>
    | <script(?=[\s/>]) (?:.*?</script(?=[\s/>])[^>]*+>|.*)
    | <style(?=[\s/>]) (?:.*?</style(?=[\s/>])[^>]*+>|.*)
    # such as a doctype
    | (?:<[!?]|</(?![a-z])(?=.)) [^>]*+ >?
    # a tag
    | </?[a-z] (?: =\s*+ (?:"[^"]*(?:"|\Z) | '[^']*(?:'|\Z) | (?!["'])) | [^=>] )*+ (?:>|\Z)
    )""",
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
"""What stands between texts, as browsers see it: what has no end takes all that follows."""
TAG_NAME = re.compile(r"</?([A-Za-z][^\s/>]*)")
ATTRIBUTE = re.compile(r"""([^\s=>"'/]+)(?:\s*+=\s*+(?:"([^"]*)"|'([^']*)'|([^\s>"']+)))?""")
"""Of a tag: its name and its value, in quotes or without."""
ALONE = (
    "", "area", "br", "col", "embed", "hr", "img", "input", "link", "meta", "script", "source",
    "style", "track", "wbr",
)  # fmt: skip
"""Elements that no end tag follows."""
INLINE = (
    "a", "abbr", "b", "bdi", "big", "cite", "code", "del", "dfn", "em", "font", "i", "ins", "kbd",
    "label", "mark", "q", "s", "samp", "small", "span", "strike", "strong", "sub", "sup", "tt",
    "u", "var",
)  # fmt: skip
"""Elements that stand within a sentence; others end it."""
MAX_DEPTH = 16
"""Of tags within a sentence: they may be written again for every word."""
LINES_KEPT = ("pre", "textarea")
"""Elements in which line ends are seen."""
WORD = re.compile(rf"{ADDRESSES} | [{SYMBOL}]+ | \w+", re.VERBOSE | re.IGNORECASE)
MAX_GAP = 64
"""Characters between two tokens of a text, such as those of an address, which is no token."""


@dataclass(frozen=True)
class Passage:
    """A text in one line."""

    text: str
    stacks: tuple[Stack, ...] | None = None
    """Of each character of HTML; None of plain text."""
    empty_elements: tuple[tuple[int, str], ...] = ()
    """Elements without text, such as icons: the place in `text` before which each stands."""

    @property
    def is_marked_within(self) -> bool:
        """Whether tags stand between its words."""
        return bool(self.empty_elements) or len(set(self.stacks or ())) > 1

    def written(self, translation: Translation) -> str:
        """The text of `translation`; of HTML, each word in the tags of that it is aligned to.

        Attention tells little of marks, so those between two words are in the tags of both.
        """
        if self.stacks is None:
            return translation.text
        if not self.is_marked_within:
            _, opening = _tags_between((), self.stacks[0])
            closing, _ = _tags_between(self.stacks[0], ())
            return opening + html.escape(translation.text, quote=False) + closing
        places = self._source_places(translation)
        empty_elements = deque(self.empty_elements)
        written = ""
        stack: Stack = ()
        end = 0
        for word in WORD.finditer(translation.text):
            place = places[word.start()]
            wanted = () if place is None else self.stacks[place]
            closing, opening = _tags_between(stack, wanted)
            written += closing + html.escape(translation.text[end : word.start()], quote=False)
            while empty_elements and empty_elements[0][0] <= (place or 0):
                written += empty_elements.popleft()[1]
            written += opening + html.escape(word[0], quote=False)
            stack = wanted
            end = word.end()
        closing, _ = _tags_between(stack, ())
        written += closing + html.escape(translation.text[end:], quote=False)
        return written + "".join(markup for _, markup in empty_elements)

    def _source_places(self, translation: Translation) -> list[int | None]:
        """The place in `text` of what each character of `translation` stands for, if it is known.

        That of a token is the same for all its characters.
        """
        if translation.text == self.text:  # without a word in it, for example
            return list(range(len(self.text)))
        found: list[int | None] = [None] * len(translation.text)
        src_places = _places(translation.src_tokens, self.text)
        tgt_places = _places(translation.tokens, translation.text)
        for src, tgt in translation.alignment:
            begin, end = tgt_places[tgt]
            src_place, _ = src_places[src]
            found[begin:end] = [src_place] * (end - begin)
        end = 0
        for copied in COPIED.finditer(self.text):
            begin = translation.text.find(copied[0], end)
            if begin >= 0:
                end = begin + len(copied[0])
                found[begin:end] = range(copied.start(), copied.end())
        return found


def _places(tokens: Sequence[str], text: str) -> list[tuple[int, int]]:
    """Where each of `tokens` begins and ends in `text`; one that is not there is empty."""
    # Not within an address, which is no token.
    outside = list(range(len(text)))
    for copied in reversed([*COPIED.finditer(text)]):
        del outside[copied.start() : copied.end()]
    outside.append(len(text) - 1)
    searched = "".join(text[place] for place in outside[:-1])
    folded = searched.lower()
    if len(folded) != len(searched):  # as of İ
        folded = searched
    places = []
    end = 0
    for token in tokens:
        spoken = token.strip(SPACE_MARK).removeprefix(JOINER).lower()
        begin = folded.find(spoken, end, end + MAX_GAP + len(spoken))
        if begin < 0:
            spoken = ""
            begin = min(end, max(0, len(searched) - 1))
        end = begin + len(spoken)
        places.append((outside[begin], outside[end - 1] + 1 if spoken else outside[begin]))
    return places


def _tags_between(stack: Stack, following: Stack) -> tuple[str, str]:
    """The tags that end, and those that begin, between words in `stack` and in `following`."""
    common = 0
    for tag, other in zip(stack, following, strict=False):
        if tag != other:
            break
        common += 1
    closing = [f"</{_name(tag)}>" for tag in reversed(stack[common:])]
    return "".join(closing), "".join(following[common:])


def _name(tag: str) -> str:
    found = TAG_NAME.match(tag)
    return found[1].lower() if found else ""


# Reading

Piece = Passage | str
"""What is translated, or stays as it is."""


def plain_pieces(text: str) -> list[Piece]:
    """The lines of `text`, and their ends."""
    pieces: list[Piece] = []
    for line in text.split("\n"):
        pieces += [Passage(line), "\n"]
    return pieces[:-1]


def html_pieces(text: str) -> list[Piece]:
    """The passages of `text`, and what stands between them.

    That is all its markup, except for tags within a sentence, and what is not translated.
    """
    pieces: list[Piece] = []
    run: list[str] = []  # texts, and between them tags within a sentence
    for part, is_kept in _parts(text):
        if is_kept:
            pieces += [*_pieces_of_run(run), part]
            run = []
        else:
            run.append(part)
    return pieces + _pieces_of_run(run)


def _parts(text: str) -> Iterator[tuple[str, bool]]:
    """Texts and markup of HTML in turn, and of each whether it stays as it is between sentences."""
    untranslated = ""  # the name of an element, and how many of that name are open in it
    depth = 0
    num_with_lines = 0  # elements that are open in which line ends stay
    for number, part in enumerate(MARKUP.split(text)):
        is_markup = number % 2 == 1
        name = _name(part) if is_markup else ""
        is_kept = depth > 0 or (is_markup and name not in INLINE)
        if depth and name == untranslated:
            depth += -1 if part.startswith("</") else 1
        elif not depth and name not in ALONE and _is_untranslated(part):
            untranslated = name
            depth = 1
            is_kept = True
        if name in LINES_KEPT:
            num_with_lines = max(0, num_with_lines + (-1 if part.startswith("</") else 1))
        if num_with_lines and not is_markup and not is_kept:
            for line in re.split(r"(\n)", part):
                yield line, line == "\n"
        else:
            yield part, is_kept


def _is_untranslated(tag: str) -> bool:
    """Whether the element that `tag` begins stays as it is."""
    if tag.startswith("</") or "translate" not in tag.lower():
        return False
    for name, *values in ATTRIBUTE.findall(tag.lower()):
        value = "".join(values)
        if name == "translate" and value == "no":
            return True
        if name == "class" and "notranslate" in value.split():
            return True
    return False


@dataclass(frozen=True)
class _OpenElement:
    """An element whose end tag has not come yet."""

    tag: str
    begin: int
    """Of its text in that of the run."""
    num_empty: int
    """Elements without text before it."""


def _pieces_of_run(run: list[str]) -> list[Piece]:
    """A passage of all texts of `run`; or one of each, if the tags between them do not match."""
    text = ""
    stacks: list[Stack] = []
    opened: list[_OpenElement] = []
    empty_elements: list[tuple[int, str]] = []
    for number, part in enumerate(run):
        if number % 2 == 0:
            plain = html.unescape(part)
            text += plain
            stacks += [tuple(element.tag for element in opened)] * len(plain)
        elif not part.startswith("</"):
            opened.append(_OpenElement(part, len(text), len(empty_elements)))
            if len(opened) > MAX_DEPTH:
                break
        elif opened and _name(opened[-1].tag) == _name(part):
            element = opened.pop()
            if not text[element.begin :].strip():
                inside = "".join(markup for _, markup in empty_elements[element.num_empty :])
                del empty_elements[element.num_empty :]
                empty_elements.append((element.begin, f"{element.tag}{inside}{part}"))
        else:
            opened.append(_OpenElement(part, len(text), 0))  # which nothing closes
            break
    if not opened and text.strip():
        return _passage(text, stacks, empty_elements)
    pieces: list[Piece] = []
    for number, part in enumerate(run):
        plain = html.unescape(part)
        pieces += [part] if number % 2 or not plain.strip() else _passage(plain, [()] * len(plain))
    return pieces


def _passage(
    text: str, stacks: Sequence[Stack], empty_elements: Sequence[tuple[int, str]] = ()
) -> list[Piece]:
    """A passage between what stands around it: white space, and elements without text."""
    words = text.strip()
    begin = text.index(words)
    end = begin + len(words)
    stacks_of_words = tuple(stacks[begin:end])
    before = [each for each in empty_elements if each[0] <= begin]
    after = [each for each in empty_elements if each[0] >= end]
    within = [(place - begin, markup) for place, markup in empty_elements if begin < place < end]
    return [
        _with_elements(text, 0, begin, before),
        Passage(re.sub(r"\s", " ", words), stacks_of_words, tuple(within)),
        _with_elements(text, end, len(text), after),
    ]


def _with_elements(text: str, begin: int, end: int, elements: Sequence[tuple[int, str]]) -> str:
    """`text` from `begin` to `end`, with the `elements` in their places."""
    written = ""
    for place, markup in elements:
        written += text[begin:place] + markup
        begin = place
    return written + text[begin:end]
