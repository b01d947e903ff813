"""README.md and docs/ against the real thing: commands, flags, files, configs and links."""

import contextlib
import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer
import typer.main

from mt_cli.cli import app

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
DOCUMENTS = [README, *sorted((ROOT / "docs").rglob("*.md"))]

FENCE = re.compile(r"^(?P<marks>`{3,}|~{3,})[^\n]*\n(?P<body>.*?)^(?P=marks)\s*$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[[^\]]*\]\((?P<target>[^)\s]+)[^)]*\)")
OPERATORS = set("|&;()<>")


@dataclass(frozen=True)
class Command:
    """One call of mt-cli, as a document shows it."""

    document: str
    args: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.document}: mt-cli {' '.join(self.args)}"


def read(document: Path) -> str:
    return document.read_text(encoding="utf-8")


def fenced(text: str) -> list[str]:
    return [match["body"] for match in FENCE.finditer(text)]


def commands_in(text: str, *, document: str = "text") -> Iterator[Command]:
    """Calls of mt-cli in the fenced blocks of `text`."""
    for block in fenced(text):
        for line in block.replace("\\\n", " ").split("\n"):
            if "mt-cli" in line or "mt_cli" in line:
                for words in simple_commands(line.strip().removeprefix("$ ")):
                    if (args := arguments_of(words)) is not None:
                        yield Command(document, tuple(args))


def simple_commands(line: str) -> list[list[str]]:
    """The words of each command in a line of shell, redirections left out."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    found: list[list[str]] = [[]]
    is_redirected = False
    try:
        words = list(lexer)
    except ValueError:  # prose or output with a lone quote: no command
        return []
    for word in words:
        if set(word) <= OPERATORS:
            is_redirected = word[0] in "<>"
            if not is_redirected:
                found.append([])
        elif not is_redirected:
            found[-1].append(word)
        else:
            is_redirected = False
    return found


def arguments_of(words: list[str]) -> list[str] | None:
    """What mt-cli is called with, or nothing where `words` call something else."""
    while words and (words[0] == "time" or re.match(r"[A-Za-z_]\w*=", words[0])):
        words = words[1:]
    if words[:1] and Path(words[0]).name == "mt-cli":
        return words[1:]
    if words[:1] and Path(words[0]).name.startswith("python") and words[1:3] == ["-m", "mt_cli"]:
        return words[3:]
    return None


def subcommands() -> set[str]:
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    return set(group.commands)


def parse(args: tuple[str, ...]) -> None:
    """Parse `args` as mt-cli does, without running anything; typer's own error says what is wrong."""
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    with contextlib.suppress(typer.Exit):  # --help and --version
        if not args or args[0].startswith("-"):
            group.make_context("mt-cli", list(args))
        else:
            assert args[0] in group.commands, f"no command '{args[0]}'; there are {', '.join(group.commands)}"
            command, args = group.commands[args[0]], args[1:]
            while isinstance(command, typer.core.TyperGroup):
                assert args, f"{command.name}: no command; there are {', '.join(command.commands)}"
                command, args = command.commands[args[0]], args[1:]
            command.make_context(command.name, list(args))


def links_in(text: str) -> list[str]:
    """Targets of the links that point to files."""
    prose = re.sub(r"`[^`\n]*`", "", FENCE.sub("", text))
    targets = [match["target"] for match in LINK.finditer(prose)]
    return [target for target in targets if not re.match(r"[a-z]+:|#", target)]


def file_map(text: str) -> list[str]:
    """Paths of the table headed 'file': its first column, and the files named beside a folder."""
    table = re.search(r"^\| file \|[^\n]*\n\|[- |]*\n(?P<rows>(?:\|[^\n]*\n?)+)", text, re.MULTILINE)
    return [path for row in table["rows"].splitlines() for path in row_paths(row)] if table else []


def row_paths(row: str) -> Iterator[str]:
    first, rest = row.strip("| ").split("|", 1)
    places = re.findall(r"`([^`]+)`", first)
    yield from places
    if len(places) == 1 and places[0].endswith("/"):
        yield from (places[0] + name for name in re.findall(r"`([\w-]+\.\w+)`", rest))


def is_made_by_a_command(path: str) -> bool:
    ignored = [line.strip("/\n") for line in read(ROOT / ".gitignore").split("\n") if line.startswith("/")]
    return any(path.strip("/").startswith(folder) for folder in ignored)


def exists(path: str) -> bool:
    return (ROOT / path).is_dir() if path.endswith("/") else (ROOT / path).exists()


