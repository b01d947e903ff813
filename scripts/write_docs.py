"""Write docs/config.md from the config's JSON schema, and the tables of docs/lab/records.md."""

import json
import textwrap
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

from results import PAGE, ROOT, results_page

from mt_cli.config.schema import MEANINGS, Config

Schema = dict[str, Any]
"""A part of a JSON schema."""
INTRODUCTION = """\
# Every key of a config

<!-- Made by scripts/write_docs from mt_cli/config/schema.py; edit that file instead. -->

A config is a TOML file. An absent key is its default, and an unknown key is an error.
`--set section.key=value` changes a key for one command. [`mt-cli config`](commands.md#config)
shows, compares and writes configs. Upper limits that only catch typos are left out.
"""
TYPES = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "object": "table of numbers",
}
LIMITS = {
    "minimum": "at least {}",
    "exclusiveMinimum": "above {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "below {}",
}
MOST = 100
"""Larger upper limits only catch typos, and are not shown."""


def main() -> None:
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
        print(path.relative_to(ROOT))


def pages() -> dict[Path, str]:
    """Text of each page that is made by a program, in whole or in part."""
    return {ROOT / "docs" / "config.md": config_page(), ROOT / PAGE: results_page()}


def config_page() -> str:
    """The whole page."""
    schema = Config.model_json_schema()
    tables: dict[str, Schema] = schema["$defs"]
    blocks = [INTRODUCTION]
    for name, section in schema["properties"].items():
        table = tables[_target(section)]
        blocks.append(_block(f"[{name}]", table))
        known = set[str]()
        for key, inner in table["properties"].items():
            if "$ref" in inner:
                blocks.append(_block(f"[{name}.{key}]", tables[_target(inner)]))
            elif "patternProperties" in inner:  # it holds tables
                (named,) = inner["patternProperties"].values()
                table = tables[_target(named)]
                blocks.append(_block(f"[{name}.{key}.NAME]", table, known=known))
                known |= table["properties"].keys()
    return "\n".join(blocks)


def _target(schema: Schema) -> str:
    return str(schema["$ref"]).rpartition("/")[2]


def _block(title: str, table: Schema, *, known: AbstractSet[str] = frozenset()) -> str:
    """A heading, what the table is for, and a row for each key that is no table itself.

    Keys that are `known` from the block before are only named.
    """
    rows = [
        f"| `{key}` | {_value(schema)} | {_default(schema)} | {_meaning(schema)} |"
        for key, schema in table["properties"].items()
        if "patternProperties" not in schema and "$ref" not in schema and key not in known
    ]
    # The table's own name is in the heading.
    description = " ".join(
        (table["description"].partition("`: ")[2] or table["description"]).split()
    )
    if again := [f"`{key}`" for key in table["properties"] if key in known]:
        description += f" {', '.join(again)} as above, and:"
    purpose = textwrap.fill(description[:1].upper() + description[1:], 110)
    header = ["| key | value | default | meaning |", "| --- | --- | --- | --- |"]
    return "\n".join([f"## {title}", "", purpose, "", *header, *rows, ""])


def _kinds(schema: Schema) -> list[Schema]:
    """The kinds of value that a key takes, none (an absent key) left out."""
    return [kind for kind in schema.get("anyOf", [schema]) if kind.get("type") != "null"]


def _value(schema: Schema) -> str:
    """What a value must be."""
    found = [" or ".join(_type_of_one(kind) for kind in _kinds(schema))]
    for kind in _kinds(schema):
        limited = kind.get("prefixItems", [kind.get("items", kind)])[0]
        if isinstance(limited, dict):
            limits = {name: limited[name] for name in LIMITS if name in limited}
            found += [
                LIMITS[name].format(f"{limit:g}")
                for name, limit in limits.items()
                if name.endswith("inimum") or limit <= MOST
            ]
            found += [MEANINGS[limited["pattern"]]] if "pattern" in limited else []
    return ", ".join(found)


def _type_of_one(kind: Schema) -> str:
    if "enum" in kind:
        return " or ".join(_code(value) for value in kind["enum"])
    if "items" in kind:
        item = _type_of_one(kind["items"])
        return f"path or list of {item}s" if item == "path" else f"list of {item}s"
    if "prefixItems" in kind:
        return f"list of {len(kind['prefixItems'])} {TYPES[kind['prefixItems'][0]['type']]}s"
    return "path" if kind.get("format") == "path" else TYPES[kind["type"]]


def _default(schema: Schema) -> str:
    if schema.get("type") == "object":
        return "empty"
    if "default" not in schema:
        return "must be given"
    return "not set" if schema["default"] is None else _code(schema["default"])


def _meaning(schema: Schema) -> str:
    return " ".join(schema["description"].split()).replace("|", "\\|")


def _code(value: object) -> str:
    return f"`{json.dumps(value, ensure_ascii=False)}`"


if __name__ == "__main__":
    main()
