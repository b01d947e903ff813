"""`mt-cli config`: new, show and diff."""

import json
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from mt_cli.cli.app import app, command, new_app
from mt_cli.cli.flags import ConfigPath, OutputFlags, Settings, parse_column
from mt_cli.config.load import differences, dump_config, explain, load_config
from mt_cli.config.schema import Column, FilesConfig
from mt_cli.errors import UsageError
from mt_cli.machine.terminal import print_result

Pair = tuple[Path, Path]
Files = tuple[Path, ...]
group = new_app("config", "Write a config for a corpus; show or compare configs.")
app.add_typer(group)


@command(
    group,
    "config new --train corpus.es corpus.en -o mine.toml",
    "config new --train a.de a.en --val b.de b.en -o mine.toml",
    "config new pairs.tsv --columns de,en -o mine.toml",
)
def new(
    output: OutputFlags,
    paired: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE",
            help="Training pairs: tables, JSON, Parquet, TMX with both sides; or SRC TGT.",
        ),
    ] = None,
    train: Annotated[
        Pair | None,
        typer.Option(
            metavar="SRC TGT", help="Training pairs: files that align by line; a,b is two files."
        ),
    ] = None,
    val: Annotated[
        Pair | None,
        typer.Option(metavar="SRC TGT", help="Validation pairs; by default cut off training's."),
    ] = None,
    test: Annotated[
        Pair | None,
        typer.Option(metavar="SRC TGT", help="Test pairs; by default cut off training's."),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="SRC,TGT", help="Columns of .tsv, from 1 or by name, or keys of .jsonl files."
        ),
    ] = None,
    src_lang: Annotated[
        str | None, typer.Option(metavar="CODE", help="Such as es; by default the file's ending.")
    ] = None,
    tgt_lang: Annotated[
        str | None, typer.Option(metavar="CODE", help="Such as en; by default the file's ending.")
    ] = None,
    init_from: Annotated[
        Path | None, typer.Option(metavar="RUN", help="A run to go on from, on these pairs.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Config to write; stdout by default."),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the config, and the splits cut off before.")
    ] = False,
) -> None:
    """Write a config that suits a corpus.

    Vocabulary, model and training are sized to the pairs. Missing splits are cut off the training
    pairs, into files beside the config. Without files the config is for the bundled sample. Prints
    the new file's path, or without -o the config itself.
    """
    from mt_cli.new_config.new_config import new_config

    splits = _splits(paired or [], train, val, test, columns)
    if not splits and (columns or src_lang or tgt_lang):
        raise UsageError(
            "--columns, --src-lang and --tgt-lang describe files; name some with --train SRC TGT, "
            "or as FILE"
        )
    text, cut_off = new_config(
        splits,
        src_lang=src_lang,
        tgt_lang=tgt_lang,
        parent=init_from,
        output=file,
        overwrite=overwrite,
    )
    document = {"config": file, "cut_off": cut_off, "text": text}
    print_result(file or text.rstrip("\n").encode(), document, as_json=output.as_json)


def _splits(
    paired: list[Path],
    train: Pair | None,
    val: Pair | None,
    test: Pair | None,
    columns: str | None,
) -> dict[str, FilesConfig]:
    """The files of each split that the flags name."""
    from mt_cli.data.files import named_kind

    are_lines = columns is None and not any(map(named_kind, paired))
    if len(paired) == 2 and train is None and are_lines:
        train = (paired[0], paired[1])
        paired = []
    sides = {"train": _files(train, "--train"), "val": _files(val, "--val")}
    sides["test"] = _files(test, "--test")
    for path in paired:
        if columns is None and named_kind(path) is None:
            raise UsageError(
                f"{path}: a single file must have both sides, as .tsv, .csv, .jsonl, .json, "
                ".parquet and .tmx files do; for two files that align line by line use --train SRC "
                "TGT"
            )
    if paired and train is not None:
        raise UsageError("training pairs are named by --train or by FILE; give one of them")
    src_column, tgt_column = _parse_columns(columns)
    if paired:
        sides["train"] = (tuple(paired), tuple(paired))
    splits = {}
    for name, found in sides.items():
        if found is None:
            continue
        src, tgt = found
        try:
            split = FilesConfig(src=src, tgt=tgt)
        except ValidationError as error:
            place = "FILE" if paired and name == "train" else f"--{name}"
            raise UsageError(f"{place}: {'; '.join(explain(error))}") from error
        if columns and (name == "train" or any(map(named_kind, (*src, *tgt)))):
            split = split.model_copy(update={"src_column": src_column, "tgt_column": tgt_column})
        splits[name] = split
    return splits


def _files(pair: Pair | None, flag: str) -> tuple[Files, Files] | None:
    """The files of both sides; commas separate several of a side."""
    if pair is None:
        return None
    if any(str(path).startswith("-") for path in pair):
        raise UsageError(f"{flag} needs two files, SRC TGT; found {' and '.join(map(str, pair))}")
    src, tgt = pair
    return _side(src), _side(tgt)


def _side(path: Path) -> Files:
    if path.exists():
        return (path,)
    return tuple(Path(name) for name in str(path).split(",") if name)


def _parse_columns(text: str | None) -> tuple[Column | None, Column | None]:
    """The columns of both sides that `text`, such as `1,2` or `de,en`, names."""
    if text is None:
        return None, None
    columns = text.split(",")
    if len(columns) != 2:
        raise UsageError(f"--columns {text!r}: expected two, such as 1,2 or de,en")
    src, tgt = columns
    return parse_column(src.strip(), "--columns"), parse_column(tgt.strip(), "--columns")


@command(group, "config show sample", "config show runs/sample --set decoding.beam_size=5")
def show(config: ConfigPath, output: OutputFlags, settings: Settings = None) -> None:
    """Print every key with its value, defaults too, as TOML."""
    loaded = load_config(config, settings or ())
    text = dump_config(loaded).rstrip("\n")
    print_result(text.encode(), loaded.model_dump(mode="json"), as_json=output.as_json)


@command(group, "config diff multi30k multi30k-tiny")
def diff(one: ConfigPath, other: ConfigPath, output: OutputFlags) -> None:
    """Print the keys that two configs set to different values."""
    found = differences(load_config(one), load_config(other))
    if output.as_json or found:
        lines = []
        for key, (first, second) in found.items():
            lines.append(f"{key}  {_shown(first)} → {_shown(second)}")
        print_result("\n".join(lines), {"differences": found}, as_json=output.as_json)


def _shown(value: object) -> str:
    return "not set" if value is None else json.dumps(value, ensure_ascii=False)
