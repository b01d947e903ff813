"""`mt-cli prepare`."""

import logging
from pathlib import Path
from typing import Annotated

import typer

from mt_cli.commands.flags import ConfigPath, Json, Quiet, Settings, Verbose, prepare_command, prepared_dir
from mt_cli.commands.terminal import exit_codes, print_result, set_up_logging
from mt_cli.config import load_config

log = logging.getLogger(__name__)


@exit_codes
def prepare(
    config: ConfigPath,
    source: Annotated[
        Path | None, typer.Option("--from", metavar="DIR", help="Folder that holds the corpus files already.")
    ] = None,
    offline: Annotated[bool, typer.Option("--offline", help="Use no network.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Prepare again though nothing has changed.")] = False,
    workers: Annotated[
        int, typer.Option("--workers", min=0, help="Processes, 16 at most; 0 chooses by size.")
    ] = 0,
    settings: Settings = None,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Encode a corpus, and build its vocabularies.

    Gets it, cleans and tokenises it, builds vocabularies and writes encoded splits.
    """
    set_up_logging(is_quiet=quiet, is_verbose=verbose)
    loaded = load_config(config, settings or ())
    from mt_cli.stages.prepare.prepare import prepare_corpus

    result = prepare_corpus(
        loaded,
        out=prepared_dir(config),
        source=source,
        offline=offline,
        force=force,
        workers=workers,
    )
    if not result.is_new:
        again = prepare_command(config, settings, *(() if source is None else ("--from", source)), "--force")
        log.info("%s: nothing has changed; to prepare it again: %s", result.folder, again)
    document = {
        "folder": str(result.folder),
        "is_new": result.is_new,
        "report": result.report.as_json(),
    }
    print_result(result.folder, document, as_json=as_json)
