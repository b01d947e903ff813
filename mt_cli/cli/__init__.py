"""The command line: flags in, one call, its result printed."""

from importlib import import_module

from mt_cli.cli.app import app, main

__all__ = ["app", "main"]

for _name in (
    "prepare",
    "train",
    "evaluate",
    "translate",
    "inspect",
    "config",
):  # in the order of --help
    import_module(f"mt_cli.cli.{_name}")
