"""The command line: flags in, one call, its result printed. One command, one file."""

from importlib import import_module

from mt_cli.cli.app import app, main

__all__ = ["app", "main"]

COMMANDS = (
    "prepare",
    "train",
    "evaluate",
    "translate",
    "serve",
    "score",
    "compare",
    "plot",
    "inspect",
    "runs",
    "export",
    "config",
)
"""In the order of `--help`."""

for _name in COMMANDS:
    import_module(f"mt_cli.cli.{_name}")
