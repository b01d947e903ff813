"""What a shell offers when Tab is pressed: runs, their splits and checkpoints, configs and their keys.

Reads file names and small files alone, because whoever presses Tab waits: neither torch nor a run is loaded.
"""

import tomllib
from collections.abc import Iterator
from pathlib import Path

import typer

from mt_cli.config import RUN_CONFIG, Config, DataConfig

DEEPEST = 2
"""Folders below the one being typed in which runs and configs are looked for."""


def complete_runs(incomplete: str) -> list[str]:
    """Run folders whose path begins with `incomplete`."""
    return sorted(str(path.parent) for path in _below(incomplete, "manifest.json") if _is_run(path.parent))


def complete_configs(incomplete: str) -> list[str]:
    """TOML files that are configs to start from, not those inside of runs."""
    return sorted(str(path) for path in _below(incomplete, "*.toml") if not _is_run(path.parent))


def complete_splits(ctx: typer.Context, incomplete: str) -> list[str]:
    """Splits of the run that the command line names already."""
    found = [name for run in _runs_of(ctx) for name in _splits(run)]
    return [name for name in dict.fromkeys(found) if name.startswith(incomplete)]


def complete_checkpoints(ctx: typer.Context, incomplete: str) -> list[str]:
    """`best`, `last`, and the checkpoints of the run that the command line names already."""
    folders = [path.name for run in _runs_of(ctx) for path in sorted(run.glob("checkpoints/step-*"))]
    return [name for name in dict.fromkeys(["best", "last", *folders]) if name.startswith(incomplete)]


def complete_settings(incomplete: str) -> list[tuple[str, str]]:
    """`section.key=` for every key of a config, with what it means."""
    return [(f"{path}=", meaning) for path, meaning in _keys() if path.startswith(incomplete)]


def _keys() -> Iterator[tuple[str, str]]:
    for section, field in Config.model_fields.items():
        keys = getattr(field.annotation, "model_fields", {})
        for key, about in keys.items():
            yield f"{section}.{key}", (about.description or "").split("\n")[0]


def _below(incomplete: str, pattern: str) -> Iterator[Path]:
    """Files that match `pattern` in the folder being typed and `DEEPEST` below it, hidden ones left out."""
    typed = Path(incomplete)
    folder = typed if incomplete.endswith("/") or not incomplete else typed.parent
    for depth in range(DEEPEST + 1):
        for path in folder.glob("/".join(["*"] * depth + [pattern])):
            is_hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
            if str(path).startswith(incomplete.removeprefix("./")) and not is_hidden:
                yield path


def _is_run(folder: Path) -> bool:
    return (folder / RUN_CONFIG).is_file() and (folder / "manifest.json").is_file()


def _runs_of(ctx: typer.Context) -> list[Path]:
    given = ctx.params.get("runs") or ctx.params.get("run") or []
    # A flag whose value is still to come keeps Typer from sorting the words before it.
    words = [*(given if isinstance(given, list | tuple) else [given]), *ctx.args]
    return [Path(word) for word in words if _is_run(Path(word))]


def _splits(run: Path) -> list[str]:
    try:
        data = tomllib.loads((run / RUN_CONFIG).read_text(encoding="utf-8")).get("data", {})
    except (OSError, ValueError, RecursionError):
        return []
    return [str(name) for name in data.get("splits", DataConfig.model_fields["splits"].default)]
