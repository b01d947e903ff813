"""`train`: from a config and prepared data to a run folder with a best and a last checkpoint.

Checks that config, data and run fit together before slow work begins.
"""

import json
import logging
import math
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Literal

import torch

from mt_cli import __version__
from mt_cli.config.load import RUN_CONFIG, command_line, differences
from mt_cli.config.schema import Config, ModelConfig, Precision
from mt_cli.data.prepared import Prepared, open_prepared
from mt_cli.data.shards import unprepared_files
from mt_cli.errors import ResourceError, UsageError
from mt_cli.evaluation.model_card import write_card
from mt_cli.machine.device import (
    DTYPES,
    Runtime,
    choose_runtime,
    describe_checkout,
    describe_machine,
    set_up_process,
)
from mt_cli.machine.files import MANIFEST
from mt_cli.machine.locks import locked
from mt_cli.machine.process import StopSignals
from mt_cli.machine.terminal import logged_to
from mt_cli.model.model import TranslationModel
from mt_cli.runs.opening import open_run
from mt_cli.runs.run import LOG, Run, check_place, create_run
from mt_cli.text import SPECIALS, UNK_ID
from mt_cli.training.distributed import World, joined_world
from mt_cli.training.other_runs import fitting_parent, load_parent, references_to_teachers
from mt_cli.training.session import Session
from mt_cli.training.trackers import import_tracker

log = logging.getLogger(__name__)

FIXED_KEYS = (
    "data.",
    "tokenizer.",
    "model.",
    "decoding.",
    "training.tokens_per_batch",
    "training.accumulation",
    "training.optimizer",
    "training.best_by",
    "training.distil_from",
    "runtime.seed",
)
"""Keys that must not change on a resume: model, data order, optimizer, teachers, and how the best
checkpoint is chosen.
"""

Start = Literal["new", "resume", "auto_resume", "overwrite"]
"""Create a run; continue one; continue it if it exists, else create it; or replace it."""


def train_run(
    config: Config,
    *,
    run_dir: Path,
    prepared_dir: Path,
    start: Start = "new",
    validates_at_limit: bool = True,
    time_limit_s: float | None = None,
    config_path: Path | None = None,
) -> Run | None:
    """Train a model by `config` on the data in `prepared_dir`; write the run to `run_dir`.

    With `validates_at_limit`, the model is validated when the time limit is reached. `config_path`
    is the config's file, for the log.

    Returns the run, whose status.json says how training ended: `finished`, `early_stop` or
    `time_limit`. With several processes (torchrun), all but the first return None.

    Raises:
        UsageError: a new run already exists, or one to resume does not; or the model is neither
            that of `training.init_from` nor one with fewer layers.
        DataError: the data is not prepared, or not for this `config`. DivergedError: the loss is
            far above guessing, or something is not finite. StoppedError: a signal came; the state
            is saved. ResourceError: out of memory, another process died, or the package for
            `runtime.track` is not installed.
    """
    began_at = time.monotonic()
    import_tracker(config.runtime.track)  # fail before anything is written
    with joined_world() as world, ExitStack() as stack:
        if not world.is_first:
            logging.getLogger("mt_cli").setLevel(logging.ERROR)  # the first process reports
        runtime = _set_up(config, world, continues=run_dir if "resume" in start else None)
        prepared = world.after_first(
            lambda: open_prepared(prepared_dir, config),
            lambda: open_prepared(prepared_dir, config, verify=False),
        )
        if world.is_first:
            _warn_of_changed_files(config, prepared, config_path)
        environment = {
            "mt_cli": __version__,
            **describe_checkout(),
            **describe_machine(runtime),
            "processes": world.size,
        }
        signals = stack.enter_context(StopSignals())  # in all processes; the first one reacts
        run = world.after_first(
            lambda: _open_or_create(
                run_dir, config, prepared, environment, start=start, stack=stack
            ),
            lambda: open_run(run_dir),
        )
        if world.is_first:
            stack.enter_context(logged_to(run.folder / LOG))
            stack.callback(write_card, run)
        if time_limit_s is not None:
            time_limit_s -= time.monotonic() - began_at
        session = Session(
            replace(run, config=config),  # a resumed run may continue with another config
            prepared,
            runtime,
            world,
            environment=environment,
            time_limit_s=time_limit_s,
            validates_at_limit=validates_at_limit,
        )
        if run.manifest.init_from is not None and not run.checkpoints:
            load_parent(run, session.model)
        if world.is_first:
            session.run(signals, config_path=config_path or run.folder / RUN_CONFIG)
            return run
        session.loop(signals)
        return None


def _warn_of_changed_files(config: Config, prepared: Prepared, config_path: Path | None) -> None:
    changed = unprepared_files(prepared, config)
    if changed:
        shard = ["--append"] if prepared.manifest.shards else []
        log.warning(
            "training on the text as prepared, but these files are new or have changed since: %s; "
            "to use them, run: %s",
            ", ".join(map(str, changed)),
            command_line("prepare", config_path or "CONFIG", *shard),
        )


