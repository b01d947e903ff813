"""The file map of docs/design.md: a line for each file, in the words of its own first docstring or comment.

Asks git which files there are; a file that is not known to git is not on the map.
"""

import ast
import re
import subprocess
from itertools import groupby
from pathlib import Path

from generated_docs.marks import with_part

FOLDERS = ("mt_cli", "scripts", "tests")
BEGIN = "<!-- file map: made by scripts/write_docs -->"
END = "<!-- end of the file map -->"
COMMENT = re.compile(r"^(?:(?:# [^\n]*\n)+|(?:// [^\n]*\n)+|/\*.*?\*/|<!-- .*?-->)", re.MULTILINE | re.DOTALL)
"""The first comment of a script, a style sheet or a page; `#!` begins none."""


def mapped_files(root: Path) -> dict[str, str]:
    """What each file below `FOLDERS` is for, by its path in the repository."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *FOLDERS],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    there = sorted(name for name in set(listed) if (root / name).is_file())
    return {name: purpose_of(root / name) for name in there}


def purpose_of(path: Path) -> str:
    """The first paragraph of a module's docstring, or the first sentence of another file's first comment."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return _joined((ast.get_docstring(ast.parse(text)) or "").split("\n\n")[0])
    comment = COMMENT.search(text)
    words = re.sub(r"^(# |// )", "", comment[0], flags=re.MULTILINE).strip("/*<!- >\n") if comment else ""
    return re.split(r"(?<=[.])\s", _joined(words), maxsplit=1)[0]


def _joined(lines: str) -> str:
    return " ".join(lines.split())


def file_map(files: dict[str, str]) -> str:
    """A heading and a table for each folder; a folder's own docstring stands below its heading."""
    blocks = []
    for folder, names in groupby(sorted(files, key=_place), key=lambda name: str(Path(name).parent)):
        here = {Path(name).name: name for name in names}
        own = here.pop("__init__.py", None)
        lines = [f"### {folder}/", *(["", files[own]] if own else [])]
        if here:
            lines += ["", "| file | what it is |", "| --- | --- |"]
        lines += [f"| [`{name}`](../{path}) | {files[path]} |" for name, path in here.items()]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def with_file_map(page: str, files: dict[str, str]) -> str:
    """`page` with the map of `files` between its two marks."""
    return with_part(page, file_map(files), begin=BEGIN, end=END)


def _place(name: str) -> tuple[int, str, str]:
    path = Path(name)
    return FOLDERS.index(path.parts[0]), str(path.parent), path.name
