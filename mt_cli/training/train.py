"""`train`: from a config and prepared data to a run folder with a best and a last checkpoint.

Checks that config, data and run fit together before anything slow begins.
"""

import json
import logging
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from torch import Tensor, nn

from mt_cli import __version__
from mt_cli.config.load import RUN_CONFIG, differences
from mt_cli.config.schema import Config
from mt_cli.data.prepared import Prepared, open_prepared
from mt_cli.errors import DataError, Option, ResourceError, UsageError, command_line
from mt_cli.evaluation.card import write_card
from mt_cli.machine.device import (
    DTYPES,
    check_fits_memory,
    choose_runtime,
    describe_machine,
    memory_errors_explained,
    set_up_process,
)
from mt_cli.machine.files import MANIFEST, locked, sha256_bytes
from mt_cli.machine.processes import StopSignals, describe_checkout
from mt_cli.machine.terminal import logged_to
from mt_cli.runs.checkpoint import read_weights, weights_sha256
from mt_cli.runs.run import (
    LOG,
    TOKENIZER,
    ParentReference,
    Run,
    check_place,
    create_run,
    model_shapes,
    num_parameters,
    open_run,
)
from mt_cli.training.distributed import joined_world
from mt_cli.training.session import Session
from mt_cli.training.track import check_tracker

log = logging.getLogger(__name__)

FIXED = (
    "data.", "tokenizer.", "model.", "decoding.",
    "training.tokens_per_batch", "training.accumulation", "training.optimizer", "training.best_by",
    "runtime.seed",
)  # fmt: skip
"""What a run keeps from its first step: model, order of data, kind of optimiser, and what is best
by.
"""
FREE = ("backend", "dropout", "attention_dropout", "activation_dropout", "init")
"""Keys of [model] that say nothing of what trained weights compute."""


def train_run(
    config: Config,
    *,
    run_dir: Path,
    prepared_dir: Path,
    resume: bool = False,
    auto_resume: bool = False,
    overwrite: bool = False,
    validates_at_limit: bool = True,
    time_limit_s: float | None = None,
    config_path: Path | None = None,
) -> Run | None:
    """Train `config`'s model on `prepared_dir` into `run_dir`.

    `resume` goes on where a run stopped; `auto_resume` does so if the run exists, and starts it
    otherwise. Where a time limit ends training, the model is validated if `validates_at_limit`.
    `config_path` is where `config` was read, for the log.

    Gives the run, whose status.json says how training ended: `finished`, `early_stop` or
    `time_limit`. Where torchrun has started several processes they train together; all but the
    first give None.

    Raises:
        UsageError: the run exists and neither `resume` nor `overwrite` is set, or `resume` finds
            none; or the model is neither that of `training.init_from` nor one with fewer layers.
        DataError: the data are not prepared, or not as `config` wants them. DivergedError: the loss
            is NaN or infinite. StoppedError: a signal came; the state is saved. ResourceError: out
            of memory, another process is gone, or what `runtime.track` names is not installed.
    """
    started_at = time.monotonic()
    check_tracker(config.runtime.track)
    with joined_world() as world, ExitStack() as stack:
        if not world.is_first:
            logging.getLogger("mt_cli").setLevel(logging.ERROR)  # the first one tells what happens
        set_up_process(threads=config.runtime.threads)
        asked = config.runtime
        own = choose_runtime(device=asked.device, precision=asked.precision, graphs=asked.graphs)
        if (
            own.device.type == "mps"
        ):  # PyTorch's Adam would let an update through that is not finite
            raise ResourceError(
                "an Apple GPU translates, but does not train; use ", Option("device", "cpu")
            )
        precisions = list(DTYPES)
        runtime = replace(own, precision=precisions[world.told(precisions.index(own.precision))])
        prepared = world.after_first(
            lambda: open_prepared(prepared_dir, config),
            lambda: open_prepared(prepared_dir, config, verify=False),
        )
        size = num_parameters(model_shapes(config.model, prepared.tokenizers))
        check_fits_memory(
            size, device=runtime.device, is_trained=True
        )  # before an old run makes room
        environment = {
            "mt_cli": __version__,
            **describe_checkout(),
            **describe_machine(runtime),
            "processes": world.size,
        }
        signals = stack.enter_context(StopSignals())  # of all processes, for the first to answer

        def begin() -> Run:
            if resume:
                open_run(run_dir)  # or nothing there is worth a lock
            elif not (auto_resume and (run_dir / MANIFEST).exists()):
                check_place(run_dir, overwrite=overwrite)
            stack.enter_context(locked(run_dir))
            if resume or (auto_resume and (run_dir / MANIFEST).exists()):
                return _resumed_run(run_dir, config, prepared)
            folder = config.training.init_from
            parent = (
                None
                if folder is None
                else fitting_parent(folder, config, prepared, run_dir=run_dir)
            )
            return create_run(
                run_dir,
                config,
                prepared=prepared,
                environment=environment,
                init_from=parent,
                overwrite=overwrite,
            )

        run = world.after_first(begin, lambda: open_run(run_dir))
        if world.is_first:
            stack.enter_context(logged_to(run.folder / LOG))
            stack.callback(write_card, run)
        stack.enter_context(memory_errors_explained("lower training.tokens_per_batch"))
        session = Session(
            replace(run, config=config),  # the run goes on with it
            prepared,
            runtime,
            world,
            environment=environment,
            started_at=started_at,
            time_limit_s=time_limit_s,
            validates_at_limit=validates_at_limit,
        )
        if run.init_from is not None and not run.checkpoints:
            load_parent(run, session.model)
        if world.is_first:
            session.run(signals, config_path=config_path or run.folder / RUN_CONFIG)
            return run
        session.loop(signals)
        return None


