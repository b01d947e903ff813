"""Nothing that the package reads can run code: held over the syntax trees of every module."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import mt_cli

PACKAGE = Path(mt_cli.__file__).parent

MODULES = {
    "pickle",
    "cPickle",
    "dill",
    "cloudpickle",
    "joblib",
    "marshal",
    "shelve",
    "tarfile",
    "zipfile",
}
"""Modules whose files run code when they are loaded, or write where they like when they are
extracted.
"""
BUILTINS = {"eval", "exec", "compile", "__import__"}
CALLS = {
    "torch.load",
    "torch.hub.load",
    "os.system",
    "os.popen",
    "shutil.unpack_archive",
    "yaml.load",
}
ARGUMENTS = {"shell", "allow_pickle", "trust_remote_code"}
"""Arguments that must not be true."""


def offences(source: str) -> Iterator[str]:
    """What in `source` could run code that was read."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                yield from (
                    f"imports {each.name}" for each in names if each.name.split(".")[0] in MODULES
                )
            case ast.ImportFrom(module=str(module)) if module.split(".")[0] in MODULES:
                yield f"imports {module}"
            case ast.Call(func=function, keywords=keywords):
                name = ast.unparse(function)
                if name in BUILTINS | CALLS:
                    yield f"calls {name}"
                yield from (
                    f"sets {each.arg}"
                    for each in keywords
                    if each.arg in ARGUMENTS and is_on(each.value)
                )


def is_on(value: ast.expr) -> bool:
    return not (isinstance(value, ast.Constant) and value.value is False)


def test_nothing_that_is_read_can_run() -> None:
    found = {
        path.relative_to(PACKAGE).as_posix(): sorted(
            set(offences(path.read_text(encoding="utf-8")))
        )
        for path in sorted(PACKAGE.rglob("*.py"))
    }
    writes_only = {"evaluation/export.py": ["imports zipfile"]}
    assert {path: each for path, each in found.items() if each} == writes_only


@pytest.mark.parametrize(
    ("line", "offence"),
    [
        ("import pickle", "imports pickle"),
        ("def f():\n    from pickle import loads", "imports pickle"),
        ("import torch\ntorch.load(path, weights_only=True)", "calls torch.load"),
        ("eval(text)", "calls eval"),
        ("subprocess.run(command, shell=True)", "sets shell"),
        ("subprocess.run(command, shell=wanted)", "sets shell"),
        ("numpy.load(path, allow_pickle=True)", "sets allow_pickle"),
        ("from tarfile import open", "imports tarfile"),
        ("shutil.unpack_archive(path)", "calls shutil.unpack_archive"),
    ],
)
def test_planted_offence_is_found(line: str, offence: str) -> None:
    assert list(offences(line)) == [offence]


@pytest.mark.parametrize(
    "line",
    ["model.eval()", "re.compile(pattern)", "numpy.load(path, allow_pickle=False)", "import gzip"],
)
def test_harmless_line_passes(line: str) -> None:
    assert list(offences(line)) == []
