"""Glossaries: source terms and their required translations."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mt_cli.data.tables import SEPARATOR_LINE
from mt_cli.data.text_files import read_text, scored_lines
from mt_cli.errors import DataError
from mt_cli.text.language import CODE, UNSPACED, base_language, is_name_of
from mt_cli.text.normalize import normalize

ANY = "*"
"""At the end of a word in a term, it matches any letters: "Hund*" also matches "Hundes"."""
WORD_BEGINS = re.compile(rf"(?<!\w)(?=\S)|(?={UNSPACED})")
WORD_ENDS = re.compile(rf"(?!\w)|(?<={UNSPACED})")
"""In scripts without spaces between words, a word may end after any letter."""
LETTERS = re.compile(rf"(?:(?!{UNSPACED})\w)*")
LONGEST_ENDING = 3
"""Maximum number of letters that an inflected word may have after the term."""
ALIKE = str.maketrans("’‘ʼ´`‐‑–—−„“”«»", "'''''-----\"\"\"\"\"")
"""Characters that match each other."""
COMMENT = "#"
MAX_PROBLEMS = 20
"""Maximum number of lines that an error lists."""
SOURCE_WORDS = ("source", "source term", "term", "quelle", "begriff", "ausgangssprache")
TARGET_WORDS = ("target", "target term", "translation", "ziel", "übersetzung", "zielsprache")
"""Column names that the first row may use instead of languages."""


@dataclass(frozen=True)
class Term:
    """A term in a text."""

    name: str
    start: int
    """Index of its first character."""
    end: int
    """Index after its last character."""
    translations: Sequence[str]
    """Any of them is accepted."""

    def count_in(self, translation: str) -> int:
        """How often `translation` contains one of the term's translations, ignoring case."""
        text, _ = _folded(translation)
        count = 0
        done = 0
        for word in WORD_BEGINS.finditer(text):
            if word.start() < done:
                continue
            for wanted in self.translations:
                end = _end_of([_folded(wanted)[0]], text, word.start())
                if end and WORD_ENDS.match(text, end):
                    count += 1
                    done = end
                    break
        return count


class Glossary:
    """Finds terms in a text, ignoring case."""

    def __init__(self, terms: Mapping[str, Sequence[str]]) -> None:
        """`terms` and their translations must be normalized."""
        self.terms = terms
        self._by_letter: dict[str, list[tuple[str, list[str]]]] = {}
        """Terms by first letter, the longest first, each split at `ANY`."""
        # An exact term comes before one with a wildcard.
        for name in sorted(terms, key=lambda name: (-len(name.replace(ANY, "")), ANY in name)):
            pieces, _ = _folded(name)
            self._by_letter.setdefault(pieces[0], []).append((name, pieces.split(ANY)))

    @classmethod
    def read(cls, path: Path, *, src_lang: str, tgt_lang: str) -> "Glossary":
        """Read a glossary file with a term and its translation in each row.

        Cells are separated by tabs, semicolons or commas, and may be quoted. If the first row names
        both languages, it is a header that says which columns to use. Otherwise these are the first
        two, and the third and fourth may name the languages, as in DeepL's files. Other columns,
        empty rows and comments (`#`) are ignored. A term may have several rows; its case is
        ignored.

        Raises:
            DataError: the file is not a glossary; the error lists the wrong rows.
        """
        rows = _rows(scored_lines(read_text(path), path))
        columns = [0, 1]
        named = [_columns(cells, src_lang, tgt_lang) for _, cells in rows[:2]]
        # DeepL's files have languages in the third and fourth column of every row.
        if named and named[0] and named[0] != named[-1]:
            columns = named[0]
            rows = rows[1:]
        terms: dict[str, list[str]] = {}
        names: dict[str, str] = {}
        problems = []
        languages = [base_language(src_lang), base_language(tgt_lang)]
        for number, cells in rows:
            term = "".join(cells[columns[0] : columns[0] + 1])
            translation = "".join(cells[columns[1] : columns[1] + 1])
            codes = [base_language(cell) for cell in cells[2:4] if CODE.fullmatch(cell)]
            if not term or not translation:
                found = repr(" ".join(cells)[:60])
                problems.append(
                    f"line {number}: expected a term, a tab and its translation, found {found}"
                )
            elif term.startswith(ANY) or re.search(r"\*\S|\s\*", term):
                problems.append(f"line {number}: {term!r}: {ANY} may only stand at a word's end")
            elif columns != [0, 1] or len(codes) < 2 or codes == languages:
                name = names.setdefault(_folded(term)[0], term)
                terms.setdefault(name, []).append(translation)
        if problems:
            more = len(problems) - MAX_PROBLEMS
            problems[MAX_PROBLEMS:] = [f"and {more} more lines"] if more > 0 else []
            raise DataError(f"{path}: " + "\n".join(problems))
        if not terms:
            raise DataError(f"{path}: the glossary has no terms")
        return cls(terms)

    def terms_in(self, text: str) -> list[Term]:
        """The terms in the normalized `text`, in order; where several begin, the longest."""
        folded, places = _folded(text)
        found: list[Term] = []
        done = 0
        for match in WORD_BEGINS.finditer(folded):
            begin = match.start()
            if begin < done:
                continue
            for name, pieces in self._by_letter.get(folded[begin], ()):
                end = _end_of(pieces, folded, begin)
                if end and WORD_ENDS.match(folded, end):
                    found.append(Term(name, places[begin], places[end], self.terms[name]))
                    done = end
                    break
        return found

    def inflected_in(self, text: str) -> dict[str, str]:
        """Terms that occur in the normalized `text` with another ending, and the inflected word."""
        folded, _ = _folded(text)
        found: dict[str, str] = {}
        for match in WORD_BEGINS.finditer(folded):
            for name, pieces in self._by_letter.get(folded[match.start()], ()):
                end = _end_of(pieces, folded, match.start())
                ending = LETTERS.match(folded, end) if end else None
                if ending and 0 < len(ending[0]) <= LONGEST_ENDING:
                    found.setdefault(name, folded[match.start() : ending.end()])
        return found

    def missing(self, terms: Sequence[Term], translation: str) -> list[str]:
        """The names of the terms missing from `translation`, once per missing occurrence."""
        missing: list[str] = []
        for name, occurrences in _by_name(terms).items():
            lacks = len(occurrences) - occurrences[0].count_in(translation)
            missing += [name] * max(0, lacks)
        return missing

    def doubled(self, terms: Sequence[Term], translation: str) -> list[str]:
        """The names of the terms that occur more often in `translation` than in the source."""
        doubled = []
        for name, (term, *_) in _by_name(terms).items():
            expected = 0  # from this term, or as part of another term's translation
            for other in terms:
                expected += max(term.count_in(each) for each in other.translations)
            if term.count_in(translation) > expected:
                doubled.append(name)
        return doubled