def _resumed_run(run_dir: Path, config: Config, prepared: Prepared) -> Run:
    """The run that goes on, whose lock the caller holds."""
    run = open_run(run_dir)
    if run.prepared.sha256 != prepared.sha256:
        raise UsageError(
            f"{run_dir} was trained on other data than {prepared.folder} holds now; train anew"
        )
    changed = differences(run.config, config)
    changed.pop("training.init_from", None)  # the run has begun
    fixed = [
        f"{path} = {json.dumps(was)}, now {json.dumps(now)}"
        for path, (was, now) in changed.items()
        if path.startswith(FIXED)
    ]
    if fixed:
        raise UsageError(
            f"{run_dir} was started with {'; '.join(fixed)}; --resume needs the same, or train anew"
        )
    if changed:
        log.warning(
            "%s goes on with another %s than it was started with", run_dir, ", ".join(changed)
        )
    return run


# A run that starts with another's weights


def fitting_parent(
    folder: Path, config: Config, prepared: Prepared, *, run_dir: Path
) -> ParentReference:
    """The best checkpoint of the run in `folder`, if a new run in `run_dir` can start with it.

    Raises:
        UsageError: it has another tokenizer, or a model that differs in more than having more
            layers, or is the run that is to be replaced.
        DataError: it is damaged.
    """
    if folder.resolve() == run_dir.resolve():
        raise UsageError(
            f"{folder}: a run cannot start with the one that it replaces; add --run DIR"
        )
    parent = open_run(folder)
    tokenizers = prepared.tokenizers
    there = parent.config.model
    different = [
        f"model.{key} is {json.dumps(wanted)}, there {json.dumps(found)}"
        for (key, wanted), (_, found) in zip(config.model, there, strict=True)
        if wanted != found and key not in FREE and not (key.endswith("_layers") and wanted < found)
    ]
    if different:
        raise UsageError(
            f"{folder} has another model: {'; '.join(different)}; give the config the same keys, "
            f"as {command_line('config', 'new', '--init-from', folder)} does; only encoder_layers "
            "and decoder_layers may be lower"
        )
    options = replace(parent.tokenizers.options, lowercase=tokenizers.options.lowercase)
    files = replace(tokenizers, options=options).to_files()  # of other languages, perhaps
    if {
        f"{TOKENIZER}{name}": sha256_bytes(data) for name, data in files.items()
    } != parent.tokenizer_hashes:
        raise UsageError(
            f"{prepared.folder} was prepared with another tokenizer than that of {folder}; "
            f'write from_run = "{folder}" into the config\'s [tokenizer], then prepare it again'
        )
    checkpoint = parent.checkpoint_folder("best")
    weights = weights_sha256(checkpoint)
    return ParentReference(
        str(folder), checkpoint.name, weights, there.encoder_layers, there.decoder_layers
    )


def load_parent(run: Run, model: nn.Module) -> None:
    """Fill `model` with the weights that `run` started with; from a deeper model, some layers'.

    Raises:
        DataError: they are not there any more, or not the same.
    """
    reference, own = run.init_from, run.config.model
    assert reference is not None
    remedy = f"{run.folder} starts with them: put that right, or train anew with --init-from"
    try:
        parent = open_run(Path(reference.folder))
        checkpoint = parent.checkpoint_folder(reference.checkpoint)
        digest, weights = (
            weights_sha256(checkpoint),
            read_weights(checkpoint, parent.parameter_shapes),
        )
    except (DataError, UsageError) as error:
        raise DataError(f"{error}; {remedy}") from error
    if digest != reference.sha256:
        raise DataError(f"{checkpoint}: not the weights that this run started with; {remedy}")
    depths = {
        "encoder": parent.config.model.encoder_layers,
        "decoder": parent.config.model.decoder_layers,
    }
    kept = {
        stack: kept_layers(depth, getattr(own, f"{stack}_layers"))
        for stack, depth in depths.items()
    }
    taken = weights_of_layers(weights, kept, names=run.parameter_shapes)
    model.load_state_dict(taken, strict=False)  # it has no names for tied ones
    layers = [
        f"; {stack} layers {', '.join(str(layer + 1) for layer in kept[stack])} of {depth}"
        for stack, depth in depths.items()
        if len(kept[stack]) < depth
    ]
    log.info("started with %s, %s%s", reference.folder, reference.checkpoint, "".join(layers))


def kept_layers(num_layers: int, num_kept: int) -> list[int]:
    """Which of `num_layers` layers, from 0, a model with `num_kept` takes over (Shleifer and Rush
    2020).

    The first and the last, and others evenly between them; where one is kept, the first.
    """
    if num_kept == 1:
        return [0]
    return [round(i * (num_layers - 1) / (num_kept - 1)) for i in range(num_kept)]


def weights_of_layers(
    weights: Mapping[str, Tensor], kept: Mapping[str, Sequence[int]], *, names: Iterable[str]
) -> dict[str, Tensor]:
    """The `weights` of a deeper model for the parameters `names` of one that has only its `kept`
    layers.
    """

    def name_there(name: str) -> str:
        return re.sub(
            r"^backend\.(\w+)\.layers\.(\d+)",
            lambda m: f"backend.{m[1]}.layers.{kept[m[1]][int(m[2])]}",
            name,
        )

    return {name: weights[name_there(name)] for name in names}
