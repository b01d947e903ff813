"""Help pages and complaints about wrong use: for people, in one style."""

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main
from typer.core import TyperGroup
from workspace import Workspace

from mt_cli.cli import app
from mt_cli.commands.help_pages import EXIT_CODES, PAGES
from mt_cli.errors import MtCliError


def verbs_of(group: TyperGroup, *, before: str = "") -> Iterator[tuple[str, Any]]:
    """Every command, those inside of groups too, by its words."""
    for name, command in group.commands.items():
        yield f"{before}{name}", command
        if isinstance(command, TyperGroup):
            yield from verbs_of(command, before=f"{before}{name} ")


GROUP = typer.main.get_command(app)
assert isinstance(GROUP, TyperGroup)
COMMANDS = dict(verbs_of(GROUP))
VERBS = sorted(COMMANDS)
EXAMPLES = [(name, example) for name, page in PAGES.items() for example in page.examples]


def subclasses(kind: type[MtCliError]) -> list[type[MtCliError]]:
    return [kind, *(each for direct in kind.__subclasses__() for each in subclasses(direct))]


def test_every_verb_has_a_page_and_every_page_a_verb() -> None:
    assert sorted(PAGES) == ["", *VERBS]


@pytest.mark.parametrize("verb", ["", *VERBS])
def test_page_ends_with_examples_output_exit_codes_and_docs(workspace: Workspace, verb: str) -> None:
    page = workspace.call(*verb.split(), "--help").text
    titles = re.findall(r"^(\w[\w ]*):$", page, flags=re.MULTILINE)
    assert titles[-4:] == ["Examples", "Prints", "Exit codes", "Docs"]
    assert f"  mt-cli {verb}" in page.partition("Examples:")[2]


@pytest.mark.parametrize("verb", VERBS)
def test_types_have_names_for_people(workspace: Workspace, verb: str) -> None:
    page = workspace.call(*verb.split(), "--help").text
    names = re.findall(r"^  (-{1,2}\w.*?|[A-Z][A-Z.]*)(?:  |$)", page, flags=re.MULTILINE)
    assert "-h, --help" in names
    assert [name for name in names if re.search(r"[<>\[]|INTEGER|FLOAT|RANGE", name)] == []


@pytest.mark.parametrize("verb", ["", *VERBS])
def test_page_fits_80_columns(workspace: Workspace, verb: str) -> None:
    assert [line for line in workspace.call(*verb.split(), "--help").lines if len(line) > 80] == []


@pytest.mark.parametrize(("verb", "example"), EXAMPLES, ids=[example for _, example in EXAMPLES])
def test_example_is_one_that_mt_cli_takes(verb: str, example: str) -> None:
    words = shlex.split(re.sub(r"< \S+", "", example))
    name = max((name for name in VERBS if words[: len(name.split())] == name.split()), key=len)
    assert f"{name} ".startswith(f"{verb} ".lstrip())
    COMMANDS[name].make_context(name, words[len(name.split()) :])


def test_every_error_has_an_exit_code_that_is_explained() -> None:
    codes = {kind.exit_code for kind in subclasses(MtCliError)}
    assert codes - set(EXIT_CODES) == set()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["trian"], "no such command 'trian'. Did you mean 'train'?; see mt-cli --help"),
        (["train"], "missing argument 'CONFIG'; see mt-cli train --help"),
        (["train", "a.toml", "b.toml"], "got unexpected extra argument(s) (b.toml); see mt-cli train --help"),
        (
            ["translate", "r", "--beam-size", "0"],
            "--beam-size: expected 1 or more; see mt-cli translate --help",
        ),
        (
            ["translate", "r", "--n-best", "x"],
            "--n-best: expected a whole number; see mt-cli translate --help",
        ),
        (["translate", "r", "--top-p", "2"], "--top-p: expected 1 or less; see mt-cli translate --help"),
        (
            ["evaluate", "r", "--backend", "jax"],
            "--backend: 'jax' is not one of 'torch', 'scratch'; see mt-cli evaluate --help",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_use_is_one_line_in_the_style_of_every_error(
    workspace: Workspace, args: list[str], message: str
) -> None:
    outcome = workspace.call(*args)
    assert (outcome.code, outcome.out, outcome.err) == (2, b"", f"error: {message}\n")


def test_no_command_shows_the_help_on_stderr_and_exits_2(workspace: Workspace) -> None:
    outcome = workspace.call()
    assert (outcome.code, outcome.out) == (2, b"")
    assert outcome.err == workspace.call("--help").text
