"""The facts about a run as text: all of them for a file, and what fits for a terminal.

Knows sections of names and values, nothing of where they come from.
"""

import textwrap
from collections.abc import Iterator, Mapping

from mt_cli.config import Config, dump_config, parse_config
from mt_cli.stages.inspect.inspect import RunFacts

SHORT_HASH = 12
"""Characters of a sha256 that a terminal shows."""


def facts_as_text(report: RunFacts) -> str:
    """For people: a section after another, the config last, as the TOML that it is."""
    sections = [
        "\n".join([name, *_rows(facts)]) for name, facts in report.items() if name != "config" and facts
    ]
    config = dump_config(parse_config(report["config"]))
    return "\n\n".join([*sections, f"config\n{config.rstrip()}"])


def facts_that_fit(report: RunFacts, *, width: int) -> str:
    """For a terminal: no line over `width`, hashes cut short, and of the config what is not its default."""
    sections = [
        "\n".join([name, *_fitting_rows(facts, width)])
        for name, facts in report.items()
        if name != "config" and facts
    ]
    changed = list(_changed_values(parse_config(report["config"])))
    rows = _fitting_rows(dict(changed), width) if changed else ["  as it is by default"]
    return "\n\n".join([*sections, "\n".join(["config, where it is not the default", *rows])])


def _fitting_rows(facts: Mapping[str, object], width: int) -> list[str]:
    """The rows of a section; parts of the model that have no parameters are left out."""
    shown = {name: _short(value) for name, value in facts.items() if value != 0 or isinstance(value, bool)}
    indent = " " * (max(map(len, shown), default=0) + 4)
    return [
        line
        for row in _rows(shown)
        for line in textwrap.wrap(row, width, subsequent_indent=indent, drop_whitespace=True) or [row]
    ]


def _short(value: object) -> object:
    is_hash = isinstance(value, str) and len(value) == 64 and set(value) <= set("0123456789abcdef")
    return f"{str(value)[:SHORT_HASH]}…" if is_hash else value


def _changed_values(config: Config) -> Iterator[tuple[str, object]]:
    """Path and value of each key that is not at its default, in the order of the file."""
    usual = Config().model_dump(mode="json")
    for section, table in config.model_dump(mode="json").items():
        for key, value in table.items():
            if value != usual[section][key]:
                yield f"{section}.{key}", value


def _rows(facts: Mapping[str, object]) -> list[str]:
    width = max(map(len, facts))
    values = [_value(value) for value in facts.values()]
    if all(isinstance(value, int) for value in facts.values()):
        values = [value.rjust(max(map(len, values))) for value in values]
    return [f"  {name:<{width}}  {value}" for name, value in zip(facts, values, strict=True)]


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
            return "  ".join(map(str, value))
        case _:
            return str(value)