COMMANDS = [
    command for path in DOCUMENTS for command in commands_in(read(path), document=str(path.relative_to(ROOT)))
]
each_document = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_shown_command_is_one_that_mt_cli_takes(command: Command) -> None:
    parse(command.args)


def test_readme_shows_every_command() -> None:
    shown = {word for command in commands_in(read(README)) for word in command.args[:1]}
    assert sorted(subcommands() - shown) == [], "README.md: no fenced block shows these"


def test_file_map_names_what_exists() -> None:
    paths = file_map(read(README))
    assert paths, "README.md: no table whose first column is headed 'file'"
    assert [path for path in paths if not exists(path) and not is_made_by_a_command(path)] == []


def test_file_map_names_every_part_of_the_package() -> None:
    named = file_map(read(README))
    parts = [f"mt_cli/{path.name}" for path in (ROOT / "mt_cli").iterdir() if not path.name.startswith("_")]
    missing = [part for part in parts if not any(name.startswith(part) for name in named)]
    assert sorted(missing) == [], "README.md: the file map lacks these"


@each_document
def test_named_configs_exist(document: Path) -> None:
    named = set(re.findall(r"\bconfigs/[\w./-]+\.toml", read(document)))
    assert sorted(name for name in named if not (ROOT / name).is_file()) == []


@each_document
def test_named_scripts_exist_and_run(document: Path) -> None:
    named = set(re.findall(r"(?<![\w/.])scripts/\w+(?:\.\w+)?", read(document)))
    missing = [name for name in named if not (ROOT / name).is_file()]
    assert missing == []
    assert [name for name in named if "." not in name and not os.access(ROOT / name, os.X_OK)] == []


@each_document
def test_links_lead_to_files(document: Path) -> None:
    targets = links_in(read(document))
    assert [t for t in targets if not (document.parent / t.partition("#")[0]).exists()] == []


# The checks themselves


@pytest.mark.parametrize(
    ("line", "args"),
    [
        ("mt-cli evaluate runs/sample", ("evaluate", "runs/sample")),
        ("$ .venv/bin/mt-cli evaluate runs/sample  # BLEU", ("evaluate", "runs/sample")),
        ("python -m mt_cli --help", ("--help",)),
        ("OMP_NUM_THREADS=1 time mt-cli train \\\n  a.toml --seed 2", ("train", "a.toml", "--seed", "2")),
        ("printf 'a b\\n' | mt-cli translate runs/x > out.txt", ("translate", "runs/x")),
        ("mt-cli translate runs/x < in.txt | head -1", ("translate", "runs/x")),
        ("mt-cli translate runs/x --text 'Ein Mann'", ("translate", "runs/x", "--text", "Ein Mann")),
    ],
)
def test_command_is_found_in_a_fenced_block(line: str, args: tuple[str, ...]) -> None:
    (command,) = commands_in(f"Text:\n\n```sh\n{line}\n```\n")
    assert command.args == args


def test_prose_and_other_commands_are_no_commands() -> None:
    assert not list(
        commands_in("Use `mt-cli nonsense`.\n\n```\npip install mt-cli\nisn't mt-cli fine\n```\n")
    )


@pytest.mark.parametrize(
    "args",
    [
        ("evalute", "runs/x"),
        ("config",),
        ("config", "diff", "a.toml"),
        ("evaluate",),
        ("evaluate", "runs/x", "--bleu"),
        ("train", "a.toml", "more"),
        ("train", "a.toml", "--device", "tpu"),
        ("--nonsense",),
    ],
)
def test_planted_wrong_command_is_caught(args: tuple[str, ...]) -> None:
    usage_error = typer.BadParameter.__bases__[0]  # typer exports only this child of it
    with pytest.raises((AssertionError, usage_error)):
        parse(args)


def test_links_are_found_outside_code_only() -> None:
    text = "[a](docs/a.md#x) ![b](b.png) [c](https://x.org) [d](#d) `[e](e)`\n\n```\n[f](f)\n```\n"
    assert links_in(text) == ["docs/a.md#x", "b.png"]


def test_file_map_is_a_table_of_files_and_of_folders_with_files() -> None:
    rows = "| `a.py`, `b.py` | `c` |\n| `d/` | `e.py` with `--set`, `f.toml` |\n"
    text = f"| name |\n| --- |\n| `x` |\n\n| file | owns |\n| --- | --- |\n{rows}\n| `y` | z |\n"
    assert file_map(text) == ["a.py", "b.py", "d/", "d/e.py", "d/f.toml"]


def test_planted_missing_path_is_caught() -> None:
    assert exists("mt_cli/cli.py")
    assert exists("scripts/")
    assert not exists("mt_cli/nonsense.py")
    assert not exists("README.md/")
