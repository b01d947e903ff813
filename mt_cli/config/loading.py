"""From a TOML file and `--set` overrides to one `Config`, and back to TOML.

Knows how a config is written, never what may stand in it.
"""

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import tomli_w
from pydantic import ValidationError

from mt_cli.config.bundled import find_config
from mt_cli.config.complaints import explain
from mt_cli.config.retired_keys import RENAMED, RETIRED
from mt_cli.config.sections import Config
from mt_cli.errors import ConfigError

MOST_BYTES = 1 << 20
"""Of a config file."""


def load_config(path: Path, overrides: Sequence[str] = ()) -> Config:
    """Config of the TOML file `path`, with `section.key=value` overrides laid over it.

    A name without an ending also stands for the config of that name which comes with the program.

    Raises:
        ConfigError: there is none, or naming every wrong key and value at once.
    """
    return parse_config(read_toml(find_config(path)), overrides, origin=str(path))


def config_of_bytes(content: bytes, *, origin: Path) -> Config:
    """Config of a TOML file's `content`; errors name `origin`."""
    return parse_config(_parse_toml(content, origin=origin), origin=str(origin))


def parse_config(
    tables: Mapping[str, object], overrides: Sequence[str] = (), *, origin: str = "config"
) -> Config:
    """Config of parsed TOML `tables`; `origin` names them in errors."""
    merged = _with_keys_of_today(_with_overrides(tables, overrides))
    try:
        return Config.model_validate(merged)
    except ValidationError as error:
        where = f"{origin} with --set {' '.join(overrides)}" if overrides else origin
        problems = "\n".join(f"  {problem}" for problem in explain(error))
        raise ConfigError(f"{where}: the config cannot be used\n{problems}") from error


def dump_config(config: Config) -> str:
    """The whole config as TOML, itself a valid config file."""
    return tomli_w.dumps(config.model_dump(mode="json", exclude_none=True))


def differences(one: Config, other: Config) -> dict[str, tuple[object, object]]:
    """Both values of each key that differs, by its path; a key that only one has is None in the other."""
    return table_differences(one.model_dump(mode="json"), other.model_dump(mode="json"))


def table_differences(
    one: Mapping[str, object], other: Mapping[str, object]
) -> dict[str, tuple[object, object]]:
    """As `differences`, of configs that were stored and may have keys that none has today."""
    first, second = dict(_flat(one)), dict(_flat(other))
    return {
        path: (first.get(path), second.get(path))
        for path in dict.fromkeys((*first, *second))
        if first.get(path) != second.get(path)
    }


def _flat(tables: Mapping[str, object], *, prefix: str = "") -> Iterator[tuple[str, object]]:
    """Path and value of each key, those of inner tables too."""
    for key, value in tables.items():
        if isinstance(value, dict):
            yield from _flat(value, prefix=f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def read_toml(path: Path) -> dict[str, object]:
    """The tables of the TOML file `path`.

    Raises:
        ConfigError: it cannot be read, or is no TOML.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        known = sorted(str(p) for p in path.parent.glob("*.toml")) if path.parent.is_dir() else []
        hint = f"; found there: {', '.join(known)}" if known else ""
        raise ConfigError(f"{path}: no such config file{hint}") from None
    except IsADirectoryError:
        raise ConfigError(
            f"{path} is a folder; a config is a TOML file, such as configs/sample.toml"
        ) from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    return _parse_toml(content, origin=path)


def _parse_toml(content: bytes, *, origin: Path) -> dict[str, object]:
    if len(content) > MOST_BYTES:
        raise ConfigError(f"{origin}: more than {MOST_BYTES:,} bytes; a config is a TOML file of some lines")
    try:
        # utf-8-sig: some editors begin a file with a byte order mark, which TOML forbids.
        return tomllib.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{origin}: not UTF-8 text (byte {error.start}); expected a TOML file") from error
    except RecursionError:
        raise ConfigError(f"{origin}: not valid as a config: too many tables in one another") from None
    except ValueError as error:  # a number of thousands of digits is one too
        raise ConfigError(f"{origin}: not valid TOML: {error}") from error


def _with_keys_of_today(tables: dict[str, object]) -> dict[str, object]:
    return tables | {
        name: {
            RENAMED.get(f"{name}.{key}", key): value
            for key, value in table.items()
            if (f"{name}.{key}", value) not in RETIRED.items()
        }
        for name, table in tables.items()
        if isinstance(table, dict)
    }


def _with_overrides(tables: Mapping[str, object], overrides: Iterable[str]) -> dict[str, object]:
    merged = dict(tables)
    for override in overrides:
        path, equals, text = override.partition("=")
        *sections, key = (part.strip() for part in path.split("."))
        if not equals or not sections or not all((*sections, key)):
            raise ConfigError(
                f"--set {override!r}: expected section.key=value, such as training.max_epochs=3"
            )
        table = merged
        for section in sections:
            inner = table.get(section, {})
            if not isinstance(inner, dict):
                raise ConfigError(f"--set {override!r}: '{section}' is a value, not a section")
            table[section] = table = dict(inner)
        table[key] = _parse_value(text.strip())
    return merged


def _parse_value(text: str) -> object:
    """A TOML value, or else the text itself, so that shells need no inner quotes."""
    try:
        table = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return table["value"] if len(table) == 1 else text
