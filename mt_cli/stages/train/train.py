"""The `train` command: from a config and prepared data to a run folder with a best and a last checkpoint.

Checks that config, data and run fit together before anything slow begins.
"""

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path

from mt_cli import __version__
from mt_cli.artefacts.files import open_to_append
from mt_cli.artefacts.prepared import Prepared, check_prepared_for, open_prepared
from mt_cli.artefacts.run import Run, check_model_fits, open_run
from mt_cli.artefacts.run_creation import created_run, remove_abandoned
from mt_cli.artefacts.run_facts import STATUS, read_facts
from mt_cli.artefacts.run_manifest import PreparedReference
from mt_cli.config import RUN_CONFIG, Config, differences
from mt_cli.errors import MtCliError, UsageError
from mt_cli.machine.checkout import describe_checkout
from mt_cli.machine.device import (
    Runtime,
    describe_machine,
    memory_errors_explained,
    memory_of,
    set_up_runtime,
)
from mt_cli.machine.log_file import LogFile
from mt_cli.machine.signals import StopSignals
from mt_cli.machine.world import World, joined_world
from mt_cli.stages.model_card import write_card
from mt_cli.stages.train.parent import fitting_parent
from mt_cli.stages.train.result import TrainResult
from mt_cli.stages.train.session import Session
from mt_cli.stages.train.tensorboard import check_installed

log = logging.getLogger(__name__)

FIXED = (
    "data.", "tokenizer.", "model.", "decoding.",
    "training.tokens_per_batch", "training.accumulation", "training.optimizer", "training.best_by",
    "runtime.seed",
)  # fmt: skip
"""What a run keeps from its first step: model, order of data, kind of optimiser, and what is best by."""
STARTING: Mapping[str, object] = {"state": "starting", "step": 0}
"""Status of a run until its first update begins."""


def train_run(
    config: Config,
    *,
    run_dir: Path,
    prepared_dir: Path,
    resume: bool = False,
    overwrite: bool = False,
    init_from: Path | None = None,
    time_limit_s: float | None = None,
    config_path: Path | None = None,
    has_tensorboard: bool = False,
) -> TrainResult | None:
    """Train `config`'s model on `prepared_dir` into `run_dir`; `resume` goes on where a run stopped.

    With `init_from`, a run folder, the model begins with that run's best weights.
    `config_path` is where `config` was read, for the log. `has_tensorboard` also writes event files.

    Where torchrun has started several processes they train together; all but the first give None.

    Raises:
        UsageError: the run exists and neither `resume` nor `overwrite` is set, or `resume` finds none; or the
            model is neither that of `init_from` nor one with fewer layers.
        DataError: the data are not prepared, or not as `config` wants them.
        DivergedError: the loss is no number any more.
        StoppedError: a signal came; the state is saved.
        ResourceError: out of memory, another process is gone, or TensorBoard is not installed.
    """
    started_at = time.monotonic()
    if has_tensorboard:
        check_installed()
    with joined_world() as world, ExitStack() as stack:
        if not world.is_first:
            stack.enter_context(_log_level(logging.ERROR))  # the first one tells what happens
        runtime = set_up_runtime(
            device=config.runtime.device, precision=config.runtime.precision, threads=config.runtime.threads
        )
        prepared = open_prepared(prepared_dir)
        check_prepared_for(prepared, config)
        memory = memory_of(runtime.device)
        check_model_fits(config.model, prepared.tokenizers, memory=memory)  # before an old run makes room
        environment = _environment(runtime, world)
        signals = stack.enter_context(StopSignals())  # of all processes, for the first to answer

        begun = _run_to_train(
            run_dir, config, prepared, environment, resume=resume, overwrite=overwrite, init_from=init_from
        )
        run = world.after_first(lambda: stack.enter_context(begun), lambda: open_run(run_dir))
        stack.enter_context(memory_errors_explained("lower training.tokens_per_batch"))
        session = Session(
            run,
            config,
            prepared,
            runtime,
            world,
            environment=environment,
            config_path=config_path or run.folder / RUN_CONFIG,
            started_at=started_at,
            time_limit_s=time_limit_s,
            has_tensorboard=has_tensorboard and world.is_first,
        )
        if world.is_first:
            return session.run(signals)
        session.follow()
        return None


@contextmanager
def _run_to_train(
    run_dir: Path,
    config: Config,
    prepared: Prepared,
    environment: Mapping[str, object],
    *,
    resume: bool,
    overwrite: bool,
    init_from: Path | None,
) -> Iterator[Run]:
    """The run that is resumed or begun; while the block lasts, it is locked and its log is written."""
    with ExitStack() as stack:
        if resume:
            stack.enter_context(open_run(run_dir).locked())
            run = _reopen(run_dir, config, prepared)  # now that nobody can replace it
            run.remove_leftovers()
            remove_abandoned(run.folder)
        else:
            parent = None
            if init_from is not None:
                parent = fitting_parent(init_from, config, prepared, run_dir=run_dir)
            new = created_run(
                run_dir,
                config,
                tokenizer_files=prepared.tokenizers.to_files(),
                prepared=PreparedReference(str(prepared.folder), prepared.sha256),
                environment=environment,
                init_from=parent,
                overwrite=overwrite,
            )
            run = stack.enter_context(new)
            run.write_status(STARTING)
        stack.enter_context(_logging_to(run.log_path))
        stack.enter_context(_end_described(run))
        yield run


def _environment(runtime: Runtime, world: World) -> dict[str, object]:
    """By which code and on what machine it is trained."""
    return {
        "mt_cli": __version__,
        **describe_checkout(),
        **describe_machine(runtime),
        "processes": world.size,
    }


def _reopen(run_dir: Path, config: Config, prepared: Prepared) -> Run:
    run = open_run(run_dir)
    if run.prepared.sha256 != prepared.sha256:
        raise UsageError(f"{run_dir} was trained on other data than {prepared.folder} holds now; train anew")
    changed = differences(run.config, config)
    fixed = [path for path in changed if path.startswith(FIXED)]
    if fixed:
        raise UsageError(
            f"{run_dir} began with another {', '.join(fixed)}; --resume needs the same, or train anew"
        )
    if changed:
        log.warning("%s goes on with another %s than it began with", run_dir, ", ".join(changed))
    return run


@contextmanager
def _end_described(run: Run) -> Iterator[None]:
    """Once the block ends, write the run's model card; and its status, if it failed before training began.

    What fails then is left: the error that comes first is the one to tell.
    """
    try:
        yield
    except BaseException:
        with suppress(MtCliError, OSError):
            if read_facts(run.folder, STATUS).get("state") == STARTING["state"]:
                run.write_status({**STARTING, "state": "failed"})
            write_card(run, tells_failure=False)
        raise
    write_card(run)


@contextmanager
def _log_level(level: int) -> Iterator[logging.Logger]:
    """The package's logger, at `level` for as long as the block lasts."""
    package = logging.getLogger("mt_cli")
    previous = package.level
    package.setLevel(level)
    try:
        yield package
    finally:
        package.setLevel(previous)


class _RunLog(LogFile):
    """Writes to the end of a real file, never through a link."""

    def _open(self) -> TextIOWrapper:
        return TextIOWrapper(open_to_append(Path(self.baseFilename)), encoding="utf-8")


@contextmanager
def _logging_to(path: Path) -> Iterator[None]:
    """Copy everything that is logged, debug lines too, to the end of `path`."""
    handler = _RunLog(path)
    with _log_level(logging.DEBUG) as package:
        package.addHandler(handler)
        try:
            yield
        finally:
            package.removeHandler(handler)
            handler.close()
