"""Pages in Markdown as their readers see them."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```(?P<language>\w*)[^\n]*\n(?P<body>.*?)^```\s*$", re.MULTILINE | re.DOTALL)


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def blocks_in(text: str, language: str) -> list[str]:
    """The fenced blocks of a language."""
    return [match["body"] for match in FENCE.finditer(text) if match["language"] == language]
