"""`mt-cli config`: new, show, check and diff."""

import json
from pathlib import Path
from typing import Annotated

import typer

from mt_cli.commands.flags import Json, Quiet, Settings, Verbose
from mt_cli.commands.program import Program, Verb, show_help_without_verb
from mt_cli.commands.terminal import exit_codes, print_result, set_up_logging
from mt_cli.config import differences, dump_config, load_config
from mt_cli.errors import ConfigError

AnyConfig = Annotated[
    Path,
    typer.Argument(metavar="CONFIG", help="A TOML file, a run folder, or a name such as sample."),
]
config = typer.Typer(
    name="config",
    help="Write a config for a corpus; show, check or compare configs.",
    cls=Program,
    invoke_without_command=True,
    rich_markup_mode=None,
)


@config.callback()
def _top(ctx: typer.Context) -> None:
    show_help_without_verb(ctx)


@config.command(cls=Verb)
@exit_codes
def new(
    train: Annotated[
        tuple[Path, Path] | None,
        typer.Option("--train", metavar="SRC TGT", help="Training pairs: two files that align by line."),
    ] = None,
    val: Annotated[
        tuple[Path, Path] | None,
        typer.Option("--val", metavar="SRC TGT", help="Validation pairs; by default cut off --train."),
    ] = None,
    test: Annotated[
        tuple[Path, Path] | None,
        typer.Option("--test", metavar="SRC TGT", help="Test pairs; by default cut off --train."),
    ] = None,
    src_lang: Annotated[
        str | None,
        typer.Option("--src-lang", metavar="CODE", help="Such as es; by default the file's ending."),
    ] = None,
    tgt_lang: Annotated[
        str | None,
        typer.Option("--tgt-lang", metavar="CODE", help="Such as en; by default the file's ending."),
    ] = None,
    init_from: Annotated[
        Path | None, typer.Option("--init-from", metavar="RUN", help="A run to go on from, on these pairs.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Config to write; stdout by default."),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the config, and the splits cut off before.")
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Write a config that suits a corpus.

    Vocabulary, model and training are sized to the pairs. Missing splits are cut off the training pairs, into
    files beside the config. Without --train the config is for the bundled sample.
    """
    set_up_logging(is_quiet=quiet, is_verbose=verbose)
    from mt_cli.stages.configure.new import new_config

    splits = {"train": train, "val": val, "test": test}
    made = new_config(
        {name: files for name, files in splits.items() if files is not None},
        src_lang=src_lang,
        tgt_lang=tgt_lang,
        parent=init_from,
        output=output,
        overwrite=overwrite,
    )
    document = {"config": None if made.path is None else str(made.path), "cut_off": made.pairs}
    found = made.path or made.text.rstrip("\n").encode()
    print_result(found, document | {"text": made.text}, as_json=as_json)


@config.command(cls=Verb)
@exit_codes
def show(
    config: AnyConfig,
    settings: Settings = None,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Print every key with its value, defaults too."""
    set_up_logging(is_quiet=quiet, is_verbose=verbose)
    loaded = load_config(config, settings or ())
    text = dump_config(loaded).rstrip("\n")
    print_result(text.encode(), loaded.model_dump(mode="json"), as_json=as_json)


@config.command(cls=Verb)
@exit_codes
def check(
    configs: Annotated[
        list[Path],
        typer.Argument(metavar="CONFIG...", help="TOML files, run folders, or names such as sample."),
    ],
    settings: Settings = None,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Say what is wrong with configs, and what will probably not work.

    A config that cannot be used is exit code 2; a warning is not.
    """
    set_up_logging(is_quiet=quiet, is_verbose=verbose)
    from mt_cli.stages.configure.check import check_config

    found = [check_config(path, settings or ()) for path in configs]
    print_result(
        "\n".join(str(each) for each in found),
        {"configs": {each.name: each.as_json() for each in found}},
        as_json=as_json,
    )
    wrong = [each.name for each in found if each.errors]
    if wrong:
        raise ConfigError(f"{len(wrong)} of {len(found)} configs cannot be used: {', '.join(wrong)}")


@config.command(cls=Verb)
@exit_codes
def diff(
    one: AnyConfig,
    other: AnyConfig,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Print the keys that two configs set to different values."""
    set_up_logging(is_quiet=quiet, is_verbose=verbose)
    found = differences(load_config(one), load_config(other))
    if as_json or found:
        lines = [f"{path}  {_shown(first)} → {_shown(second)}" for path, (first, second) in found.items()]
        print_result("\n".join(lines), {"differences": found}, as_json=as_json)


def _shown(value: object) -> str:
    return "not set" if value is None else json.dumps(value, ensure_ascii=False)
