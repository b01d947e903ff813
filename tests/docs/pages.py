"""README.md and docs/ as their readers see them: blocks, headings, links and commands.

Knows Markdown and shell, nothing of what may stand in them.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [README, *DOCS]

FENCE = re.compile(
    r"^(?P<marks>`{3,}|~{3,})(?P<language>\w*)[^\n]*\n(?P<body>.*?)^(?P=marks)\s*$",
    re.MULTILINE | re.DOTALL,
)
LINK = re.compile(r"(?P<mark>!?)\[[^\]]*\]\((?P<target>[^)\s]+)[^)]*\)")
HEADING = re.compile(r"^#{1,6} +(?P<title>.+?) *$", re.MULTILINE)
PROMPT = "$ "
OPERATORS = set("|&;()<>")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    body: str


@dataclass(frozen=True)
class Shown:
    """A command line, and the output that a page shows below it."""

    line: str
    output: list[str] = field(default_factory=list)


def read(page: Path) -> str:
    """The text of `page`."""
    return page.read_text(encoding="utf-8")


def name_of(page: Path) -> str:
    """Path of `page` in the repository."""
    return str(page.relative_to(ROOT))


def blocks_in(text: str, *languages: str) -> list[Block]:
    """The fenced blocks of `text`, of some languages or of all."""
    found = [Block(match["language"], match["body"]) for match in FENCE.finditer(text)]
    return [block for block in found if not languages or block.language in languages]


def shown_in(text: str) -> Iterator[Shown]:
    """Each command line after a prompt in the fenced blocks of `text`, with its output."""
    for block in blocks_in(text):
        found: list[Shown] = []
        for line in block.body.replace("\\\n", " ").splitlines():
            if line.startswith(PROMPT):
                found.append(Shown(line.removeprefix(PROMPT)))
            elif found:
                found[-1].output.append(line)
        yield from found


def simple_commands(line: str) -> list[list[str]]:
    """The words of each command in a line of shell, without redirections and variables."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    found: list[list[str]] = [[]]
    is_redirected = False
    for word in lexer:
        if set(word) <= OPERATORS:
            is_redirected = word[0] in "<>"
            if not is_redirected:
                found.append([])
        elif not is_redirected:
            found[-1].append(word)
        else:
            is_redirected = False
    return [_without_variables(words) for words in found]


def _without_variables(words: list[str]) -> list[str]:
    while words and re.match(r"[A-Za-z_]\w*=", words[0]):
        words = words[1:]
    return words


def arguments_of(words: list[str]) -> list[str] | None:
    """What mt-cli is called with, or nothing if `words` call something else."""
    if words[:1] and Path(words[0]).name == "mt-cli":
        return words[1:]
    if words[:1] == ["torchrun"] and "mt_cli" in words:
        return words[words.index("mt_cli") + 1 :]
    if words[:1] and Path(words[0]).name.startswith("python") and words[1:3] == ["-m", "mt_cli"]:
        return words[3:]
    return None


def links_in(text: str) -> list[str]:
    """Targets of the links and pictures that point into the repository."""
    targets = [match["target"] for match in LINK.finditer(_prose(text))]
    return [target for target in targets if not re.match(r"[a-z]+:", target)]


def anchors_in(text: str) -> list[str]:
    """What may follow the `#` of a link to this page: its headings, as Git hosts spell them."""
    titles = [match["title"] for match in HEADING.finditer(FENCE.sub("", text))]
    return [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles]


def _prose(text: str) -> str:
    """`text` without fenced blocks, and without what stands between backticks."""
    return re.sub(r"`[^`\n]*`", "", FENCE.sub("", text))
