"""What README.md and docs/ name is there: pages, commands with their options, configs."""

import json
import os
import re
import shlex
import tomllib
from pathlib import Path

import pytest
import typer
import typer.main
from pages import FENCE, ROOT, blocks_in, read
from write_docs import config_page

from mt_cli.cli.app import app
from mt_cli.config.load import parse_config

README = ROOT / "README.md"
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [README, *DOCS, ROOT / "CHANGELOG.md"]
LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)[^)]*\)")
HEADING = re.compile(r"^#{1,6} +(?P<title>.+?) *$", re.MULTILINE)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def links_in(text: str) -> list[str]:
    """Targets of the links and pictures that point into the repository."""
    prose = re.sub(r"`[^`\n]*`", "", FENCE.sub("", text))
    targets = [match["target"] for match in LINK.finditer(prose)]
    return [target for target in targets if not re.match(r"[a-z]+:", target)]


def anchors_in(text: str) -> list[str]:
    """What may follow the `#` of a link to this page: its headings, as Git hosts spell them."""
    titles = [match["title"] for match in HEADING.finditer(FENCE.sub("", text))]
    return [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles]


def commands_in(text: str) -> list[list[str]]:
    """The words of each simple command after a prompt in the fenced blocks of `text`."""
    blocks = [match["body"].replace("\\\n", " ") for match in FENCE.finditer(text)]
    found: list[list[str]] = []
    for line in re.findall(r"^\$ (.*)$", "".join(blocks), re.MULTILINE):
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        found.append([])
        for word in lexer:
            if set(word) <= set("|&;()<>"):
                found.append([])
            else:
                found[-1].append(word)
    return [words for words in found if words]


each_page = pytest.mark.parametrize("page", PAGES, ids=name_of)
SHOWN = [words for page in PAGES for words in commands_in(read(page))]
COMMANDS = [words for words in SHOWN if words[:2] != ["docker", "build"]]
OURS = [words[words.index("mt-cli") + 1 :] for words in COMMANDS if "mt-cli" in words[:-1]]
OURS += [words[words.index("mt_cli") + 1 :] for words in COMMANDS if words[0] == "torchrun"]
SCRIPTS = sorted({words[0] for words in COMMANDS if words[0].startswith("scripts/")})


@each_page
def test_links_lead_to_files_and_headings(page: Path) -> None:
    assert [target for target in links_in(read(page)) if not is_there(target, page=page)] == []


def is_there(target: str, *, page: Path) -> bool:
    name, _, anchor = target.partition("#")
    path = page.parent / name if name else page
    return path.exists() and (not anchor or anchor in anchors_in(read(path)))


def test_readme_leads_to_every_page() -> None:
    assert sorted({name_of(page) for page in DOCS} - set(links_in(read(README)))) == []


@pytest.mark.parametrize("args", OURS, ids=" ".join)
def test_shown_command_is_one_that_mt_cli_takes(args: list[str]) -> None:
    command = typer.main.get_command(app)
    while isinstance(command, typer.core.TyperGroup):
        name, *args = args
        if name.startswith("-"):  # parsing such a flag runs it: --install-completion installs
            assert name in {option for param in command.params for option in param.opts}
            return
        command = command.commands[name]
    command.make_context(command.name, args)


@pytest.mark.parametrize("script", SCRIPTS)
def test_shown_script_can_be_run(script: str) -> None:
    assert os.access(ROOT / script, os.X_OK)


@each_page
def test_shown_configs_can_be_used(page: Path) -> None:
    for block in blocks_in(read(page), "toml"):
        parse_config(tomllib.loads(block))
    for block in blocks_in(read(page), "json"):
        json.loads(block)
    named = set(re.findall(r"\bconfigs/[\w./-]+\.toml", read(page)))
    assert sorted(name for name in named if not (ROOT / name).is_file()) == []


def test_page_of_the_config_is_what_scripts_write_docs_makes() -> None:
    assert read(ROOT / "docs" / "config.md") == config_page()
