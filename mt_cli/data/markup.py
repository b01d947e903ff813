"""Translation memories and translators' files: TMX 1.4, XLIFF 1.2 and 2.0.

They are read as they stream by, so memory does not grow with the file. They are written by putting
translations into what was read: all else stays as it is, byte for byte.
"""

import codecs
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path
from xml.parsers import expat
from xml.sax.saxutils import escape

from mt_cli.data.files import open_bytes
from mt_cli.errors import DataError
from mt_cli.text.language import base_language

READ_BYTES = 1 << 16
UNITS = ("tu", "trans-unit", "segment")
TEXTS = ("seg", "source", "target")
HIDDEN = (
    "alt-trans", "bpt", "bx", "ept", "ex", "it", "note", "ph", "prop", "ut", "x",
)  # fmt: skip
"""Elements whose content is not text of the unit: formatting, remarks, other proposals."""
PROTECTED = (*UNITS, "unit", "group")
"""Elements that may say that nothing in them is translated."""
Write = Callable[[bytes], None]


@dataclass
class Unit:
    """A text in some languages."""

    element: str
    """Its name: `tu` in TMX, `trans-unit` or `segment` in XLIFF."""
    prefix: str
    """Of the names of its elements, such as `xlf:`."""
    texts: dict[str, str] = field(default_factory=dict)
    """By language, the source's first; by `source` and `target` where XLIFF names none."""
    begin: int = 0
    """Where a translation goes, in bytes; an empty one that stands there ends at `end`."""
    end: int = 0
    empty_segs: dict[str, tuple[int, int]] = field(default_factory=dict)
    """In TMX, where the `seg` of a language begins and ends that has no text."""
    target_lang: str = ""
    """What an XLIFF file is to be translated into, where it says so."""

    def text(self, column: str) -> str:
        """The text in a language, or that of the side `src` or `tgt`; empty if there is none.

        Where there is none in `pt-PT`, it is that in `pt` or `pt-BR`.
        """
        if column in ("src", "tgt"):
            texts = list(self.texts.values())
            return "".join(texts[:1] if column == "src" else texts[1:2])
        of_language = [
            lang
            for lang, text in self.texts.items()
            if text and base_language(lang) == base_language(column)
        ]
        of_language.sort(key=lambda lang: lang.lower() != column.lower())  # its own variant first
        return self.texts[of_language[0]] if of_language else ""

    def source(self, lang: str) -> str:
        """The text to translate from `lang`."""
        if self.element == "tu":
            return self.text(lang)
        own = next(iter(self.texts), "")
        is_right = own == "source" or base_language(own) == base_language(lang)
        return self.texts[own] if is_right and own else ""

    def is_translated(self, lang: str) -> bool:
        """Whether it has a text in `lang`, or whatever language an XLIFF file is for."""
        return bool(self.text(lang if self.element == "tu" else "tgt"))

    def with_translation(self, text: str, lang: str) -> tuple[int, int, str]:
        """Where the translation `text` in `lang` goes, from byte to byte, and its element."""
        p = self.prefix
        if self.element != "tu":
            return self.begin, self.end, f"<{p}target>{escape(text)}</{p}target>"
        seg = f"<{p}seg>{escape(text)}</{p}seg>"
        for empty, (begin, end) in self.empty_segs.items():
            if base_language(empty) == base_language(lang):
                return begin, end, seg
        return self.begin, self.end, f'<{p}tuv xml:lang="{lang}">{seg}</{p}tuv>'


def texts_of(path: Path, column: str) -> Iterator[bytes]:
    """The texts of a file in the language `column`, or of the side `src` or `tgt`.

    Raises:
        DataError: it cannot be read.
    """
    with open_bytes(path) as content:
        for unit in units_of(content, path):
            yield unit.text(column).encode()


def units_of(content: BufferedReader, path: Path) -> Iterator[Unit]:
    """The units of `content`, which `path` names in errors.

    Raises:
        DataError: it is no XML, or it defines entities, which could grow without end.
    """
    reader = _Reader()
    has_more = True
    while has_more:
        data = content.read(READ_BYTES)
        has_more = bool(data)
        try:
            reader.parser.Parse(data, not has_more)
        except (expat.ExpatError, ValueError, LookupError) as error:
            raise DataError(f"{path}: cannot be read as XML: {error}") from error
        yield from reader.units
        reader.units.clear()


