"""`mt-cli train`."""

import json
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mt_cli.cli.app import app, command
from mt_cli.cli.flags import (
    ConfigPath,
    DeviceFlag,
    OutputFlags,
    Settings,
    Threads,
    prepare_command,
    prepared_dir,
    setting_flags,
)
from mt_cli.config.load import RUN_CONFIG, command_line, config_name, is_run, load_config
from mt_cli.config.schema import PrecisionChoice
from mt_cli.errors import DataError, PreparedDataError, StoppedError, UsageError
from mt_cli.machine.terminal import print_result

if TYPE_CHECKING:  # torch is imported when something is trained
    from mt_cli.training.train import Start

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StartFlags:
    """Where training starts."""

    resume: Annotated[bool, typer.Option("--resume", help="Go on with an existing run.")] = False
    auto_resume: Annotated[
        bool,
        typer.Option("--auto-resume", help="Go on with the run if there is one, else start it."),
    ] = False
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing run.")] = False
    init_from: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN", help="Start with another run's best weights (training.init_from)."
        ),
    ] = None

    @property
    def may_resume(self) -> bool:
        """Whether an existing run is continued."""
        return self.resume or self.auto_resume

    def how(self) -> "Start":
        """How `train_run` is to start."""
        if self.resume:
            return "resume"
        if self.auto_resume:
            return "auto_resume"
        return "overwrite" if self.overwrite else "new"

    def check(self) -> None:
        """Refuse flags that contradict each other.

        Raises:
            UsageError: naming them.
        """
        if self.may_resume and self.overwrite:
            raise UsageError(
                "--resume goes on with a run and --overwrite replaces it; give one of them"
            )
        if self.resume and self.init_from is not None:
            raise UsageError(
                "--resume goes on with a run and --init-from starts a new one with another's "
                "weights; give one"
            )


@dataclass(frozen=True)
class LimitFlags:
    """When training ends."""

    max_steps: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Updates after which training ends.")
    ] = None
    time_limit: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Stop, saved, after 90s, 10m, 1h30m or 00:10:00."),
    ] = None
    validate: Annotated[
        bool,
        typer.Option(
            "--validate/--no-validate", help="Where --time-limit ends training, score the model."
        ),
    ] = True


@dataclass(frozen=True)
class RuntimeFlags:
    """How training computes."""

    device: DeviceFlag = None
    seed: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Seed of everything random.")
    ] = None
    threads: Threads = None
    precision: Annotated[
        PrecisionChoice | None,
        typer.Option(
            help="Precision of training; auto takes 16 bits where the device is fast in them."
        ),
    ] = None


@command(
    app,
    "train configs/sample.toml",
    "train configs/sample.toml --run runs/big --set model.d_model=512",
    "train configs/sample.toml --resume --time-limit 10m",
)
def train(
    config: ConfigPath,
    start: StartFlags,
    limits: LimitFlags,
    runtime: RuntimeFlags,
    output: OutputFlags,
    run: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Run folder, by default runs/<config name>.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Prepared folder, by default data/prepared/<config name>."
        ),
    ] = None,
    settings: Settings = None,
) -> None:
    """Train a model on prepared data.

    Its best and its last checkpoint are kept; --resume goes on from the last. --auto-resume is for
    whatever starts the same command again after a failure, such as torchrun or SLURM. --init-from
    starts with another run's weights, on other data (mt-cli config new --init-from writes a config
    for that) or with fewer layers. Prints the run folder's path; with --json, how training ended
    too.
    """
    start.check()
    if not limits.validate and limits.time_limit is None:
        raise UsageError("--no-validate is an option of --time-limit; give that too")
    time_limit_s = None if limits.time_limit is None else parse_duration(limits.time_limit)
    all_settings = [*(settings or ()), *_flag_settings(start, limits, runtime)]
    loaded = load_config(config, all_settings)
    from mt_cli.runs.opening import open_run
    from mt_cli.runs.run import STATUS
    from mt_cli.training.train import train_run

    own_run = config.parent if config.name == RUN_CONFIG else config
    if start.may_resume and run is None and is_run(own_run):
        run = own_run  # the folder that was named, wherever it is
        data = data or Path(open_run(run).prepared.folder)
        if not data.exists():
            raise DataError(
                f"{data}: the data that {run} was trained on are not there; name them with --data"
            )
    words = setting_flags(all_settings)
    for flag, value in (("--run", run), ("--data", data), ("--time-limit", limits.time_limit)):
        if value is not None:
            words += [flag, str(value)]
    if not limits.validate:
        words.append("--no-validate")
    again = command_line("train", config, *words, "--resume")
    try:
        trained = train_run(
            loaded,
            run_dir=run or Path("runs") / config_name(config),
            prepared_dir=data or prepared_dir(config),
            start=start.how(),
            validates_at_limit=limits.validate,
            time_limit_s=time_limit_s,
            config_path=config,
        )
    except PreparedDataError as error:
        raise DataError(f"{error}; run: {_way_to_prepare(config, settings, data)}") from error
    except StoppedError as error:
        raise StoppedError(f"{error}: {again}", signal_number=error.signal_number) from error
    if trained is None:
        return  # of several processes, only the first reports
    document = {"folder": trained.folder, **trained.read_facts(STATUS)}
    if document["state"] == "time_limit":
        log.info("to go on: %s", again)
    else:
        log.info("next: %s", command_line("evaluate", trained.folder))
        log.info("      %s", command_line("translate", trained.folder, "-i", "FILE"))
    print_result(trained.folder, document, as_json=output.as_json)


