"""Every command, config and JSON that README.md and docs/ show, against the real programs."""

import json
import os
import re
import tomllib
from pathlib import Path

import pytest
import typer
import typer.main
from pages import (
    PAGES,
    ROOT,
    Shown,
    arguments_of,
    blocks_in,
    name_of,
    read,
    shown_in,
    simple_commands,
)

from mt_cli.cli.app import app
from mt_cli.config.load import parse_config

WORKFLOW = ROOT / ".github" / "workflows" / "checks.yml"
PROGRAMS = {
    "argospm",
    "cat",
    "cd",
    "docker",
    "git",
    "head",
    "hf",
    "mt-cli",
    "pip",
    "sbatch",
    "torchrun",
}
"""What a page may call beside our scripts."""

LINES = [(name_of(page), shown) for page in PAGES for shown in shown_in(read(page))]
WORDS = [(page, words) for page, shown in LINES for words in simple_commands(shown.line) if words]
OURS = [(page, args) for page, words in WORDS if (args := arguments_of(words)) is not None]
SCRIPTS = [(page, words) for page, words in WORDS if words[0].startswith("scripts/")]
each_page = pytest.mark.parametrize("page", PAGES, ids=name_of)


def described(case: object) -> str:
    if isinstance(case, Shown):
        return case.line
    return " ".join(case) if isinstance(case, list) else str(case)


def verbs() -> set[str]:
    """Every verb, those of `config` with its name before them."""
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    found = set()
    for name, command in group.commands.items():
        inner = command.commands if isinstance(command, typer.core.TyperGroup) else {}
        found |= {f"{name} {verb}" for verb in inner} or {name}
    return found


def parse(args: list[str]) -> None:
    """Parse `args` as mt-cli does, without running anything; typer's own error says what is wrong."""
    command = typer.main.get_command(app)
    while isinstance(command, typer.core.TyperGroup):
        assert args, f"{command.name}: no command; there are {', '.join(command.commands)}"
        if args[0].startswith(
            "-"
        ):  # to parse such a flag is to obey it: --install-completion installs
            assert args[0] in {name for param in command.params for name in param.opts}, (
                "no such flag"
            )
            return
        assert args[0] in command.commands, (
            f"no '{args[0]}'; there are {', '.join(command.commands)}"
        )
        command, args = command.commands[args[0]], args[1:]
    command.make_context(command.name, list(args))


def source_of(script: str) -> str:
    """The text of a script, and of the module of its name that it starts."""
    paths = (ROOT / script, ROOT / f"{script}.py")
    return "\n".join(read(path) for path in paths if path.is_file())


@pytest.mark.parametrize(("page", "args"), OURS, ids=described)
def test_shown_command_is_one_that_mt_cli_takes(page: str, args: list[str]) -> None:
    parse(args)


@pytest.mark.parametrize(("page", "words"), SCRIPTS, ids=described)
def test_shown_script_is_there_and_has_the_flags(page: str, words: list[str]) -> None:
    script, *args = words
    assert os.access(ROOT / script, os.X_OK) or script.endswith(".slurm")
    flags = [arg for arg in args if arg.startswith("--")]
    assert [flag for flag in flags if flag not in source_of(script)] == []


@each_page
def test_shown_config_can_be_used(page: Path) -> None:
    for block in blocks_in(read(page), "toml"):
        parse_config(tomllib.loads(block.body))


@each_page
def test_shown_json_can_be_read(page: Path) -> None:
    for block in blocks_in(read(page), "json"):
        json.loads(block.body)


def test_every_verb_is_shown() -> None:
    shown = {" ".join(args[:2]) if args[:1] == ["config"] else args[0] for _, args in OURS}
    assert sorted(verbs() - shown) == [], "no page shows these"


@each_page
def test_named_configs_exist(page: Path) -> None:
    named = set(re.findall(r"\bconfigs/[\w./-]+\.toml", read(page)))
    assert sorted(name for name in named if not (ROOT / name).is_file()) == []


@pytest.mark.parametrize(
    "line",
    [
        line
        for line in re.findall(r"- run: (.*)$", read(WORKFLOW), re.MULTILINE)
        if "mt-cli" in line
    ],
)
def test_workflow_calls_mt_cli_as_it_can_be_called(line: str) -> None:
    (words,) = simple_commands(line)
    parse(arguments_of(words) or [])


def test_the_image_is_set_up_as_the_readme_says() -> None:
    text = read(ROOT / "Dockerfile")
    of_readme = {shown.line for page, shown in LINES if page == "README.md"}
    runs = re.findall(r"^RUN (.*)$", text, re.MULTILINE)
    assert runs
    assert set(runs) <= of_readme
    assert re.findall(r"^ENTRYPOINT (.*)$", text, re.MULTILINE) == ['["mt-cli"]']
    (command,) = re.findall(r"docker run .* (mt-cli .*)$", text, re.MULTILINE)
    parse(command.split()[1:])


@pytest.mark.parametrize(
    "args",
    [
        ["evalute", "runs/x"],
        ["config"],
        ["config", "diff", "a.toml"],
        ["evaluate"],
        ["evaluate", "runs/x", "--bleu"],
        ["train", "a.toml", "more"],
        ["train", "a.toml", "--device", "tpu"],
        ["--nonsense"],
    ],
    ids=described,
)
def test_planted_wrong_command_is_caught(args: list[str]) -> None:
    usage_error = typer.BadParameter.__bases__[0]  # typer exports only this child of it
    with pytest.raises((AssertionError, usage_error)):
        parse(args)
