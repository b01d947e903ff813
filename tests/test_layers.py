"""The layers of the design and a few policies, held over the syntax trees of every module."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import mt_cli

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "mt_cli"

# From the bottom up: a module may import its own member and any floor below.
FLOORS: tuple[tuple[str, ...], ...] = (
    ("errors",),
    ("config",),
    ("machine",),
    ("text",),
    ("model", "decoding", "data"),
    ("runs",),
    ("translation",),
    ("evaluation",),
    ("training",),
    ("cli", "__main__"),
)
NEIGHBOURS = {("__main__", "cli")}
"""Who may import whom on the same floor."""
MEMBERS = {member: floor for floor, members in enumerate(FLOORS) for member in members}
# What a pure member may take from mt_cli.config: options of text, and nothing for the model and the
# search.
CONFIG_NAMES = {
    "model": frozenset[str](),
    "decoding": frozenset[str](),
    "text": frozenset({"Language", "TokenizerConfig", "TokenizerKind"}),
}
# The package itself may hand out the Python API, but only when asked for it.
PACKAGE_NAMES = {name: home.split(".")[1] for name, home in mt_cli.HOMES.items()}
MEANINGLESS_NAMES = {"utils", "util", "helpers", "helper", "common", "base", "misc"}
MAX_LINES = 600

TEXTS = {path: path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
"""Every module of the package."""


def name_of(path: Path) -> str:
    """Dotted name of the module in `path`; a package is named like its folder."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def member_of(module: str) -> str:
    """The part of the package that a module belongs to; empty for the package itself."""
    return module.split(".")[1] if "." in module else ""


def imports(source: str, *, package: str) -> Iterator[str]:
    """Dotted names that code in `package` imports, at any depth; `from a import b` gives `a.b`."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                above = package.split(".")[: len(package.split(".")) - level + 1] if level else []
                start = ".".join([*above, *([module] if module else [])])
                yield from (f"{start}.{alias.name}" for alias in names)
            case ast.Call(
                func=ast.Attribute(attr="import_module")
                | ast.Name(id="import_module" | "__import__"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield name


def violations(module: str, source: str, *, is_package: bool = False) -> list[str]:
    """Imports of `module` that the layers forbid, as sentences."""
    package = module if is_package else module.rpartition(".")[0]
    targets = [
        name for name in imports(source, package=package) if name.partition(".")[0] == "mt_cli"
    ]
    return [
        f"{module} imports {name}: {reason}"
        for name in targets
        if (reason := objection(module, name))
    ]


def objection(module: str, name: str) -> str:
    """Why `module` may not import `name`, or nothing where it may."""
    importer, imported = member_of(module), member_of(name)
    imported = PACKAGE_NAMES.get(imported, imported)
    if imported not in MEMBERS or importer not in MEMBERS or importer == imported:
        return ""  # __version__, its own member, or the package itself, which hands out the API
    ours, theirs = MEMBERS[importer], MEMBERS[imported]
    permitted = CONFIG_NAMES.get(importer)
    if imported == "config" and permitted is not None and name.rpartition(".")[2] not in permitted:
        return f"{importer} takes plain values, not a config"
    if ours == theirs and (importer, imported) not in NEIGHBOURS:
        return f"{importer} and {imported} do not know each other"
    if theirs > ours:
        return f"{imported} is above {importer}"
    return ""


def calls_of(name: str, source: str) -> list[int]:
    """Lines on which the function `name` is called."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name
    ]


def imports_package(source: str, package: str) -> bool:
    return any(name.partition(".")[0] == package for name in imports(source, package=""))


def test_imports_point_down_only() -> None:
    found = [
        sentence
        for path, text in TEXTS.items()
        for sentence in violations(name_of(path), text, is_package=path.name == "__init__.py")
    ]
    assert found == []


