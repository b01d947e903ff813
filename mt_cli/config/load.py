"""Load a `Config` from a TOML file and `--set`, and dump it."""

import difflib
import json
import os
import shlex
import shutil
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import get_args

import tomli_w
from pydantic import BaseModel, ValidationError

from mt_cli.config.schema import MEANINGS, Config
from mt_cli.errors import ConfigError


def command_line(*words: object) -> str:
    """A command of this program, quoted for a shell, to show in a message."""
    called = Path(sys.argv[0])
    program = "mt-cli"
    if called.name == "__main__.py":
        program = "python -m mt_cli"
    elif called.stem == program and shutil.which(program) is None:
        program = shlex.quote(str(called))
    return f"{program} {shlex.join(map(str, words))}".rstrip()


def explain(error: ValidationError) -> Iterator[str]:
    """One line per error, in plain words."""
    for detail in error.errors():
        location = [str(part) for part in detail["loc"] if part != "[key]"]
        path = ".".join(location)
        section = ".".join(location[:-1])
        match detail["type"]:
            case "extra_forbidden":
                yield _unknown_key(location)
            case "missing" if isinstance(detail["loc"][-1], int):
                yield f"{section}: expected more values, found {_as_toml(detail['input'])}"
            case "missing":
                yield f"{section}: needs the key '{location[-1]}'"
            case "value_error":
                for reason in str(detail["ctx"]["error"]).split("\n"):
                    yield f"{path}: {reason}" if path else reason
            case "string_pattern_mismatch" if detail["ctx"]["pattern"] in MEANINGS:
                meaning = MEANINGS[detail["ctx"]["pattern"]]
                yield f"{path}: expected {meaning}, found {_as_toml(detail['input'])}"
            case _:
                message = detail["msg"][:1].lower() + detail["msg"][1:]
                yield f"{path}: {message}, found {_as_toml(detail['input'])}"


def _unknown_key(location: list[str]) -> str:
    *section, key = location
    keys = _keys_of(section)
    near = difflib.get_close_matches(key, keys, n=1, cutoff=0.5)
    homes = [f"[{name}]" for name in Config.model_fields if key in _keys_of([name])]
    if homes:
        hint = f"it belongs in {' or '.join(homes)}"
    else:
        hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(keys)}"
    place = ".".join(section)
    return f"{place}: unknown key '{key}'; {hint}" if place else f"unknown section '{key}'; {hint}"


def _keys_of(section: Sequence[str]) -> list[str]:
    """Known keys of the table at `section`; a split's name stands for any split."""
    model: type[BaseModel] = Config
    for name in section:
        annotation = model.model_fields[name].annotation if name in model.model_fields else None
        for inner in (annotation, *get_args(annotation)):
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                model = inner
    return list(model.model_fields)


def _as_toml(value: object) -> str:
    """`value` in TOML notation."""
    if isinstance(value, str) and value.isprintable() and "'" not in value:
        return f"'{value}'"
    if isinstance(value, float):
        return str(value)  # JSON spells inf and nan differently
    return json.dumps(value, ensure_ascii=False, default=str)  # close enough to TOML


RUN_CONFIG = "config.toml"
"""File name of the config in a run folder."""


def bundled_configs() -> dict[str, Path]:
    """Paths of the bundled configs, by name, such as `sample` or `classic/page`."""
    folder = shipped("configs")
    configs = {}
    for path in sorted([*folder.glob("*.toml"), *folder.glob("classic/*.toml")]):
        configs[path.relative_to(folder).with_suffix("").as_posix()] = path
    return dict(sorted(configs.items()))


def find_config(name: Path) -> Path:
    """Find the config file: `name` itself, the config of a run folder, or a bundled config.

    Raises:
        ConfigError: there is none; the error lists the bundled configs.
    """
    bundled = bundled_configs()
    for path in (name / RUN_CONFIG, name, bundled.get(name.as_posix(), name)):
        if os.path.isfile(path):  # noqa: PTH113 — text may be too long for a name
            return path
    raise ConfigError(f"{name}: no such config; bundled with mt-cli: {', '.join(bundled)}")


def config_name(name: Path) -> str:
    """The default name for prepared data and runs: the config file's name without its ending.

    For a run's own config.toml, it is the name of the run folder.

    Raises:
        ConfigError: the config does not exist.
    """
    path = find_config(name)
    return path.resolve().parent.name if is_run(path.parent) else path.stem