def _flag_settings(start: StartFlags, limits: LimitFlags, runtime: RuntimeFlags) -> list[str]:
    """The flags that stand for keys of the config, as `--set` takes them."""
    keys = {
        "runtime.device": runtime.device,
        "runtime.seed": runtime.seed,
        "runtime.threads": runtime.threads,
        "runtime.precision": runtime.precision,
        "training.max_steps": limits.max_steps,
        "training.init_from": None if start.init_from is None else str(start.init_from),
    }
    settings = []
    for key, value in keys.items():
        if value is not None:
            settings.append(f"{key}={json.dumps(value, ensure_ascii=False)}")
    return settings


def _way_to_prepare(config: Path, settings: Sequence[str] | None, data: Path | None) -> str:
    """What to do where prepared data are missing, damaged, or of another config."""
    from mt_cli.runs.opening import runs_trained_on

    place = prepared_dir(config)  # where prepare puts them; --data may have named another folder
    if data not in (None, place):
        return f"{prepare_command(config, settings)}, and leave out --data"
    needed_by = runs_trained_on(place)
    if not needed_by:
        return prepare_command(config, settings)
    verb = "lacks" if len(needed_by) == 1 else "lack"
    runs = ", ".join(map(str, needed_by))
    return f"{prepare_command(config, settings, '--force')}, and {runs} {verb} its data then"


UNITS = {"d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "": 1.0}
NUMBER = r"\d+(?:\.\d+)?"


def parse_duration(text: str) -> float:
    """The seconds of a duration such as `90`, `90s`, `1h30m` or `2d`, or of SLURM's `01:30:00`.

    SLURM also writes `10:00` (minutes first) and `1-12:00:00` (days first).
    """
    stripped = text.strip()
    if clock := re.fullmatch(r"(\d+)-(\d+)(?::([0-5]?\d))?(?::([0-5]?\d))?", stripped):
        days, hours, minutes, seconds = (float(part or 0) for part in clock.groups())
        total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    elif clock := re.fullmatch(r"(?:(\d+):)?(\d+):([0-5]?\d)", stripped):
        hours, minutes, seconds = (float(part or 0) for part in clock.groups())
        total = (hours * 60 + minutes) * 60 + seconds
    elif re.fullmatch(rf"(?:{NUMBER}[dhms])*(?:{NUMBER}[dhms]?)", stripped):
        parts = re.findall(rf"({NUMBER})([dhms]?)", stripped)
        total = sum(float(number) * UNITS[unit] for number, unit in parts)
    else:
        raise UsageError(
            f"--time-limit {text!r}: expected a time such as 90s, 10m, 1h30m or 00:10:00"
        )
    if total <= 0:
        raise UsageError(f"--time-limit {text!r}: expected more than no time")
    return total