def _open_or_create(
    run_dir: Path,
    config: Config,
    prepared: Prepared,
    environment: Mapping[str, object],
    *,
    start: Start,
    stack: ExitStack,
) -> Run:
    """The run to train; `stack` holds its lock from now on."""

    def continues() -> bool:
        return start == "resume" or (start == "auto_resume" and (run_dir / MANIFEST).exists())

    if start == "resume":
        open_run(run_dir)  # fails before locking if there is no run
    elif not continues():
        check_place(run_dir, overwrite=start == "overwrite")
    stack.enter_context(locked(run_dir))
    if continues():  # another process may have created it meanwhile
        return _resumed_run(run_dir, config, prepared)
    parent = None
    if config.training.init_from is not None:
        parent = fitting_parent(config.training.init_from, config, prepared, run_dir=run_dir)
    return create_run(
        run_dir,
        config,
        prepared=prepared,
        environment=environment,
        init_from=parent,
        distil_from=references_to_teachers(config, prepared, run_dir=run_dir),
        overwrite=start == "overwrite",
    )


def _set_up(config: Config, world: World, *, continues: Path | None) -> Runtime:
    """Set up this process; all processes compute in the precision of the first.

    `continues` is the run to resume, which keeps the precision that was chosen for it.
    """
    wanted = config.runtime
    set_up_process(threads=wanted.threads)
    runtime = choose_runtime(device=wanted.device, precision=wanted.precision, graphs=wanted.graphs)
    if runtime.device.type == "mps":  # PyTorch's fused Adam does not skip non-finite updates there
        raise ResourceError("training does not run on Apple GPUs; use --device cpu")
    precision = runtime.precision
    if runtime.device.type == "cpu" and wanted.precision == "auto" and precision == "bf16":
        precision = _chosen_before(continues) or fastest_precision(
            config.model, tokens_per_batch=config.training.tokens_per_batch
        )
    precisions = list(DTYPES)
    number = world.broadcast_int(precisions.index(precision))
    return replace(runtime, precision=precisions[number])


def _chosen_before(run_dir: Path | None) -> Precision | None:
    """The precision in which the run in `run_dir`, if any, was last trained on a CPU."""
    if run_dir is None or not (run_dir / MANIFEST).exists():
        return None
    facts = open_run(run_dir).latest_environment()
    chosen = facts.get("precision") if facts.get("device") == "cpu" else None
    return next((precision for precision in DTYPES if precision == chosen), None)


BF16_GAIN = 1.15
"""Minimum speed-up of bf16 over fp32 on a CPU that is worth the rounding."""
TRIED_WIDTH = 32
TRIED_TOKENS = 2048
"""Maximum tokens in the trial. With a quarter of them, bf16 gains half as much as in training."""


def fastest_precision(config: ModelConfig, *, tokens_per_batch: int) -> Precision:
    """The precision in which this CPU trains layers of `config` fastest, by a short trial.

    The processor's features do not tell: with bf16 vectors but no matrix unit, some CPUs train 1.5
    times as fast as in fp32, others only two thirds as fast.
    """
    one_layer = config.model_copy(update={"encoder_layers": 1, "decoder_layers": 1, "tie": "none"})
    width = min(TRIED_WIDTH, config.max_len)
    rows = max(1, min(tokens_per_batch, TRIED_TOKENS) // width)
    ids = torch.full((rows, width), UNK_ID)
    models = {}
    for precision in ("fp32", "bf16"):
        model = TranslationModel(
            one_layer, len(SPECIALS), len(SPECIALS), generator=torch.Generator()
        )
        models[precision] = model.compute_in(DTYPES[precision]).train()
    seconds = dict.fromkeys(models, math.inf)
    for _ in range(4):  # the first time prepares kernels
        for precision, model in models.items():
            began_at = time.perf_counter()
            torch.autograd.backward(model.hidden(ids, ids).sum())
            seconds[precision] = min(seconds[precision], time.perf_counter() - began_at)
    log.debug("forward and backward of one layer: %s", seconds)
    return "bf16" if seconds["fp32"] > BF16_GAIN * seconds["bf16"] else "fp32"


def _resumed_run(run_dir: Path, config: Config, prepared: Prepared) -> Run:
    """The run to resume; the caller holds its lock."""
    run = open_run(run_dir)
    if not prepared.continues(run.manifest.prepared.sha256):
        raise UsageError(f"{run_dir}: the data in {prepared.folder} have changed; train again")
    if run.manifest.prepared.sha256 != prepared.sha256:
        log.warning("%s: continuing with the shards that were appended to its data", run_dir)
    changed = differences(run.config, config)
    changed.pop("training.init_from", None)  # irrelevant once the run has begun
    fixed = [
        f"{path} = {json.dumps(was)}, now {json.dumps(now)}"
        for path, (was, now) in changed.items()
        if path.startswith(FIXED_KEYS)
    ]
    if fixed:
        raise UsageError(
            f"{run_dir} was started with {'; '.join(fixed)}; change it back, or train again"
        )
    if config.runtime.precision == "auto":  # "auto" keeps the run's precision
        changed.pop("runtime.precision", None)
    if changed:
        log.warning("%s: continuing with a changed value of %s", run_dir, ", ".join(changed))
    return run
