"""Nothing that the package reads can run code: held over the syntax trees of every module."""

import ast
from collections.abc import Iterator
from pathlib import Path

import mt_cli

PACKAGE = Path(mt_cli.__file__).parent

LOADERS = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
MODULES = {*LOADERS, "tarfile", "zipfile"}
"""Modules whose files run code when they are loaded, or write where they like when they are
extracted.
"""
BUILTINS = {"eval", "exec", "compile", "__import__"}
LOADS = {"torch.load", "torch.hub.load", "yaml.load", "shutil.unpack_archive"}
CALLS = {*BUILTINS, *LOADS, "os.system", "os.popen"}
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
                if name in CALLS:
                    yield f"calls {name}"
                yield from (
                    f"sets {each.arg}"
                    for each in keywords
                    if each.arg in ARGUMENTS and is_on(each.value)
                )


def is_on(value: ast.expr) -> bool:
    return not (isinstance(value, ast.Constant) and value.value is False)


def test_nothing_that_is_read_can_run() -> None:
    found = set()
    for path in sorted(PACKAGE.rglob("*.py")):
        home, *_ = path.relative_to(PACKAGE).with_suffix("").parts
        found |= {f"{home} {each}" for each in offences(path.read_text(encoding="utf-8"))}
    # One only writes; the other reads archives whose sha256 is pinned.
    assert found == {"export imports zipfile", "data imports zipfile"}