def test_every_module_has_a_floor() -> None:
    without = {member_of(name_of(path)) for path in TEXTS} - {"", *MEMBERS}
    assert without == set(), "give each a place in FLOORS and in the design"


def test_every_folder_of_modules_is_a_package() -> None:
    folders = {path.parent for path in TEXTS}
    assert [
        str(folder) for folder in sorted(folders) if not (folder / "__init__.py").is_file()
    ] == []


def test_every_module_says_what_it_owns() -> None:
    assert [
        name_of(path) for path, text in TEXTS.items() if not ast.get_docstring(ast.parse(text))
    ] == []


def test_every_module_is_short_enough_to_read() -> None:
    assert [name_of(path) for path, text in TEXTS.items() if text.count("\n") > MAX_LINES] == []


def test_every_name_says_something() -> None:
    names = [name_of(path) for path in TEXTS]
    assert [name for name in names if not MEANINGLESS_NAMES.isdisjoint(name.split("."))] == []


def test_nothing_prints_but_through_the_terminal() -> None:
    found = {
        name_of(path): lines for path, text in TEXTS.items() if (lines := calls_of("print", text))
    }
    assert found == {}


def test_one_module_imports_torchtext() -> None:
    users = [name_of(path) for path, text in TEXTS.items() if imports_package(text, "torchtext")]
    assert len(users) == 1, users


def test_the_package_loads_nothing_of_itself_until_asked() -> None:
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    eager = [
        ast.unparse(node) for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    assert not [line for line in eager if "mt_cli" in line or "from ." in line]


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("mt_cli.model.transformer", "import mt_cli.data.batching"),
        ("mt_cli.model.transformer", "from mt_cli.decoding import search"),
        ("mt_cli.model.transformer", "from mt_cli.config.schema import ModelConfig"),
        ("mt_cli.decoding.search", "import mt_cli.config"),
        ("mt_cli.text.words", "from mt_cli.config.schema import Config"),
        ("mt_cli.text.words", "from mt_cli import runs"),
        ("mt_cli.text.words", "from ..runs.run import open_run"),
        ("mt_cli.text.words", "from .. import runs"),
        (
            "mt_cli.runs.run",
            "def load():\n    from mt_cli.translation.translator import Translator",
        ),
        ("mt_cli.runs.run", "from mt_cli import Translator"),
        ("mt_cli.model.transformer", "from mt_cli import Sampling"),
        (
            "mt_cli.evaluation.report",
            "import importlib\nimportlib.import_module('mt_cli.training.train')",
        ),
        ("mt_cli.training.train", "if TYPE_CHECKING:\n    from mt_cli.cli import app"),
        ("mt_cli.errors", "from mt_cli.model.transformer import causal_mask"),
    ],
)
def test_planted_violation_is_caught(module: str, line: str) -> None:
    (sentence,) = violations(module, line)
    assert sentence.startswith(f"{module} imports mt_cli.")


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("mt_cli.model.transformer", "from mt_cli.model.transformer import causal_mask"),
        ("mt_cli.model.transformer", "from .masks import causal_mask"),
        ("mt_cli.text.tokenizer", "from mt_cli.config.schema import TokenizerConfig"),
        ("mt_cli.config", "from mt_cli.errors import ConfigError"),
        ("mt_cli.runs.run", "from mt_cli import __version__"),
        ("mt_cli.training.train", "from mt_cli.config.schema import Config"),
        ("mt_cli.__main__", "from mt_cli.cli import main"),
        (
            "mt_cli",
            "def __getattr__(name):\n    from mt_cli.translation.translator import Translator",
        ),
    ],
)
def test_permitted_import_passes(module: str, line: str) -> None:
    assert violations(module, line) == []


def test_planted_print_is_caught() -> None:
    assert calls_of("print", "def f():\n    print('x')") == [2]


def test_planted_torchtext_is_caught() -> None:
    assert imports_package("def f():\n    from torchtext.vocab import Vocab", "torchtext")
