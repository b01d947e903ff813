"""The layers of the design and a few policies, held over the syntax trees of every module."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "mt_cli"

# From the bottom up: a module may import its own member and any layer below.
LAYERS: dict[str, tuple[str, ...]] = {
    "foundation": ("config", "runtime", "distributed", "machine", "errors"),
    "domain": ("model", "data", "decoding"),
    "artefacts": ("artefacts",),
    "optimisation": ("training",),
    "translation": ("searcher", "translation", "translator"),
    "stages": ("stages",),
    "surface": ("cli", "commands", "flags", "terminal", "__main__"),
}
MEMBERS = {member: layer for layer, members in LAYERS.items() for member in members}
# Layers whose members may import each other; those of the domain may not.
SOCIABLE = ("foundation", "translation", "surface")
# What a pure member may take from mt_cli.config: options of text, and nothing for the model and the search.
CONFIG_NAMES = {
    "model": frozenset[str](),
    "decoding": frozenset[str](),
    "data": frozenset({"TokenizerConfig"}),
}
# The package itself may hand out the Python API, but only when asked for it.
PACKAGE_NAMES = {"Translator": "translator"}
MEANINGLESS_NAMES = {"utils", "util", "helpers", "helper", "common", "base", "misc"}
PRINTERS = ("terminal",)
MAX_LINES = 300

SOURCES = sorted(PACKAGE.rglob("*.py"))


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
                func=ast.Attribute(attr="import_module") | ast.Name(id="import_module" | "__import__"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield name


def violations(module: str, source: str, *, is_package: bool = False) -> list[str]:
    """Imports of `module` that the layers forbid, as sentences."""
    package = module if is_package else module.rpartition(".")[0]
    targets = [name for name in imports(source, package=package) if name.partition(".")[0] == "mt_cli"]
    return [f"{module} imports {name}: {reason}" for name in targets if (reason := objection(module, name))]


def objection(module: str, name: str) -> str:
    """Why `module` may not import `name`, or nothing where it may."""
    importer, imported = member_of(module), member_of(name)
    imported = PACKAGE_NAMES.get(imported, imported)
    order = list(LAYERS)
    if imported not in MEMBERS or importer not in MEMBERS or importer == imported:
        return ""  # __version__, its own member, or the package itself, which hands out the API
    ours, theirs = MEMBERS[importer], MEMBERS[imported]
    permitted = CONFIG_NAMES.get(importer)
    if imported == "config" and permitted is not None and name.rpartition(".")[2] not in permitted:
        return f"{importer} takes plain values, not a config"
    if ours == theirs and ours not in SOCIABLE:
        return f"members of the {ours} layer do not know each other"
    if order.index(theirs) > order.index(ours):
        return f"{theirs} is above {ours}"
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


each_source = pytest.mark.parametrize("path", SOURCES, ids=name_of)


@each_source
def test_imports_point_down_only(path: Path) -> None:
    is_package = path.name == "__init__.py"
    assert violations(name_of(path), path.read_text(encoding="utf-8"), is_package=is_package) == []


@each_source
def test_module_belongs_to_a_layer(path: Path) -> None:
    member = member_of(name_of(path))
    assert not member or member in MEMBERS, f"give '{member}' a place in LAYERS and in the design"


def test_every_folder_of_modules_is_a_package() -> None:
    folders = {path.parent for path in SOURCES}
    assert [str(folder) for folder in sorted(folders) if not (folder / "__init__.py").is_file()] == []


@each_source
def test_module_says_what_it_owns(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


@each_source
def test_module_is_short_enough_to_read(path: Path) -> None:
    length = path.read_text(encoding="utf-8").count("\n")
    assert length <= MAX_LINES


@each_source
def test_module_has_a_name_that_says_something(path: Path) -> None:
    assert MEANINGLESS_NAMES.isdisjoint(name_of(path).split("."))


@each_source
def test_only_the_command_line_prints(path: Path) -> None:
    lines = calls_of("print", path.read_text(encoding="utf-8"))
    assert not lines or member_of(name_of(path)) in PRINTERS, f"print on line {lines}"


def test_one_module_imports_torchtext() -> None:
    texts = {name_of(path): path.read_text(encoding="utf-8") for path in SOURCES}
    users = [name for name, text in texts.items() if imports_package(text, "torchtext")]
    assert len(users) == 1, users


def test_the_package_loads_nothing_of_itself_until_asked() -> None:
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    eager = [ast.unparse(node) for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    assert not [line for line in eager if "mt_cli" in line or "from ." in line]


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("mt_cli.model.layers", "import mt_cli.data.batching"),
        ("mt_cli.model.layers", "from mt_cli.decoding import search"),
        ("mt_cli.model.layers", "from mt_cli.config import ModelConfig"),
        ("mt_cli.decoding.search", "import mt_cli.config"),
        ("mt_cli.data.words", "from mt_cli.config import Config"),
        ("mt_cli.data.words", "from mt_cli import artefacts"),
        ("mt_cli.data.words", "from ..artefacts.files import read_json"),
        ("mt_cli.data.words", "from .. import artefacts"),
        ("mt_cli.artefacts.run", "def load():\n    from mt_cli.translator import Translator"),
        ("mt_cli.training.trainer", "from mt_cli import Translator"),
        ("mt_cli.training.trainer", "import importlib\nimportlib.import_module('mt_cli.stages.train')"),
        ("mt_cli.stages.train", "if TYPE_CHECKING:\n    from mt_cli.cli import app"),
        ("mt_cli.errors", "from mt_cli.model.masks import causal_mask"),
    ],
)
def test_planted_violation_is_caught(module: str, line: str) -> None:
    (sentence,) = violations(module, line)
    assert sentence.startswith(f"{module} imports mt_cli.")


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("mt_cli.model.layers", "from mt_cli.model.masks import causal_mask"),
        ("mt_cli.model.layers", "from .masks import causal_mask"),
        ("mt_cli.data.tokenizer", "from mt_cli.config import TokenizerConfig"),
        ("mt_cli.config", "from mt_cli.errors import ConfigError"),
        ("mt_cli.artefacts.run", "from mt_cli import __version__"),
        ("mt_cli.stages.train", "from mt_cli.config import Config"),
        ("mt_cli.__main__", "from mt_cli.cli import main"),
        ("mt_cli", "def __getattr__(name):\n    from mt_cli.translator import Translator"),
    ],
)
def test_permitted_import_passes(module: str, line: str) -> None:
    assert violations(module, line) == []


def test_planted_print_is_caught() -> None:
    assert calls_of("print", "def f():\n    print('x')") == [2]


def test_planted_torchtext_is_caught() -> None:
    assert imports_package("def f():\n    from torchtext.vocab import Vocab", "torchtext")
