"""`mt-cli prepare`."""

import logging
from pathlib import Path
from typing import Annotated

import typer

from mt_cli.cli.app import app, command
from mt_cli.cli.flags import ConfigPath, prepare_command, prepared_dir
from mt_cli.config.load import load_config
from mt_cli.errors import UsageError
from mt_cli.machine.terminal import print_result

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
    from mt_cli.data.corpora import MadeFiles, changed_files
    from mt_cli.data.prepare import Inputs, prepare_corpus
    from mt_cli.data.shards import Shard, appended_shard, first_tokenizers, join_shards
    from mt_cli.runs.opening import run_with_tokenizer, runs_trained_on

    if append and (shard or join or sources or offline or force):
        raise UsageError("--append does not go with --shard, --join, --from, --offline or --force")
    folder = prepared_dir(config)
    needed_by = runs_trained_on(folder)
    part = None if shard is None else Shard.parse(shard)
    if append:
        part = appended_shard(folder)
        join = not changed_files(loaded.data, part.others, since=0)  # no new files
    if join:
        if shard or sources or offline or workers:
            raise UsageError("--join does not go with --shard, --from, --offline or --workers")
        report, is_new = join_shards(loaded, folder, force=force, needed_by=needed_by)
    else:
        parent = run_with_tokenizer(loaded)
        tokenizers = None if parent is None else parent.tokenizers
        if part is not None:
            tokenizers = tokenizers or first_tokenizers(loaded, folder, part)
            folder /= part.name
            needed_by += runs_trained_on(folder)

        def made() -> MadeFiles:
            if not any(more.translate_with for more in loaded.data.more.values()):
                return {}
            from mt_cli.translation.back_translation import make_pairs  # imports torch

            return make_pairs(loaded, sources=sources or (), offline=offline)

        inputs = Inputs(loaded, tokenizers, part, sources or (), offline, made)
        report, is_new = prepare_corpus(
            inputs, folder, force=force, workers=workers, needed_by=needed_by
        )
    if append and not join:
        folder = prepared_dir(config)
        report, is_new = join_shards(loaded, folder, needed_by=needed_by)
    for terms in loaded.data.terms if is_new else ():
        log.info("%s", terms)
    if not is_new:
        words: list[object] = ["--join"] if join else []
        for source in sources or ():
            words += ["--from", source]
        if shard is not None:
            words += ["--shard", shard]
        again = prepare_command(config, settings, *words, "--force")
        log.info("%s: nothing has changed; to prepare it anyway, run: %s", folder, again)
    print_result(folder, {"folder": folder, "is_new": is_new, "report": report}, as_json=as_json)
