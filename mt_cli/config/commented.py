"""A config as a file for people: every key with its value and what it means.

Knows how a config is written, never what may stand in it.
"""

import textwrap
from collections.abc import Iterator

import tomli_w

from mt_cli.config.sections import Config
from mt_cli.config.values import Section

WIDTH = 110


def commented_toml(config: Config, *, header: str) -> str:
    """The whole `config` as TOML, a comment above each key, and `header` above them all."""
    lines = [*_comment(header), *(line for name, section in config for line in _table(name, section))]
    return "\n".join(lines) + "\n"


def _table(name: str, section: Section) -> Iterator[str]:
    """The lines of `section`, whose inner tables stand below its keys."""
    values = section.model_dump(mode="json")
    yield from ("", f"[{name}]")
    for key, field in type(section).model_fields.items():
        if not isinstance(values[key], dict):
            yield from _comment(" ".join((field.description or "").split()))
            yield f"# {key} is not set" if values[key] is None else _assignment(key, values[key])
    for key, field in type(section).model_fields.items():
        if isinstance(values[key], dict):
            yield from ("", *_comment(" ".join((field.description or "").split())))
            if values[key]:
                yield tomli_w.dumps({name: {key: values[key]}}).strip()


def _assignment(key: str, value: object) -> str:
    if isinstance(value, list):  # tomli_w gives each item a line
        return f"{key} = [{', '.join(_assignment('_', item).removeprefix('_ = ') for item in value)}]"
    return tomli_w.dumps({key: value}).strip()


def _comment(text: str) -> list[str]:
    """`text` as comment lines, its own line breaks kept; indented lines, such as commands, stay whole."""
    return [
        f"# {line}"
        for paragraph in text.strip().split("\n")
        for line in ([paragraph] if paragraph.startswith("  ") else _wrapped(paragraph))
    ]


def _wrapped(paragraph: str) -> list[str]:
    return textwrap.wrap(paragraph, WIDTH - 2, break_on_hyphens=False, break_long_words=False) or [""]
