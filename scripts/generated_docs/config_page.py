"""docs/config.md: every key of a config with its type, default, limits and meaning.

Reads the config's own JSON schema; knows no key by name.
"""

import json
import textwrap
from collections.abc import Iterator, Mapping

from mt_cli.config import Config
from mt_cli.config.patterns import MEANINGS

Schema = Mapping[str, object]
"""A part of a JSON schema."""

INTRODUCTION = """\
# Every key of a config

<!-- Made by scripts/write_docs from mt_cli/config/sections.py; edit that file instead. -->

A config is a TOML file. An absent key is its default, and an unknown key is an error.
`--set section.key=value` changes a key for one command. These commands say more about a config:

```console
$ mt-cli config show sample
$ mt-cli config check configs/sample.toml
$ mt-cli config diff multi30k multi30k-tiny
$ mt-cli config new -o mine.toml
```

`config new` also writes such a file, with the meaning of each key above it: see
[Your own corpus](own-corpus.md).
"""
TYPES = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false"}
LIMITS = {
    "minimum": "at least {}",
    "exclusiveMinimum": "above {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "below {}",
}
LARGE = 10**6


def config_page() -> str:
    """The whole page."""
    schema = Config.model_json_schema()
    tables: dict[str, Schema] = schema["$defs"]
    sections: dict[str, Schema] = schema["properties"]
    named = {_target(section): f"[{name}]" for name, section in sections.items()}
    blocks = [INTRODUCTION]
    for table, title in named.items():
        blocks.append(_block(title, tables[table]))
        blocks += [
            _block(f"[{title.strip('[]')}.{key}.NAME]", tables[inner])
            for key, inner in _inner_tables(tables[table])
        ]
    return "\n".join(blocks)


def _block(title: str, table: Schema) -> str:
    """A heading, what the table is for, and a row for each key that is no table itself."""
    rows = [
        f"| `{key}` | {_type(schema)} | {_default(schema)} | {_limits(schema)} | {_meaning(schema)} |"
        for key, schema in _properties(table).items()
        if "patternProperties" not in schema
    ]
    purpose = textwrap.fill(_sentence(str(table["description"])), 110)
    header = ["| key | type | default | limits | meaning |", "| --- | --- | --- | --- | --- |"]
    return "\n".join([f"## {title}", "", purpose, "", *header, *rows, ""])


def _sentence(description: str) -> str:
    """A docstring without the table's own name before it, which the heading has already."""
    _, _, rest = description.partition("`: ")
    text = " ".join((rest or description).split())
    return text[:1].upper() + text[1:]


def _properties(table: Schema) -> dict[str, Schema]:
    properties = table["properties"]
    assert isinstance(properties, dict)
    return properties


def _inner_tables(table: Schema) -> Iterator[tuple[str, str]]:
    """Keys that hold tables, each with the table's name in the schema."""
    for key, schema in _properties(table).items():
        inner = schema.get("patternProperties")
        if isinstance(inner, dict):
            yield key, _target(*inner.values())


def _target(schema: Schema) -> str:
    return str(schema["$ref"]).rpartition("/")[2]


def _choices(schema: Schema) -> list[Schema]:
    """The kinds of value that a key takes, none (an absent key) left out."""
    options = schema.get("anyOf")
    kinds: list[Schema] = options if isinstance(options, list) else [schema]
    return [kind for kind in kinds if kind.get("type") != "null"]


def _type(schema: Schema) -> str:
    return " or ".join(_type_of_one(kind) for kind in _choices(schema))


def _type_of_one(kind: Schema) -> str:
    enum, items, pair = kind.get("enum"), kind.get("items"), kind.get("prefixItems")
    if isinstance(enum, list):
        return " or ".join(_code(value) for value in enum)
    if isinstance(items, dict):
        return f"list of {TYPES[str(items['type'])]}s"
    if isinstance(pair, list):
        return f"list of {len(pair)} {TYPES[str(pair[0]['type'])]}s"
    return "path" if kind.get("format") == "path" else TYPES[str(kind["type"])]


def _default(schema: Schema) -> str:
    if "default" not in schema:
        return "must be given"
    return "not set" if schema["default"] is None else _code(schema["default"])


def _limits(schema: Schema) -> str:
    """What a value must keep to, beside its type."""
    found = []
    for kind in _choices(schema):
        pair, items = kind.get("prefixItems"), kind.get("items")
        limited = pair[0] if isinstance(pair, list) else items if isinstance(items, dict) else kind
        found += [words.format(_number(limited[name])) for name, words in LIMITS.items() if name in limited]
        if "pattern" in limited:
            found.append(MEANINGS[str(limited["pattern"])])
    return ", ".join(found)


def _number(value: object) -> str:
    if isinstance(value, int) and value > LARGE:
        if value & (value - 1) == 0:
            return f"2^{value.bit_length() - 1}"
        if value & (value + 1) == 0:
            return f"2^{value.bit_length()} - 1"
    return f"{value:g}"


def _meaning(schema: Schema) -> str:
    return " ".join(str(schema["description"]).split()).replace("|", "\\|")


def _code(value: object) -> str:
    return f"`{json.dumps(value, ensure_ascii=False)}`"
