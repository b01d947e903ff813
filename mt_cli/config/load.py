"""From a TOML file and `--set` to one `Config`, and back; what is wrong is told by the keys' full
paths.
"""

import difflib
import json
import os
import textwrap
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import get_args

import tomli_w
from pydantic import BaseModel, ValidationError

from mt_cli.config.schema import MEANINGS, Config
from mt_cli.errors import ConfigError, demand

RUN_CONFIG = "config.toml"
"""The config of a run, in its folder."""


def bundled_configs() -> dict[str, Path]:
    """Path of each config that comes with the program, by name, such as `sample` or `classic/page`."""
    folder = shipped("configs")
    paths = (*folder.glob("*.toml"), *folder.glob("classic/*.toml"))
    return dict(
        sorted((path.relative_to(folder).with_suffix("").as_posix(), path) for path in paths)
    )


def find_config(name: Path) -> Path:
    """The file that `name` stands for: itself, the config of a run folder, `NAME.toml`, or a
    bundled config.

    Raises:
        ConfigError: there is none; the error says what there is.
    """
    bundled = bundled_configs()
    for path in (name / RUN_CONFIG, name, Path(f"{name}.toml"), bundled.get(name.as_posix(), name)):
        if os.path.isfile(path):  # noqa: PTH113 — text may be too long for a name
            return path
    if name.suffix or os.path.isdir(name):  # noqa: PTH112
        return name  # whoever reads it says what is wrong with that
    raise ConfigError(
        f"{name}: no such config file, and no config of that name comes with mt-cli; "
        f"these do: {', '.join(bundled)}"
    )


def config_name(name: Path) -> str:
    """What the prepared data and the run of the config `name` are called: as the file, without its
    ending.

    For a run's own config.toml: the name of its folder.

    Raises:
        ConfigError: there is no such config.
    """
    path = find_config(name)
    return (
        path.resolve().parent.name if is_run(path.parent) and path.name == RUN_CONFIG else path.stem
    )


def is_run(folder: Path) -> bool:
    """Whether `folder` has what a run folder has."""
    names = (RUN_CONFIG, "manifest.json")
    return all(os.path.isfile(folder / name) for name in names)  # noqa: PTH113 — may be too long for a name


def shipped(folder: str) -> Path:
    """`folder` of what comes with the program: inside the package, or in a repository beside it."""
    package = Path(__file__).parents[1]
    return package / folder if (package / folder).is_dir() else package.parent / folder


MOST_BYTES = 1 << 20
"""Of a config file."""


def load_config(path: Path, overrides: Sequence[str] = ()) -> Config:
    """Config of the TOML file `path`, with `section.key=value` overrides laid over it.

    A name without an ending also stands for the config of that name which comes with the program.

    Raises:
        ConfigError: there is none, or naming every wrong key and value at once.
    """
    return parse_config(read_toml(find_config(path)), overrides, origin=str(path))


def parse_config(
    tables: Mapping[str, object], overrides: Sequence[str] = (), *, origin: str = "config"
) -> Config:
    """Config of parsed TOML `tables`; `origin` names them in errors."""
    merged = _with_overrides(tables, overrides)
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
    """Both values of each key that differs, by its path; a key that only one has is None in the
    other.
    """
    first, second = (dict(_flat(each.model_dump(mode="json"))) for each in (one, other))
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
    except OSError as error:
        is_folder = os.path.isdir(path)  # noqa: PTH112
        reason = "is a folder" if is_folder else f"cannot be read: {error.strerror}"
        raise ConfigError(
            f"{path}: {reason}; a config is a TOML file, such as configs/sample.toml"
        ) from error
    if len(content) > MOST_BYTES:
        raise ConfigError(
            f"{path}: more than {MOST_BYTES:,} bytes; a config is a TOML file of some lines"
        )
    try:
        # utf-8-sig: some editors begin a file with a byte order mark, which TOML forbids.
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path}: not UTF-8 text (byte {error.start}); expected a TOML file"
        ) from error
    if not text.strip():
        raise ConfigError(
            f"{path}: an empty file; write the keys that you want, as in configs/sample.toml"
        )
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ConfigError(
            f"{path}: not valid as a config: too many tables in one another"
        ) from None
    except ValueError as error:  # a number of thousands of digits is one too
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
    """Path and value of `section.key=value`.

    Raises:
        ConfigError: it is no such text.
    """
    path, equals, text = setting.partition("=")
    keys = tuple(part.strip() for part in path.split("."))
    if not equals or len(keys) < 2 or not all(keys):
        raise ConfigError(
            f"--set {setting!r}: expected section.key=value, such as training.max_epochs=3"
        )
    try:
        table = tomllib.loads(f"value = {text.strip()}")
    except (ValueError, RecursionError):  # the text itself, so that shells need no inner quotes
        return keys, text.strip()
    return keys, table["value"] if len(table) == 1 else text.strip()


