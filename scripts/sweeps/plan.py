"""What a sweep compares: variants of one config, read from a file and laid out as trainings.

Knows configs and places, not how anything is trained.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from mt_cli.commands.flags import prepared_dir
from mt_cli.config import Config, dump_config, load_config, parse_config, read_toml
from mt_cli.config.values import SplitName
from mt_cli.errors import ConfigError

Tables = dict[str, dict[str, object]]
"""Config keys and their values, by section."""


def _all_different(seeds: list[int]) -> list[int]:
    if len(set(seeds)) < len(seeds):
        raise ValueError("must differ")
    return seeds


class _SweepFile(BaseModel):
    """The tables of a sweep's TOML file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    config: Path
    seeds: Annotated[
        list[Annotated[int, Field(ge=0, strict=True)]], Field(min_length=1), AfterValidator(_all_different)
    ] = [1]
    all: Tables = {}
    """What every variant changes of the config."""
    variants: Annotated[dict[SplitName, Tables], Field(min_length=1)]
    """What each changes besides; its name is that of folders."""


@dataclass(frozen=True)
class Sweep:
    """What is to be compared."""

    base: Path
    """The config that all variants change."""
    seeds: tuple[int, ...]
    variants: Mapping[str, Config]
    """By name; the first is what the others are compared with."""


@dataclass(frozen=True)
class Job:
    """One variant with one seed, and where it lies."""

    variant: str
    seed: int
    config: Config
    config_path: Path
    prepared_by: Path
    """The config that its data are prepared by, which others may share."""
    run: Path

    @property
    def data(self) -> Path:
        """Its prepared data."""
        return prepared_dir(self.prepared_by)


def read_sweep(path: Path) -> Sweep:
    """The sweep of a TOML file: `config`, `seeds`, and tables `[all]` and `[variants.<name>]` of config keys.

    Raises:
        ConfigError: something is missing, unknown or wrong.
    """
    try:
        file = _SweepFile.model_validate(read_toml(path))
    except ValidationError as error:
        found = [f"  {'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()]
        raise ConfigError("\n".join([f"{path}: the sweep cannot be used", *found])) from error
    base = load_config(file.config).model_dump(mode="json", exclude_none=True)
    variants = {
        name: parse_config(_merged(base, file.all, changes), origin=f"{path}: variant '{name}'")
        for name, changes in file.variants.items()
    }
    return Sweep(file.config, tuple(file.seeds), variants)


def _merged(base: Mapping[str, object], *changes: Tables) -> dict[str, object]:
    """`base` with every one of `changes` laid over it, key by key."""
    result = dict(base)
    for change in changes:
        for section, keys in change.items():
            before = result.get(section)
            result[section] = {**before, **keys} if isinstance(before, dict) else keys
    return result


def lay_out(sweep: Sweep, out: Path) -> list[Job]:
    """Write each variant's config below `out`, and list the trainings: every variant before the next seed.

    Variants of the same data and tokenizer share what is prepared, with the base config too.
    """
    base = load_config(sweep.base)
    prepared = {sweep.base: (base.data, base.tokenizer)}
    jobs: dict[str, tuple[Config, Path, Path]] = {}
    for name, config in sweep.variants.items():
        path = out / "configs" / f"{out.name}-{name}.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dump_config(config), encoding="utf-8")
        made_of = config.data, config.tokenizer
        prepared_by = next((known for known, its_own in prepared.items() if its_own == made_of), path)
        prepared[prepared_by] = made_of
        jobs[name] = config, path, prepared_by
    return [
        Job(name, seed, *jobs[name], out / "runs" / f"{name}-{seed}")
        for seed, name in product(sweep.seeds, sweep.variants)
    ]
