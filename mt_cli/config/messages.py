"""Wording of messages: the command to type, and what is wrong with a config."""

import difflib
import json
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import get_args

from pydantic import BaseModel, ValidationError

from mt_cli.config.schema import MEANINGS, Config


def command_line(*words: object) -> str:
    """A command of this program that an error advises, as a shell takes it."""
    return f"{program_name()} {shlex.join(map(str, words))}".rstrip()


def program_name() -> str:
    """How the user calls this program: `mt-cli` where a shell finds it, else its path."""
    called = Path(sys.argv[0])
    if called.name == "__main__.py":
        return "python -m mt_cli"
    if called.stem != "mt-cli" or not called.is_file():
        return "mt-cli"
    found = shutil.which("mt-cli")
    if found is not None and Path(found).resolve() == called.resolve():
        return "mt-cli"
    here = Path.cwd()
    return shlex.quote(str(called.relative_to(here) if called.is_relative_to(here) else called))


def explain(error: ValidationError) -> Iterator[str]:
    """One line for each thing that is wrong."""
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
        for inner in (annotation, *get_args(annotation)):
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                model = inner
    return list(model.model_fields)


def _as_toml(value: object) -> str:
    """`value` as a file spells it."""
    if isinstance(value, str) and value.isprintable() and "'" not in value:
        return f"'{value}'"
    if isinstance(value, float):
        return str(value)  # JSON has words of its own for inf and nan
    return json.dumps(value, ensure_ascii=False, default=str)  # as TOML, for all that matters here