class _Reader:
    """Makes units of what a parser reports."""

    def __init__(self) -> None:
        self.units: list[Unit] = []
        self.parser = expat.ParserCreate()
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._characters
        self.parser.EntityDeclHandler = self._entity
        self.parser.DefaultHandlerExpand = lambda _: self._note_end()  # comments and the like
        self._languages = {"source": "source", "target": "target"}
        self._lang = ""
        self._unit: Unit | None = None
        self._pieces: list[str] | None = None
        self._num_hidden = 0
        self._closed = ""
        """The name of the text that has just ended; where, the next event tells."""
        self._seg_begin = 0
        self._has_elements = False

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._note_end()
        self._has_elements = True  # a text that holds one is not empty
        prefix, colon, name = tag.rpartition(":")
        is_protected = name in PROTECTED and attributes.get("translate") == "no"
        if self._num_hidden or name in HIDDEN or is_protected:
            self._num_hidden += 1
        elif name in ("xliff", "file"):
            for side, keys in (
                ("source", "srcLang source-language"),
                ("target", "trgLang target-language"),
            ):
                for key in keys.split():
                    self._languages[side] = attributes.get(key, self._languages[side])
        elif name == "header":
            self._languages = {"source": attributes.get("srclang", "*all*")}
        elif name in UNITS:
            target = self._languages.get("target", "target")
            self._unit = Unit(
                name, prefix + colon, target_lang="" if target == "target" else target
            )
        elif name == "tuv":
            self._lang = attributes.get("xml:lang") or attributes.get("lang", "")
        elif name in TEXTS and self._unit is not None:
            self._pieces = []
            self._has_elements = False
            self._seg_begin = self.parser.CurrentByteIndex
            if name == "target":
                self._unit.begin = self._seg_begin

    def _end(self, tag: str) -> None:
        self._note_end()
        name = tag.rpartition(":")[2]
        unit = self._unit
        if self._num_hidden:
            self._num_hidden -= 1
        elif unit is None:
            return
        elif name in TEXTS and self._pieces is not None:
            lang = self._lang if name == "seg" else self._languages[name]
            unit.texts[lang] = " ".join("".join(self._pieces).split())
            self._pieces = None
            self._closed = name
        elif name == "seg-source":  # the source once more, cut into segments
            self._closed = "source"
        elif name == unit.element:
            source = self._languages["source"]
            if name == "tu":
                unit.begin = unit.end = self.parser.CurrentByteIndex
            if source in unit.texts:
                unit.texts = {source: unit.texts[source], **unit.texts}
            self.units.append(unit)
            self._unit = None

    def _characters(self, data: str) -> None:
        self._note_end()
        if self._pieces is not None and not self._num_hidden:
            self._pieces.append(data)

    def _note_end(self) -> None:
        if self._unit is not None and self._closed:
            self._unit.end = self.parser.CurrentByteIndex
            if self._closed == "source":
                self._unit.begin = self._unit.end
            elif self._closed == "seg" and not (self._unit.texts[self._lang] or self._has_elements):
                self._unit.empty_segs[self._lang] = (self._seg_begin, self._unit.end)
        self._closed = ""

    def _entity(self, *_: object) -> None:
        raise ValueError("it defines entities")


def translate_markup(
    path: Path,
    *,
    write: Write,
    translate: Callable[[list[str]], list[str]],
    languages: tuple[str, str],
    units_together: int,
) -> None:
    """Write the file with a translation in each unit that has a source and no translation.

    Raises:
        DataError: it cannot be read, or has no text in the source language.
    """
    src_lang, tgt_lang = languages
    num_sources = place = 0
    waiting: list[Unit] = []
    with open_bytes(path) as content, open_bytes(path) as copy:
        encoding = _encoding_of(content.peek(READ_BYTES))

        def put_translations() -> None:
            nonlocal place
            texts = translate([unit.source(src_lang) for unit in waiting])
            for unit, text in zip(waiting, texts, strict=True):
                begin, end, element = unit.with_translation(text, tgt_lang)
                _copy(copy, write, begin - place)
                write(element.encode(encoding, "xmlcharrefreplace"))
                copy.read(end - begin)
                place = end
            waiting.clear()

        for unit in units_of(content, path):
            if not unit.source(src_lang):
                continue
            if unit.target_lang and base_language(unit.target_lang) != base_language(tgt_lang):
                raise DataError(
                    f"{path}: it is to be translated into {unit.target_lang}, and the model "
                    f"translates into {tgt_lang}"
                )
            num_sources += 1
            if not unit.is_translated(tgt_lang):
                waiting.append(unit)
                if len(waiting) == units_together:
                    put_translations()
        put_translations()
        _copy(copy, write, None)
    if not num_sources:
        raise DataError(f"{path}: it has no text in the language {src_lang}")


def _copy(content: BufferedReader, write: Write, size: int | None) -> None:
    """Write the next `size` bytes of `content`, or all that are left."""
    while size is None or size > 0:
        data = content.read(READ_BYTES if size is None else min(size, READ_BYTES))
        if not data:
            return
        write(data)
        size = None if size is None else size - len(data)


def _encoding_of(head: bytes) -> str:
    """The encoding of XML that begins with `head`."""
    if head.startswith((codecs.BOM_UTF16_LE, b"<\0")):
        return "utf-16-le"
    if head.startswith((codecs.BOM_UTF16_BE, b"\0<")):
        return "utf-16-be"
    named = re.match(rb"""<\?xml[^>]*encoding=["']([\w.:-]+)""", head.removeprefix(codecs.BOM_UTF8))
    return named[1].decode() if named else "utf-8"