def _folded(text: str) -> tuple[str, list[int]]:
    """`text` in folded case, and for each folded character (and the end) its index in `text`.

    All variants of quotation marks, apostrophes and dashes become one.
    """
    folded = ""
    places: list[int] = []
    for place, character in enumerate(text.translate(ALIKE)):
        folded += character.casefold()
        places += [place] * (len(folded) - len(places))
    return folded, [*places, len(text)]


def _end_of(pieces: Sequence[str], text: str, begin: int) -> int:
    """The index where a match of `pieces` that starts at `begin` ends; 0 without a match.

    Any letters may stand between the pieces.
    """
    end = begin
    for number, piece in enumerate(pieces):
        letters = LETTERS.match(text, end) if number else None
        end = letters.end() if letters else end
        if not text.startswith(piece, end):
            return 0
        end += len(piece)
    return end


def _by_name(terms: Sequence[Term]) -> dict[str, list[Term]]:
    """The occurrences of each term, by name."""
    found: dict[str, list[Term]] = {}
    for term in terms:
        found.setdefault(term.name, []).append(term)
    return found


def _rows(lines: Sequence[str]) -> list[tuple[int, list[str]]]:
    """Line number (from 1) and cells of each row, without empty rows and comments."""
    delimiter = "\t"
    named = SEPARATOR_LINE.fullmatch(lines[0]) if lines else None
    if named:
        delimiter = named[1]
        lines = ["", *lines[1:]]
    elif not any("\t" in line for line in lines):
        num_filled = sum(bool(line.strip()) for line in lines)
        likeliest = max(";,", key=lambda mark: sum(mark in line for line in lines))
        if 2 * sum(likeliest in line for line in lines) > num_filled:
            delimiter = likeliest
    mark = re.escape(delimiter)
    cell = re.compile(rf'(?:^|{mark})\s*("(?:[^"]|"")*"(?=\s*(?:{mark}|$))|[^{mark}]*)')
    rows = []
    for number, line in enumerate(lines, start=1):
        cells = [normalize(_unquoted(found.strip())) for found in cell.findall(line)]
        while cells and not cells[-1]:
            cells.pop()
        is_comment = line.startswith(COMMENT) and (len(cells) < 2 or line[1:2] in " #")
        if cells and not is_comment:
            rows.append((number, cells))
    return rows


def _unquoted(cell: str) -> str:
    """The cell without the quotes around it, if there are any."""
    is_quoted = re.fullmatch(r'"(?:[^"]|"")*"', cell) is not None
    return cell[1:-1].replace('""', '"') if is_quoted else cell


def _columns(cells: Sequence[str], src_lang: str, tgt_lang: str) -> list[int]:
    """The columns of both languages if `cells` is a header; otherwise empty."""
    columns = []
    for lang, words in ((src_lang, SOURCE_WORDS), (tgt_lang, TARGET_WORDS)):
        for column, cell in enumerate(cells):
            if is_name_of(cell, lang) or cell.casefold() in words:
                columns.append(column)
                break
    return columns if len({*columns}) == 2 else []
