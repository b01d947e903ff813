"""The command line: each command parses flags, makes one call, and prints the result."""

from importlib import import_module

from mt_cli.cli.app import app, main

__all__ = ["app", "main"]

FILES = ("prepare", "train", "translate", "evaluate", "serve", "look", "export", "config")
"""In the order of `--help`."""

for _name in FILES:
    import_module(f"mt_cli.cli.{_name}")
