"""What is wrong with a config, in the words of the person who wrote it.

Turns pydantic's findings into lines with a key's full path and what to do about it.
"""

import difflib
import json
from collections.abc import Sequence
from typing import get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from mt_cli.config.patterns import MEANINGS
from mt_cli.config.retired_keys import RETIRED
from mt_cli.config.sections import Config

# By pydantic's kind of error; its own message would name Python's types.
EXPECTED = {
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "dict_type": "a table",
    "finite_number": "a finite number",
    "float_parsing": "a number",
    "float_type": "a number",
    "greater_than": "more than {gt}",
    "greater_than_equal": "{ge} or more",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "less_than": "less than {lt}",
    "less_than_equal": "{le} or less",
    "literal_error": "{expected}",
    "model_type": "a table",
    "path_type": "a path in quotes",
    "string_type": "text in quotes",
    "too_long": "at most {max_length} values",
    "too_short": "at least {min_length} values",
    "tuple_type": "a list",
}
"""What was expected in place of what was found; pydantic fills in the limits."""
MOST_LINES = 100
"""Of what is wrong: more than a person has patience for."""


def explain(error: ValidationError) -> list[str]:
    """One line for each thing that is wrong; of very many, for the first ones and for the rest."""
    details = error.errors()
    lines = [line for detail in details[:MOST_LINES] for line in _complaints(detail)]
    others = len(details) - MOST_LINES
    return [*lines, f"and {others:,} more"] if others > 0 else lines


def _complaints(detail: ErrorDetails) -> list[str]:
    location = [str(part) for part in detail["loc"] if part != "[key]"]
    path = ".".join(location)
    match detail["type"]:
        case "extra_forbidden":
            return [_unknown_key(location)]
        case "missing" if isinstance(detail["loc"][-1], int):
            return [f"{'.'.join(location[:-1])}: expected more values, found {_as_toml(detail['input'])}"]
        case "missing":
            return [f"{'.'.join(location[:-1])}: needs the key '{location[-1]}'"]
        case "value_error":
            reasons = str(detail["ctx"]["error"]).split("\n")
            return [f"{path}: {reason}" if path else reason for reason in reasons]
        case _:
            return [f"{path}: {demand(detail)}, found {_as_toml(detail['input'])}"]


def demand(detail: ErrorDetails) -> str:
    """What was expected, such as `expected 1 or more`."""
    kind, message, limits = detail["type"], detail["msg"], detail.get("ctx", {})
    if kind == "string_pattern_mismatch" and limits.get("pattern") in MEANINGS:
        return f"expected {MEANINGS[str(limits['pattern'])]}"
    if kind in EXPECTED:
        shown = {name: f"{limit:g}" if isinstance(limit, float) else limit for name, limit in limits.items()}
        return f"expected {EXPECTED[kind].format(**shown)}"
    _, should, rest = message.partition(" should ")
    return f"must {rest}" if should else message[:1].lower() + message[1:]


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


def _as_toml(value: object) -> str:
    """`value` as a file spells it."""
    if isinstance(value, str) and value.isprintable() and "'" not in value:
        return f"'{value}'"
    if isinstance(value, float):
        return str(value)  # JSON has words of its own for inf and nan
    listed = list(value) if isinstance(value, tuple) else value
    return json.dumps(listed, ensure_ascii=False, default=str)  # as TOML, for all that matters here
