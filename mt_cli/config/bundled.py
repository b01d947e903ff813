"""What CONFIG on the command line stands for: a file, a run's config, or one that comes with the program.

Knows where they lie, nothing of what is in them.
"""

from pathlib import Path

from mt_cli.errors import ConfigError

RUN_CONFIG = "config.toml"
"""The config of a run, in its folder."""


def bundled_configs() -> dict[str, Path]:
    """Path of each config that comes with the program, by name, such as `sample` or `classic/page`."""
    folder = _bundled_folder()
    paths = (*folder.glob("*.toml"), *folder.glob("classic/*.toml"))
    return dict(sorted((path.relative_to(folder).with_suffix("").as_posix(), path) for path in paths))


def find_config(name: Path) -> Path:
    """The file that `name` stands for: itself, the config of a run folder, `NAME.toml`, or a bundled config.

    Raises:
        ConfigError: there is none; the error says what there is.
    """
    if (name / RUN_CONFIG).is_file():
        return name / RUN_CONFIG
    if name.is_file() or name.suffix:
        return name
    if not name.name:
        raise ConfigError(f"{name}: a folder without a config; name a TOML file or a run folder")
    beside = name.with_name(f"{name.name}.toml")
    bundled = bundled_configs()
    if beside.is_file():
        return beside
    if name.as_posix() in bundled:
        return bundled[name.as_posix()]
    if name.is_dir():
        return name  # whoever reads it says what is wrong with that
    raise ConfigError(
        f"{name}: no such config file, and no config of that name comes with mt-cli; "
        f"these do: {', '.join(bundled)}"
    )


def config_name(name: Path) -> str:
    """What the prepared data and the run of the config `name` are called: as the file, without its ending.

    The config in a run folder, which may be moved, is called as the folder.

    Raises:
        ConfigError: there is no such config.
    """
    path = find_config(name)
    is_of_run = path.name == RUN_CONFIG and (path.parent / "manifest.json").is_file()
    return path.resolve().parent.name if is_of_run else path.stem


def _bundled_folder() -> Path:
    package = Path(__file__).parents[1]
    installed, in_repository = package / "configs", package.parent / "configs"
    return installed if installed.is_dir() else in_repository
