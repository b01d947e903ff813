"""`mt-cli train`."""

import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mt_cli.cli.app import app, command
from mt_cli.cli.flags import (
    TRAINING_FLAGS,
    ConfigPath,
    prepare_command,
    prepared_dir,
    setting_flags,
)
from mt_cli.config.load import RUN_CONFIG, command_line, config_name, is_run, load_config
from mt_cli.errors import DataError, PreparedDataError, StoppedError, UsageError
from mt_cli.machine.terminal import print_result

if TYPE_CHECKING:  # torch is imported only when something is trained
    from mt_cli.training.train import Start

log = logging.getLogger(__name__)


@command(
    app,
    "train configs/sample.toml",
    "train configs/sample.toml --run runs/big --set model.d_model=512",
    "train configs/sample.toml --resume --time-limit 10m",
    flags=TRAINING_FLAGS,
)
def train(
    config: ConfigPath,
    settings: list[str],
    as_json: bool,
    run: Annotated[
        Path | None,
        typer.Option("--run", metavar="DIR", help="Run folder; default: runs/<config name>."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data", metavar="DIR", help="Prepared folder; default: data/prepared/<config name>."
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an existing run.")] = False,
    auto_resume: Annotated[
        bool,
        typer.Option("--auto-resume", help="Continue the run if it exists, else start it."),
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an existing run.")
    ] = False,
    time_limit: Annotated[
        str | None,
        typer.Option(
            "--time-limit",
            metavar="TIME",
            help="Save and stop after this time: 90 (seconds), 10m, 1h30m or 00:10:00.",
        ),
    ] = None,
    validate: Annotated[
        bool,
        typer.Option(
            "--validate/--no-validate", help="Score the model when --time-limit ends training."
        ),
    ] = True,
) -> None:
    """Train a model on prepared data.

    Keeps the best and the last checkpoint; --resume continues from the last. --auto-resume is for
    job systems such as torchrun or SLURM, which restart the same command after a failure.
    --init-from starts from another run's weights, on other data (mt-cli config new --init-from
    writes a config for that) or with fewer layers. Prints the run folder's path; with --json, also
    how training ended.
    """
    start = _start(settings, resume=resume, auto_resume=auto_resume, overwrite=overwrite)
    if not validate and time_limit is None:
        raise UsageError("--no-validate works only with --time-limit; add it")
    time_limit_s = None if time_limit is None else parse_duration(time_limit)
    loaded = load_config(config, settings)
    from mt_cli.data.prepared import SHARD, shards_in
    from mt_cli.runs.opening import open_run
    from mt_cli.training.train import train_run

    own_run = config.parent if config.name == RUN_CONFIG else config
    if (resume or auto_resume) and run is None and is_run(own_run):
        run = own_run  # the run folder given as CONFIG, wherever it is
        data = data or Path(open_run(run).manifest.prepared.folder)
        if not data.exists():
            raise DataError(f"{data}: no such folder, but {run} needs its data; use --data DIR")
    words = setting_flags([each for each in settings if not each.startswith("training.init_from=")])
    for flag, value in (("--run", run), ("--data", data), ("--time-limit", time_limit)):
        if value is not None:
            words += [flag, str(value)]
    again = command_line(
        "train", config, *words, *([] if validate else ["--no-validate"]), "--resume"
    )
    try:
        trained = train_run(
            loaded,
            run_dir=run or Path("runs") / config_name(config),
            prepared_dir=data or prepared_dir(config),
            start=start,
            validates_at_limit=validate,
            time_limit_s=time_limit_s,
            config_path=config,
        )
    except PreparedDataError as error:
        flags = ["--join"] if shards_in(data or prepared_dir(config)) else []
        shard = SHARD.fullmatch(error.folder.name)
        if shard is not None and shard[2] is not None:
            flags = ["--shard", "/".join(shard.groups())]
        hint = f"{error}; run: {prepare_command(config, settings, *flags)}"
        if data is not None and data != prepared_dir(config):
            hint += f", then replace {data} with the new {prepared_dir(config)}"
        raise DataError(hint) from error
    except StoppedError as error:
        raise StoppedError(f"{error}: {again}", signal_number=error.signal_number) from error
    if trained is None:
        return  # with several processes, only the first one reports
    document = {"folder": trained.folder, **trained.status().model_dump(exclude_unset=True)}
    if document["state"] == "time_limit":
        log.info("to continue: %s", again)
    else:
        log.info("next: %s", command_line("evaluate", trained.folder))
        log.info("      %s", command_line("translate", trained.folder, "-i", "FILE"))
    print_result(trained.folder, document, as_json=as_json)


def _start(settings: Sequence[str], *, resume: bool, auto_resume: bool, overwrite: bool) -> "Start":
    """How training starts, after checking that the flags do not contradict each other."""
    if (resume or auto_resume) and overwrite:
        raise UsageError("--resume continues a run, --overwrite replaces it; use only one of them")
    if not resume:
        return "auto_resume" if auto_resume else "overwrite" if overwrite else "new"
    if any(each.startswith("training.init_from=") for each in settings):
        raise UsageError("--resume continues a run, --init-from starts one; use only one of them")
    return "resume"


UNITS = {"d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "": 1.0}
NUMBER = r"\d+(?:\.\d+)?"


def parse_duration(text: str) -> float:
    """The seconds of a duration such as `90`, `90s`, `1h30m`, `2d` or `00:10:00`."""
    total = 0.0
    if clock := re.fullmatch(r"(\d+):([0-5]\d):([0-5]\d)", text.strip()):
        hours, minutes, seconds = map(float, clock.groups())
        total = (hours * 60 + minutes) * 60 + seconds
    elif re.fullmatch(rf"(?:{NUMBER}[dhms])*(?:{NUMBER}[dhms]?)", text.strip()):
        for number, unit in re.findall(rf"({NUMBER})([dhms]?)", text):
            total += float(number) * UNITS[unit]
    if total <= 0:
        raise UsageError(f"--time-limit {text!r}: expected a time such as 90s, 1h30m or 00:10:00")
    return total