WIDTH = 110


def commented_toml(config: Config, *, header: str) -> str:
    """The whole `config` as TOML, a comment above each key, and `header` above them all."""
    lines = _comment(header)
    for name, section in config:
        lines += _commented_table(name, section)
    return "\n".join(lines) + "\n"


def _commented_table(name: str, section: BaseModel) -> Iterator[str]:
    yield from ("", f"[{name}]")
    values = section.model_dump(mode="json", exclude_none=True)
    for key, field in sorted(
        type(section).model_fields.items(), key=lambda each: isinstance(values.get(each[0]), dict)
    ):
        inner, comment = (
            getattr(section, key),
            _comment(" ".join((field.description or "").split())),
        )
        match values.get(key):
            case dict() if isinstance(inner, BaseModel):  # tables stand below keys
                yield from _commented_table(f"{name}.{key}", inner)
            case dict() as table:
                yield from ("", *comment)
                if table:
                    yield tomli_w.dumps({name: {key: table}}).strip()
            case None:
                yield from (*comment, f"# {key} is not set")
            case list() as items:  # tomli_w gives each item a line
                yield from (*comment, f"{key} = {json.dumps(items)}")
            case value:
                yield from (*comment, tomli_w.dumps({key: value}).strip())


def _comment(text: str) -> list[str]:
    """`text` as comment lines, its own line breaks kept; indented lines, such as commands, stay
    whole.
    """
    wrap = partial(textwrap.wrap, width=WIDTH - 2, break_on_hyphens=False, break_long_words=False)
    return [
        f"# {line}"
        for paragraph in text.strip().split("\n")
        for line in ([paragraph] if paragraph.startswith("  ") else wrap(paragraph) or [""])
    ]


def explain(error: ValidationError) -> Iterator[str]:
    """One line for each thing that is wrong."""
    for detail in error.errors():
        location = [str(part) for part in detail["loc"] if part != "[key]"]
        path, section = ".".join(location), ".".join(location[:-1])
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
            case _:
                meaning = MEANINGS.get(str(detail.get("ctx", {}).get("pattern")))
                wanted = f"expected {meaning}" if meaning else demand(detail["msg"])
                if wanted == "expected a list":
                    wanted += f""" such as '{path}=["one","two"]'"""
                yield f"{path}: {wanted}, found {_as_toml(detail['input'])}"


def _unknown_key(location: list[str]) -> str:
    *section, key = location
    known = _keys_of(section)
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    homes = [f"[{name}]" for name in Config.model_fields if key in _keys_of([name])]
    if homes:
        hint = f"it belongs in {' or '.join(homes)}"
    else:
        hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(known)}"
    place = ".".join(section)
    return f"{place}: unknown key '{key}'; {hint}" if place else f"unknown section '{key}'; {hint}"


def _keys_of(section: Sequence[str]) -> list[str]:
    """Keys that the table at `section` may hold; a split's name stands for any split."""
    model: type[BaseModel] = Config
    for name in section:
        annotation = model.model_fields[name].annotation if name in model.model_fields else None
        inner = [
            a
            for a in (annotation, *get_args(annotation))
            if isinstance(a, type) and issubclass(a, BaseModel)
        ]
        model = inner[0] if inner else model
    return list(model.model_fields)


def _as_toml(value: object) -> str:
    """`value` as a file spells it."""
    if isinstance(value, str) and value.isprintable() and "'" not in value:
        return f"'{value}'"
    if isinstance(value, float):
        return str(value)  # JSON has words of its own for inf and nan
    return json.dumps(value, ensure_ascii=False, default=str)  # as TOML, for all that matters here