def is_run(folder: Path) -> bool:
    """Whether `folder` looks like a run folder."""
    names = (RUN_CONFIG, "manifest.json")
    return all(os.path.isfile(folder / name) for name in names)  # noqa: PTH113


def shipped(folder: str) -> Path:
    """`folder` of the bundled files: inside the installed package, or in the repository."""
    package = Path(__file__).parents[1]
    return package / folder if (package / folder).is_dir() else package.parent / folder


MAX_CONFIG_BYTES = 1 << 20
"""Maximum size of a config file."""


def load_config(path: Path, overrides: Sequence[str] = ()) -> Config:
    """Load the config from `path`, with `section.key=value` overrides.

    `path` may also be the name of a bundled config.

    Raises:
        ConfigError: the file does not exist, or the config is invalid; lists all errors at once.
    """
    return parse_config(read_toml(find_config(path)), overrides, origin=str(path))


def parse_config(
    tables: Mapping[str, object], overrides: Sequence[str] = (), *, origin: str = "config"
) -> Config:
    """Build the config from parsed TOML `tables`; errors call them `origin`."""
    merged = _with_overrides(tables, overrides)
    try:
        return Config.model_validate(merged)
    except ValidationError as error:
        where = f"{origin} with the command line's settings" if overrides else origin
        problems = "\n".join(f"  {problem}" for problem in explain(error))
        raise ConfigError(f"{where}: invalid config\n{problems}") from error


def dump_config(config: Config, *, only_set: bool = False) -> str:
    """The whole config, or only the keys that were set, as TOML: a valid config file."""
    tables = config.model_dump(mode="json", exclude_none=True, exclude_unset=only_set)
    return tomli_w.dumps(tables)


def differences(one: Config, other: Config) -> dict[str, tuple[object, object]]:
    """Both values of each key that differs, by key path; None if a config lacks the key."""
    first = flat(one)
    second = flat(other)
    changes = {}
    for path in dict.fromkeys([*first, *second]):
        if first.get(path) != second.get(path):
            changes[path] = (first.get(path), second.get(path))
    return changes


def flat(config: Config) -> dict[str, object]:
    """The value of each key, by key path."""
    return dict(flat_items(config.model_dump(mode="json")))


def flat_items(tables: Mapping[str, object], *, prefix: str = "") -> Iterator[tuple[str, object]]:
    """The path and the value of each key of nested `tables`."""
    for key, value in tables.items():
        if isinstance(value, dict):
            yield from flat_items(value, prefix=f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def read_toml(path: Path) -> dict[str, object]:
    """Read a TOML file.

    Raises:
        ConfigError: the file is not valid TOML.
    """
    with path.open("rb") as file:
        content = file.read(MAX_CONFIG_BYTES + 1)
    if len(content) > MAX_CONFIG_BYTES or not content.strip():
        raise ConfigError(f"{path}: {len(content):,} bytes, expected a short TOML file")
    try:
        # utf-8-sig: some editors write a byte order mark, which TOML forbids.
        return tomllib.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:  # not UTF-8, or tables nested without end
        raise ConfigError(f"{path}: not valid TOML: {error}") from error


def _with_overrides(tables: Mapping[str, object], overrides: Iterable[str]) -> dict[str, object]:
    merged = dict(tables)
    for override in overrides:
        (*sections, key), value = parse_setting(override)
        table = merged
        for section in sections:
            inner = table.get(section, {})
            if not isinstance(inner, dict):
                raise ConfigError(f"--set {override!r}: '{section}' is a value, not a section")
            table[section] = table = dict(inner)
        table[key] = value
    return merged


def parse_setting(setting: str) -> tuple[tuple[str, ...], object]:
    """Parse `section.key=value` into key path and value.

    Raises:
        ConfigError: the text has another form.
    """
    path, equals, text = setting.partition("=")
    keys = tuple(part.strip() for part in path.split("."))
    if not equals or len(keys) < 2 or not all(keys):
        raise ConfigError(f"--set {setting!r}: expected KEY=VALUE, such as decoding.beam_size=5")
    try:
        table = tomllib.loads(f"value = {text.strip()}")
    except (ValueError, RecursionError):  # not TOML: plain text, so that shells need no quotes
        return keys, text.strip()
    is_nan = table["value"] != table["value"]  # no key takes NaN, but "nan" is a language code
    return keys, text.strip() if is_nan or len(table) > 1 else table["value"]
