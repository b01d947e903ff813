"""`mt-cli prepare`."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mt_cli.cli.app import app, command
from mt_cli.cli.flags import ConfigPath, prepare_command, prepared_dir
from mt_cli.config.load import load_config
from mt_cli.config.schema import Config
from mt_cli.errors import UsageError
from mt_cli.machine.terminal import print_result

if TYPE_CHECKING:  # torch and spaCy are imported when a corpus is prepared
    from mt_cli.data.corpora import MadeFiles
    from mt_cli.data.prepared import CorpusReport
    from mt_cli.data.shards import AppendedShard, Shard

log = logging.getLogger(__name__)


@command(
    app,
    "prepare configs/sample.toml",
    "prepare configs/multi30k-tiny.toml --from downloads",
    "prepare mine.toml --set data.filter.max_ratio=3",
    "prepare large.toml --shard 3/16",
    "prepare large.toml --append",
)
def prepare(
    config: ConfigPath,
    settings: list[str],
    as_json: bool,
    sources: Annotated[
        list[Path] | None,
        typer.Option(
            "--from", metavar="DIR", help="Folder with corpus files; repeat it for more folders."
        ),
    ] = None,
    offline: Annotated[bool, typer.Option("--offline", help="Do not use the network.")] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Prepare again, even if nothing has changed or runs need the old data.",
        ),
    ] = False,
    workers: Annotated[
        int,
        typer.Option(min=0, max=16, metavar="N", help="Processes; 0 chooses by corpus size."),
    ] = 0,
    shard: Annotated[
        str | None,
        typer.Option(
            "--shard", metavar="I/N", help="Prepare only the I-th of N parts of the training text."
        ),
    ] = None,
    join: Annotated[
        bool, typer.Option("--join", help="Join all prepared shards into one corpus.")
    ] = False,
    append: Annotated[
        bool,
        typer.Option("--append", help="Prepare new files as one more shard, and join all."),
    ] = False,
) -> None:
    """Get, clean and encode a corpus.

    Finds or downloads the corpus, filters it, learns vocabularies, and writes encoded splits.
    Prints the prepared folder's path; with --json, also the report on the corpus.
    """
    loaded = load_config(config, settings)
    from mt_cli.data.shards import Shard, appended_shard, join_shards
    from mt_cli.runs.opening import runs_trained_on

    if append and (shard or join or sources or offline or force):
        raise UsageError("--append does not go with --shard, --join, --from, --offline or --force")
    if join and (shard or sources or offline or workers):
        raise UsageError("--join does not go with --shard, --from, --offline or --workers")
    folder = prepared_dir(config)
    part = None if shard is None else Shard.parse(shard)
    new = appended_shard(loaded, folder) if append else None
    if new is not None:
        _prepare(loaded, folder, new, workers=workers)
    if append or join:
        needed_by = runs_trained_on(folder)
        report, is_new = join_shards(loaded, folder, force=force, needed_by=needed_by)
    else:
        report, is_new = _prepare(
            loaded,
            folder,
            part,
            sources=sources or (),
            offline=offline,
            force=force,
            workers=workers,
        )
        folder = folder if part is None else folder / part.name
    for terms in loaded.data.terms if is_new else ():
        log.info("%s", terms)
    if not is_new:
        words: list[object] = ["--join"] if append or join else []
        for source in sources or ():
            words += ["--from", source]
        if shard is not None:
            words += ["--shard", shard]
        again = prepare_command(config, settings, *words, "--force")
        log.info("%s: nothing has changed; to prepare it anyway, run: %s", folder, again)
    print_result(folder, {"folder": folder, "is_new": is_new, "report": report}, as_json=as_json)


def _prepare(
    config: Config,
    folder: Path,
    shard: "Shard | AppendedShard | None",
    *,
    sources: Sequence[Path] = (),
    offline: bool = False,
    force: bool = False,
    workers: int,
) -> "tuple[CorpusReport, bool]":
    """Prepare the corpus of `config`, or a `shard`, with the runs that the config names."""
    from mt_cli.data.prepare import Inputs, prepare_corpus
    from mt_cli.runs.opening import run_with_tokenizer, runs_trained_on

    def make_pairs() -> "MadeFiles":
        if not any(more.translate_with for more in config.data.more.values()):
            return {}
        from mt_cli.translation import back_translation  # imports torch

        return back_translation.make_pairs(config, sources=sources, offline=offline)

    parent = run_with_tokenizer(config)
    tokenizers = None if parent is None else parent.tokenizers
    inputs = Inputs(config, tokenizers, shard, sources, offline, make_pairs)
    needed_by = runs_trained_on(folder)
    if shard is not None:
        folder /= shard.name
        needed_by += runs_trained_on(folder)
    return prepare_corpus(inputs, folder, force=force, workers=workers, needed_by=needed_by)
