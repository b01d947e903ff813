"""The Dockerfile, as far as it can be checked without Docker."""

import json
import re
import tomllib
from pathlib import Path

import typer
import typer.main
from workspace import ROOT

from mt_cli.cli.app import app

TEXT = ROOT.joinpath("Dockerfile").read_text(encoding="utf-8")
LINES = [line for line in TEXT.replace("\\\n", " ").splitlines() if not line.startswith("#")]
COPIED = [path for line in LINES if line.startswith("COPY ") for path in line.split()[1:-1]]


def test_what_is_copied_is_there_and_not_left_out() -> None:
    left_out = ROOT.joinpath(".dockerignore").read_text(encoding="utf-8").split()
    assert [path for path in COPIED if not ROOT.joinpath(path).exists()] == []
    assert set(COPIED).isdisjoint(left_out)


def test_what_the_wheel_is_built_from_is_copied() -> None:
    project = tomllib.loads(ROOT.joinpath("pyproject.toml").read_text(encoding="utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {*wheel["packages"], *wheel["force-include"], project["project"]["readme"]}
    needed |= {"pyproject.toml", *project["project"]["license-files"]}
    copied = [Path(path) for path in COPIED]
    assert [
        name for name in needed if not any(Path(name).is_relative_to(each) for each in copied)
    ] == []
    extras = re.search(r"pip install '\.\[([\w,]+)\]'", TEXT)
    assert extras
    assert set(extras[1].split(",")) <= {*project["project"]["optional-dependencies"]} - {"dev"}


def test_the_command_is_one_that_mt_cli_takes() -> None:
    (words,) = (json.loads(line[4:]) for line in LINES if line.startswith("CMD ["))
    name, *args = words
    command = typer.main.get_command(app)
    assert isinstance(command, typer.core.TyperGroup)
    served = command.commands[name].make_context(name, [*args])
    assert served.params["host"] == "0.0.0.0"
    port = next(line.split()[1] for line in LINES if line.startswith("EXPOSE "))
    assert served.params["port"] == int(port)
    assert f":{port}/health" in TEXT


def test_it_runs_as_a_user_and_its_comments_name_real_commands() -> None:
    assert [line for line in LINES if line.startswith("USER ")] == ["USER mt"]
    assert LINES.index("USER mt") > max(
        i for i, line in enumerate(LINES) if line.startswith("RUN ")
    )
    words = re.findall(r"^# +docker run .* mt-cli (\w+) (.*)$", TEXT, re.M)
    command = typer.main.get_command(app)
    assert isinstance(command, typer.core.TyperGroup)
    assert words
    for name, args in words:
        command.commands[name].make_context(name, args.split())


def test_pytorch_is_installed_before_the_code_is_copied() -> None:
    torch = next(i for i, line in enumerate(LINES) if re.match("RUN pip .* torch$", line))
    assert torch < LINES.index("COPY mt_cli mt_cli")
