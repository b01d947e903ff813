"""The layers of the design and a few policies, held over the syntax trees of every module."""

import ast
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

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
    ("export", "look", "training", "serving"),
    ("new_config",),
    ("cli", "__main__"),
)
NEIGHBOURS = {("__main__", "cli")}
"""Who may import whom on the same floor."""
MEMBERS = {member: floor for floor, members in enumerate(FLOORS) for member in members}
# What a pure member may take from mt_cli.config: the options of its own section, if any.
CONFIG_NAMES = {
    "model": frozenset({"BACKENDS", "ModelConfig"}),
    "decoding": frozenset[str](),
    "text": frozenset(
        {"CapitalsReading", "Language", "NoiseKind", "TokenizerConfig", "TokenizerKind"}
    ),
}
# The package itself may hand out the Python API, but only when asked for it.
PACKAGE_NAMES = {name: home.split(".")[1] for name, home in mt_cli.HOMES.items()}
MAX_LINES = 400
LONGER = {"mt_cli.config.schema", "mt_cli.decoding.search"}
"""Every key, and every search: each is read as one."""
MAX_LATE_IMPORTS = 57
"""Imports inside functions: of what takes long to import, is optional, or starts a second run."""

TEXTS = {path: path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
"""Every module of the package."""


def name_of(path: Path) -> str:
    """Dotted name of the module in `path`; a package is named like its folder."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path) for path in TEXTS}


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


def violations(path: Path, source: str) -> list[str]:
    """Imports of the module in `path` that the layers forbid, as sentences."""
    module = name_of(path)
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    found = []
    for name in imports(source, package=package):
        if name.startswith("mt_cli.") and (reason := objection(module, name)):
            found.append(f"{module} imports {name}: {reason}")
    return found


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


def is_type_checking(node: ast.AST) -> bool:
    """Whether `node` is an `if TYPE_CHECKING`, whose imports do not happen."""
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def without_type_checking(source: str) -> str:
    """The code that runs."""
    tree = ast.parse(source)
    tree.body = [node for node in tree.body if not is_type_checking(node)]
    return ast.unparse(tree)


def modules_imported(path: Path, source: str) -> set[str]:
    """The modules of this package that the module in `path` imports, at any depth."""
    module = name_of(path)
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    found = set()
    for name in imports(without_type_checking(source), package=package):
        for candidate in (name, name.rpartition(".")[0]):
            if candidate in MODULES and candidate.count(".") > 1:
                found.add(candidate)
                break
    return found - {module}


def late_imports(source: str) -> list[ast.AST]:
    """The import statements inside functions."""
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    found: dict[int, ast.AST] = {}
    for function in functions:
        for node in ast.walk(function):
            if isinstance(node, ast.Import | ast.ImportFrom):
                found[node.lineno] = node
    return list(found.values())


def calls(source: str) -> set[str]:
    """Names of the functions that are called, as they are written."""
    nodes = ast.walk(ast.parse(source))
    return {ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)}


def test_imports_point_down_only() -> None:
    found = [violations(path, text) for path, text in TEXTS.items()]
    assert [each for each in found if each] == []


def test_no_file_imports_itself_by_way_of_others() -> None:
    order = TopologicalSorter(
        {name_of(path): modules_imported(path, TEXTS[path]) for path in TEXTS}
    )
    order.prepare()  # raises CycleError, which names the files


def test_few_imports_are_inside_functions() -> None:
    assert sum(len(late_imports(text)) for text in TEXTS.values()) <= MAX_LATE_IMPORTS


def test_every_module_has_a_floor() -> None:
    without = {member_of(name_of(path)) for path in TEXTS} - {"", *MEMBERS}
    assert without == set(), "give each a place in FLOORS and in the design"


def test_every_module_says_what_it_owns() -> None:
    assert [
        name_of(path) for path, text in TEXTS.items() if not ast.get_docstring(ast.parse(text))
    ] == []


def test_every_module_is_short_enough_to_read() -> None:
    longer = {name_of(path) for path, text in TEXTS.items() if text.count("\n") > MAX_LINES}
    assert longer == LONGER


def test_nothing_prints_but_through_the_terminal() -> None:
    assert [name_of(path) for path, text in TEXTS.items() if "print" in calls(text)] == []


def test_one_module_imports_torchtext() -> None:
    users = [
        name_of(path)
        for path, text in TEXTS.items()
        if "import torchtext" in text or "from torchtext" in text
    ]
    assert len(users) == 1, users


def test_the_package_loads_nothing_of_itself_until_asked() -> None:
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    eager = [
        ast.unparse(node) for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    assert not [line for line in eager if "mt_cli" in line or "from ." in line]


def test_the_map_of_the_design_names_every_file() -> None:
    page = (PACKAGE.parent / "docs" / "design.md").read_text(encoding="utf-8")
    drawn = page.partition("```text\n")[2].partition("```")[0]
    named = set(re.findall(r"\w+\.py\b", drawn)) - {"__init__.py"}
    assert named == {path.name for path in TEXTS} - {"__init__.py"}
