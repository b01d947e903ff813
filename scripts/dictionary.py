"""A dictionary of Ding (https://www-user.tu-chemnitz.de/~fri/ding/) as two files of lines.

Usage: scripts/dictionary.py DICTIONARY SOURCES TARGETS [TEXT ...]

Writes each German word or short phrase and its likeliest English one. With texts (.gz or not), only
those whose words all occur there.
"""

import gzip
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

NOTES = re.compile(
    r"\{[^}]*\}|\[[^]]*\]|\([^)]*\)|/[^/]*/|\b(?:jds|jdm|jdn|jd|etw|sth|sb|so|oneself)\b\.?(?:'s)?"
)
"""Grammar, fields, remarks, pronunciation, and what stands for a person or a thing."""
PHRASE = re.compile(r"[\w'-]+( [\w'-]+){0,2}")


def phrases(cell: str) -> Iterator[str]:
    """`Haus {n}; Bau {m}` -> Haus, Bau"""
    for text in cell.split(";"):
        phrase = " ".join(NOTES.sub(" ", text).split()).removeprefix("to ").strip(" ,…")
        if PHRASE.fullmatch(phrase):
            yield phrase


def translations(lines: Iterable[str]) -> dict[str, str]:
    """Each phrase with its likeliest translation.

    A line is `Haus {n}; Bau {m} | Häuser {pl} :: house; building | houses`. The first translations
    of the first phrases are the likeliest.
    """
    weights: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for line in lines:
        german, _, english = line.partition("::")
        if line.startswith("#"):
            continue
        for german_cell, english_cell in zip(german.split("|"), english.split("|"), strict=False):
            for rank, source in enumerate(phrases(german_cell), start=1):
                for other_rank, target in enumerate(phrases(english_cell), start=1):
                    weights[source][target] += 1 / (rank * other_rank)
    return {source: max(targets, key=targets.__getitem__) for source, targets in weights.items()}


def words(text: str) -> list[str]:
    """In lower case."""
    return re.findall(r"\w+", text.lower())


def words_of_files(paths: Iterable[Path]) -> set[str]:
    """The words of text files, packed by gzip or not."""
    known: set[str] = set()
    for path in paths:
        open_text = gzip.open if path.suffix == ".gz" else open
        with open_text(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                known.update(words(line))
    return known


def main(dictionary: str, sources: str, targets: str, *texts: str) -> None:
    """Write the two files."""
    with Path(dictionary).open(encoding="utf-8") as lines:
        pairs = translations(lines)
    if texts:
        known = words_of_files(Path(text) for text in texts)
        pairs = {source: pairs[source] for source in pairs if known.issuperset(words(source))}
    Path(sources).write_text("".join(f"{source}\n" for source in pairs), encoding="utf-8")
    Path(targets).write_text("".join(f"{pairs[source]}\n" for source in pairs), encoding="utf-8")
    print(f"{len(pairs):,} entries", file=sys.stderr)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
