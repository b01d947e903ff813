"""TMX: reading the texts of translation memories."""

from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from mt_cli.data.text_files import open_bytes
from mt_cli.machine.files import damage_named
from mt_cli.text.language import base_language

HIDDEN = ("bpt", "ept", "it", "ph", "ut")
"""Elements whose content is formatting, not text."""
XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"
Texts = dict[str, str]
"""The text of a unit in each language, the source language first if the file names it."""


def tmx_texts(path: Path, column: str) -> Iterator[bytes]:
    """The texts of a file in the language `column`, or on the side `src` or `tgt`.

    A unit without this text gives an empty one. Other variants are accepted: `pt` or `pt-BR` for
    `pt-PT`.

    Raises:
        DataError: the file cannot be read.
    """
    for texts in tmx_units(path):
        yield _text(texts, column).encode()


def tmx_languages(path: Path) -> list[str]:
    """The languages of the first unit, the source language first.

    Raises:
        DataError: the file cannot be read.
    """
    return list(next(tmx_units(path), {}))


def tmx_units(path: Path) -> Iterator[Texts]:
    """The units of a file.

    Raises:
        DataError: the file is not valid XML.
    """
    src_lang = ""
    body = None
    with (
        open_bytes(path) as content,
        damage_named(path, "XML", ElementTree.ParseError, ValueError, LookupError),
    ):
        for event, element in ElementTree.iterparse(content, events=("start", "end")):
            name = _name(element)
            if event == "start" and name == "header":
                src_lang = element.get("srclang", "")
            elif event == "start" and name == "body":
                body = element
            elif event == "end" and name == "tu":
                yield _texts(element, src_lang)
                element.clear()
                if body is not None:
                    body.clear()  # otherwise memory grows with the file


def _texts(unit: ElementTree.Element, src_lang: str) -> Texts:
    texts: Texts = {}
    for variant in unit:
        lang = variant.get(XML_LANG) or variant.get("lang") or ""
        for segment in variant:
            if _name(segment) == "seg":
                texts[lang] = " ".join(_visible_text(segment).split())
    return {lang: texts[lang] for lang in sorted(texts, key=lambda lang: lang != src_lang)}


def _text(texts: Texts, column: str) -> str:
    if column in ("src", "tgt"):
        sides = list(texts.values())
        return "".join(sides[:1] if column == "src" else sides[1:2])
    of_language = [
        lang
        for lang, text in texts.items()
        if text and base_language(lang) == base_language(column)
    ]
    of_language.sort(key=lambda lang: lang.lower() != column.lower())  # the exact variant first
    return texts[of_language[0]] if of_language else ""


def _visible_text(element: ElementTree.Element) -> str:
    text = element.text or ""
    for child in element:
        if _name(child) not in HIDDEN:
            text += _visible_text(child)
        text += child.tail or ""
    return text


def _name(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]
