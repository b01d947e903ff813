"""What is wrong with a config, in the words of the person who wrote it.

Turns pydantic's findings into lines with a key's full path and what to do about it.
"""

import difflib
import json
from collections.abc import Sequence
from typing import get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from mt_cli.config.retired_keys import RETIRED
from mt_cli.config.sections import Config

# What pydantic calls by Python's names.
DEMANDS = {
    "dict_type": "must be a table",
    "model_type": "must be a table",
    "path_type": "must be a path in quotes",
    "tuple_type": "must be a list",
}


def explain(error: ValidationError) -> list[str]:
    """One line for each thing that is wrong."""
    return [line for detail in error.errors() for line in _complaints(detail)]


def _complaints(detail: ErrorDetails) -> list[str]:
    location = [str(part) for part in detail["loc"] if part != "[key]"]
    path = ".".join(location)
    match detail["type"]:
        case "extra_forbidden":
            return [_unknown_key(location)]
        case "missing":
            return [f"{'.'.join(location[:-1])}: needs the key '{location[-1]}'"]
        case "value_error":
            reasons = str(detail["ctx"]["error"]).split("\n")
            return [f"{path}: {reason}" if path else reason for reason in reasons]
        case _:
            return [f"{path}: {demand(detail)}, found {_as_toml(detail['input'])}"]


def _unknown_key(location: list[str]) -> str:
    *section, key = location
    known = _keys_of(section)
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    homes = [f"[{name}]" for name in Config.model_fields if key in _keys_of([name])]
    if ".".join(location) in RETIRED:
        hint = "it was removed; the CHANGELOG says what still reads such a run"
    elif homes:
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
            a for a in (annotation, *get_args(annotation)) if isinstance(a, type) and issubclass(a, BaseModel)
        ]
        model = inner[0] if inner else model
    return list(model.model_fields)


def demand(detail: ErrorDetails) -> str:
    """What was expected: pydantic's 'Input should be at …' gives 'must be at …'."""
    message = detail["msg"]
    _, should, rest = message.partition(" should ")
    return DEMANDS.get(detail["type"]) or (f"must {rest}" if should else message[:1].lower() + message[1:])


def _as_toml(value: object) -> str:
    """`value` as the file spells it (JSON's spelling is TOML's, for all that matters here)."""
    listed = list(value) if isinstance(value, tuple) else value
    return json.dumps(listed, ensure_ascii=False, default=str)
