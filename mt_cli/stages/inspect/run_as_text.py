"""The facts about a run as text: all of them for a file, and what fits for a terminal.

Knows sections of names and values, nothing of where they come from.
"""

import textwrap
from collections.abc import Mapping

from mt_cli.config import Config, differences, dump_config, parse_config
from mt_cli.stages.inspect.inspect import Description

SHORT_HASH = 12
"""Characters of a sha256 that a terminal shows."""


def facts_as_text(description: Description) -> str:
    """For people: a section after another, the config last, as the TOML that it is."""
    sections = [
        "\n".join([name, *_rows(facts)]) for name, facts in description.items() if name != "config" and facts
    ]
    config = dump_config(parse_config(description["config"]))
    return "\n\n".join([*sections, f"config\n{config.rstrip()}"])


def facts_that_fit(description: Description, *, width: int) -> str:
    """For a terminal: no line over `width`, hashes cut short, and of the config what is not its default."""
    sections = [
        "\n".join([name, *_fitting_rows(facts, width)])
        for name, facts in _without_empty_parts(description).items()
        if name != "config" and facts
    ]
    config = parse_config(description["config"])
    changed = {path: own for path, (_, own) in differences(Config(), config).items()}
    rows = _fitting_rows(_by_inner_table(changed), width) if changed else ["  as it is by default"]
    title = textwrap.wrap("config, where it is not the default", width)
    return "\n\n".join([*sections, "\n".join([*title, *rows])])


def _without_empty_parts(description: Description) -> Description:
    """The description without the parts of the model that have no parameters."""
    filled = {part: count for part, count in description["parameters"].items() if count}
    return {**description, "parameters": filled}


def _by_inner_table(changed: Mapping[str, object]) -> dict[str, object]:
    """Values by their paths; those of an inner table that are not empty, as `data.files.train`, as one."""
    inner: dict[str, dict[str, object]] = {}
    for path, value in changed.items():
        table, _, key = path.rpartition(".")
        if "." in table and value != "":
            inner.setdefault(table, {})[key] = value
    outer = {path: value for path, value in changed.items() if path.rpartition(".")[0] not in inner}
    return outer | {table: _in_one(values) for table, values in inner.items()}


def _fitting_rows(facts: Mapping[str, object], width: int) -> list[str]:
    """A row for each fact; the value of one whose name takes over half of the `width` is on the next line."""
    shown = {name: _short(value) for name, value in facts.items()}
    beside = {name: value for name, value in shown.items() if len(name) <= width // 2}
    rows = dict(zip(beside, _rows(beside), strict=True))
    indent = " " * (max(map(len, beside), default=0) + 4)
    lines = []
    for name, value in shown.items():
        if name in rows:
            lines += textwrap.wrap(rows[name], width, subsequent_indent=indent)
        else:
            lines += textwrap.wrap(name, width, initial_indent="  ", subsequent_indent="  ")
            lines += textwrap.wrap(_value(value), width, initial_indent="    ", subsequent_indent="    ")
    return lines


def _short(value: object) -> object:
    is_hash = isinstance(value, str) and len(value) == 64 and set(value) <= set("0123456789abcdef")
    return f"{str(value)[:SHORT_HASH]}…" if is_hash else value


def _rows(facts: Mapping[str, object]) -> list[str]:
    width = max(map(len, facts), default=0)
    values = [_value(value) for value in facts.values()]
    if all(isinstance(value, int) for value in facts.values()):
        values = [value.rjust(max(map(len, values))) for value in values]
    return [f"  {name:<{width}}  {value}" for name, value in zip(facts, values, strict=True)]


def _in_one(facts: Mapping[str, object]) -> str:
    """Several facts as one value."""
    return ", ".join(f"{name} {_value(value)}" for name, value in facts.items())


def _value(value: object) -> str:
    match value:
        case {"bleu": {"score": float(score), "signature": signature}, **others}:
            return f"BLEU {score:.2f}  {signature}  {others.get('checkpoint', 'of an unnamed checkpoint')}"
        case {"bleu": float(score), "bleu_signature": signature, "nll": float(nll)}:
            return f"BLEU {score:.2f}  {signature}  nll {nll:.4f}"
        case bool():
            return str(value).lower()
        case int():
            return f"{value:,}"
        case list():
            return "  ".join(_in_one(each) if isinstance(each, dict) else str(each) for each in value)
        case _:
            return str(value)
