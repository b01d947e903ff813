"""`mt-cli config`: new, show and diff."""

import json
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from mt_cli.cli.app import app, command, new_app
from mt_cli.cli.flags import ConfigPath
from mt_cli.config.load import differences, dump_config, load_config
from mt_cli.config.schema import TEST, TRAIN, VAL, FilesConfig
from mt_cli.errors import UsageError
from mt_cli.machine.terminal import print_result

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
    as_json: bool,
    paired: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE",
            help="Training pairs: .tsv, .csv, .jsonl, .parquet or .tmx files; or two text files.",
        ),
    ] = None,
    train: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="SRC TGT",
            help="Training pairs: two files aligned by line; repeat it, or write a,b, for more.",
        ),
    ] = None,
    val: Annotated[
        list[Path] | None,
        typer.Option(metavar="SRC TGT", help="Validation pairs; default: split off training."),
    ] = None,
    test: Annotated[
        list[Path] | None,
        typer.Option(metavar="SRC TGT", help="Test pairs; default: split off training."),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="SRC,TGT", help="Table columns, by name or number from 1, or JSON keys."
        ),
    ] = None,
    src_lang: Annotated[
        str | None, typer.Option(metavar="CODE", help="Such as de; default: the file's ending.")
    ] = None,
    tgt_lang: Annotated[
        str | None, typer.Option(metavar="CODE", help="Such as en; default: the file's ending.")
    ] = None,
    init_from: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Run to fine-tune on these pairs.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Config to write; default: named after the pairs; stdout if nothing is split off.",
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the config and the splits made for it.")
    ] = False,
) -> None:
    """Write a config that suits a corpus.

    Vocabulary, model and training are sized to the pairs. Missing splits are split off the training
    pairs, into files next to the config. Without files, the config is for the bundled sample.
    Prints the new file's path, or the config itself if no file is written.
    """
    from mt_cli.new_config import named_as, new_config

    splits = _splits(paired or [], train, val, test, columns)
    if not splits and (columns or src_lang or tgt_lang):
        raise UsageError("--columns, --src-lang and --tgt-lang need files to describe; add --train")
    if file is None and TRAIN in splits and splits.keys() != {TRAIN, VAL, TEST}:
        file = named_as(splits[TRAIN])
    text, cut_off = new_config(
        splits,
        src_lang=src_lang,
        tgt_lang=tgt_lang,
        parent=init_from,
        output=file,
        overwrite=overwrite,
    )
    document = {"config": file, "cut_off": cut_off, "text": text}
    print_result(file or text.rstrip("\n").encode(), document, as_json=as_json)


def _splits(
    paired: list[Path],
    train: list[Path] | None,
    val: list[Path] | None,
    test: list[Path] | None,
    columns: str | None,
) -> dict[str, FilesConfig]:
    """The files of each split given by the flags."""
    from mt_cli.data.text_files import named_kind

    sides: dict[str, tuple[Files, Files]] = {}
    for name, pairs in ((TRAIN, train), (VAL, val), (TEST, test)):
        if not pairs:
            continue
        if len(pairs) % 2:
            raise UsageError(f"--{name} takes two files, SRC TGT; {pairs[-1]} has no partner")
        src_files = tuple(chain.from_iterable(map(_side, pairs[::2])))
        tgt_files = tuple(chain.from_iterable(map(_side, pairs[1::2])))
        sides[name] = (src_files, tgt_files)
    if paired and train:
        raise UsageError("give training pairs either as FILE or with --train, not both")
    have_both_sides = columns is not None or any(map(named_kind, paired))
    for path in paired if have_both_sides and columns is None else ():
        if named_kind(path) is None:
            raise UsageError(f"{path}: does not hold both sides, as the others do; use --train")
    if len(paired) == 2 and not have_both_sides:
        sides[TRAIN] = ((paired[0],), (paired[1],))
    elif paired and have_both_sides:
        sides[TRAIN] = (tuple(paired), tuple(paired))
    elif paired:
        raise UsageError(
            f"{paired[0]}: expected .tsv, .csv, .jsonl, .parquet or .tmx; else give SRC TGT"
        )
    src_column, tgt_column = _parse_columns(columns)
    splits = {}
    for name, (src_files, tgt_files) in sides.items():
        table: dict[str, object] = {"src": src_files, "tgt": tgt_files}
        if name == TRAIN or any(map(named_kind, (*src_files, *tgt_files))):
            table |= {"src_column": src_column, "tgt_column": tgt_column}
        splits[name] = FilesConfig.model_validate(table)
    return splits


def _side(path: Path) -> Files:
    """The files of a side; commas separate several."""
    if path.exists():
        return (path,)
    return tuple(Path(name) for name in str(path).split(",") if name)


def _parse_columns(text: str | None) -> tuple[int | str | None, int | str | None]:
    """Parse the columns of both sides, such as `1,2` or `de,en`."""
    if text is None:
        return None, None
    columns: list[int | str] = []
    for name in map(str.strip, text.split(",")):
        columns.append(int(name) if name.isdecimal() else name)
    if len(columns) != 2:
        raise UsageError(f"--columns {text!r}: expected two columns, such as 1,2 or de,en")
    return columns[0], columns[1]


@command(group, "config show sample", "config show runs/sample --set decoding.beam_size=5")
def show(config: ConfigPath, settings: list[str], as_json: bool) -> None:
    """Print all keys and values, including defaults, as TOML."""
    loaded = load_config(config, settings)
    text = dump_config(loaded).rstrip("\n")
    print_result(text.encode(), loaded.model_dump(mode="json"), as_json=as_json)


@command(group, "config diff multi30k multi30k-tiny")
def diff(one: ConfigPath, other: ConfigPath, as_json: bool) -> None:
    """Print the keys in which two configs differ."""
    changes = differences(load_config(one), load_config(other))
    if as_json or changes:
        lines = []
        for key, (first, second) in changes.items():
            lines.append(f"{key}  {_shown(first)} → {_shown(second)}")
        print_result("\n".join(lines), {"differences": changes}, as_json=as_json)


def _shown(value: object) -> str:
    return "not set" if value is None else json.dumps(value, ensure_ascii=False)
