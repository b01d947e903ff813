"""HTML that is safe by construction: text becomes markup only by being escaped, or by `element`.

Knows HTML, nothing of what a page says.
"""

import html
import re
from typing import Self

INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)
"""Characters that cannot be seen, could reorder the text around them, or cannot stand in HTML."""
VOID = frozenset({"input", "br"})
"""Elements without an end tag."""


class Html(str):
    """Markup, as opposed to text, which still has to be escaped."""

    __slots__ = ()

    @classmethod
    def joined(cls, *parts: str, between: str = "") -> Self:
        """All `parts`, those that are text escaped."""
        return cls(escaped(between).join(map(escaped, parts)))


def escaped(text: str) -> "Html":
    """`text` as HTML that shows it, and shows the code of what is invisible; markup as it is."""
    return text if isinstance(text, Html) else Html(html.escape(visible(text)))


def visible(text: str) -> str:
    """`text`, in which `[U+202E]`, for example, stands for a character that cannot be seen."""
    return INVISIBLE.sub(lambda match: f"[U+{ord(match[0]):04X}]", text)


def element(tag: str, *children: str, **attributes: object) -> Html:
    """`<tag>` around `children`, which are escaped unless they are markup.

    An attribute's name is written as in `class_` or `aria_label`. None and False leave it out.
    """
    pairs = "".join(
        _attribute(name, value)
        for name, value in attributes.items()
        if value is not None and value is not False
    )
    end = "" if tag in VOID else f"{Html.joined(*children)}</{tag}>"
    return Html(f"<{tag}{pairs}>{end}")


def _attribute(name: str, value: object) -> str:
    name = name.removesuffix("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escaped(str(value))}"'


def table(head: list[str], *rows: list[str], caption: str, class_: str | None = None) -> Html:
    """A table in a box that scrolls sideways by itself, by keyboard too; rows begin with their heading."""
    heading = element("thead", element("tr", *(element("th", cell, scope="col") for cell in head)))
    body = element(
        "tbody",
        *(
            element("tr", element("th", first, scope="row"), *(element("td", cell) for cell in others))
            for first, *others in rows
        ),
    )
    inner = element("table", element("caption", caption, class_="unseen"), heading, body, class_=class_)
    return element("div", inner, class_="scroll", role="region", aria_label=caption, tabindex=0)


def folded(summary: str, *children: str, class_: str | None = None) -> Html:
    """`children`, shown when `summary` is opened."""
    return element("details", element("summary", summary), *children, class_=class_)
