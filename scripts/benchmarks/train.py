"""Training speed over the same data with the same model: the classic loop and mt_cli, as a Markdown table.

Each contender makes some updates in turn, round after round; the table shows medians of the rounds.
Before, mt_cli makes one update of every shape that an epoch has: kernels are built for shapes.
mt_cli trains in the precision that users get (auto), and in fp32 where that is another.
"""

import argparse
import shutil
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.contenders import Contender, left_out_if_ended, start
from benchmarks.epoch import describe_epoch, new_shapes_first
from benchmarks.joeynmt import Speed, measure
from benchmarks.machine import machine
from mt_cli.commands.flags import prepared_dir
from mt_cli.config import Backend, Config, Device, Precision, PrecisionChoice, load_config
from mt_cli.machine.workers import usable_cores

if TYPE_CHECKING:
    from torch import Tensor

    from mt_cli.data.split import EncodedSplit
    from mt_cli.machine.device import Runtime
    from mt_cli.model.translation_model import TranslationModel
    from mt_cli.training.trainer import Update

SEED = 1
CLASSIC_BATCH = 128
CLASSIC, ALL = "classic, fp32", "mt_cli, all that the config asks for"
WARM_UP = 2
"""Tasks before the first round: the first update, and one of each other shape."""
PHASES = ("collate", "forward", "backward", "update")


@dataclass(frozen=True)
class Setting:
    """What every contender is given."""

    config: Config
    data: Path
    device: Device
    threads: int


Work = Callable[[int], int]
"""Makes so many updates; gives how many real target tokens they had, `</s>` counted."""


def classic(setting: Setting, precision: Precision) -> Work:
    """As tutorials do it: random pairs, nn.Transformer with its own dropout, a loss over padding too.

    In bf16, its forward pass and loss run under autocast.
    """
    import numpy as np
    import torch
    from torch.nn import functional as F

    from mt_cli.data.batching import collate
    from mt_cli.model import pytorch
    from mt_cli.model.dropout import Dropout
    from mt_cli.text.symbols import PAD_ID

    pytorch._fast_attention = lambda x: nullcontext()  # nn.Transformer as it comes
    split, model, runtime = _prepare(setting, "torch", precision)
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, Dropout):
                setattr(module, name, torch.nn.Dropout(child.p))
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-4)
    rng = np.random.default_rng(1)

    def loss_of(logits: "Tensor", targets: "Tensor") -> "Tensor":
        smoothing = setting.config.training.label_smoothing
        return F.cross_entropy(
            logits.flatten(0, 1), targets.flatten(), ignore_index=PAD_ID, label_smoothing=smoothing
        )

    def work(num_updates: int) -> int:
        model.train()
        tokens = 0
        for _ in range(num_updates):
            batch = collate(split, rng.integers(len(split), size=CLASSIC_BATCH))
            tokens += int((batch.tgt_out != PAD_ID).sum())
            batch = batch.to(runtime.device)
            with runtime.autocast():
                loss = loss_of(model(batch.src_ids, batch.tgt_in), batch.tgt_out)
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
        _wait_for(runtime)
        return tokens

    return work


LIKE_CLASSIC = {"optimizer": "adam", "r_drop": 0.0}
"""What makes a training do no more than the classic loop does."""


def ours(
    setting: Setting, backend: Backend, precision: PrecisionChoice, changes: Mapping[str, object]
) -> Work:
    """The trainer that users get, with `changes` to `[training]`."""
    from mt_cli.training.trainer import Trainer

    class ShapesFirst(Trainer):
        """Trains in another order: first one update of each shape."""

        def _updates(self, *, epoch: int) -> "Iterator[Update]":
            return iter(new_shapes_first(list(super()._updates(epoch=epoch))))

    split, model, runtime = _prepare(setting, backend, precision)
    training = setting.config.training.model_copy(update=changes)
    reports = ShapesFirst(model, split, training, runtime=runtime, seed=SEED).run()

    def work(num_updates: int) -> int:
        tokens = sum(report.tgt_tokens for report in islice(reports, num_updates))
        _wait_for(runtime)
        return tokens

    return work


class Prepared(NamedTuple):
    """What a contender trains, and on what."""

    split: "EncodedSplit"
    model: "TranslationModel"
    runtime: "Runtime"


def _prepare(setting: Setting, backend: Backend, precision: PrecisionChoice) -> Prepared:
    from mt_cli.artefacts.prepared import open_prepared
    from mt_cli.artefacts.run import build_model
    from mt_cli.machine.device import seed_everything, set_up_runtime

    runtime = set_up_runtime(device=setting.device, precision=precision, threads=setting.threads)
    seed_everything(SEED)
    prepared = open_prepared(setting.data)
    model = build_model(
        setting.config.model.model_copy(update={"backend": backend}),
        src_vocab_size=prepared.tokenizers.src.vocab_size,
        tgt_vocab_size=prepared.tokenizers.tgt.vocab_size,
        seed=SEED,
    )
    return Prepared(prepared.split("train"), model.to(runtime.device), runtime)


def _wait_for(runtime: "Runtime") -> None:
    """Let the device finish, so that its time counts."""
    if runtime.device.type == "cuda":
        import torch

        torch.cuda.synchronize()


def phases(setting: Setting, num_updates: int) -> dict[str, float]:
    """Seconds of each phase of `num_updates` updates, by PyTorch's profiler."""
    from torch.profiler import ProfilerActivity, profile

    work = ours(setting, setting.config.model.backend, "auto", {})
    work(describe_epoch(setting.config, setting.data, seed=SEED, rows_of_classic=CLASSIC_BATCH).num_shapes)
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        work(num_updates)
    events = {event.key: event.cpu_time_total / 1e6 for event in profiler.key_averages()}
    return {phase: events[phase] for phase in PHASES}


def table(
    contenders: dict[str, Contender[int, int]], tokens: dict[str, list[int]], joeynmt: Speed | None
) -> str:
    """The results in Markdown."""
    lines = [
        "| loop | target tokens/s | × classic | first update after, s | peak MB |",
        "| --- | --- | --- | --- | --- |",
    ]
    speeds = {
        name: [
            each / seconds
            for each, seconds in zip(tokens[name][WARM_UP:], contender.seconds[WARM_UP:], strict=True)
        ]
        for name, contender in contenders.items()
    }
    classic_speeds = speeds.get(CLASSIC, [])
    for name, contender in contenders.items():
        lines.append(
            f"| {name} | {statistics.median(speeds[name]):.0f} | {_times(speeds[name], classic_speeds)} "
            f"| {contender.ready_s + contender.seconds[0]:.1f} | {contender.peak_mb:.0f} |"
        )
    if joeynmt:
        of_joeynmt = [joeynmt.tokens_per_s] * len(classic_speeds)
        lines.append(
            f"| JoeyNMT 2.3 | {joeynmt.tokens_per_s:.0f} | {_times(of_joeynmt, classic_speeds)} "
            f"| {joeynmt.first_round_after_s:.1f} (a whole round) | {joeynmt.peak_mb:.0f} |"
        )
    return "\n".join(lines)


def _times(speeds: Sequence[float], classic_speeds: Sequence[float]) -> str:
    """How many times as fast as the classic loop, by rounds; a dash where that loop was left out.

    By rounds, because the pace of many machines changes from one minute to the next.
    """
    if not classic_speeds:
        return "–"
    ratios = [own / classic for own, classic in zip(speeds, classic_speeds, strict=True)]
    return f"{statistics.median(ratios):.1f}"


def start_all(setting: Setting) -> dict[str, Contender[int, int]]:
    """Every contender that starts, in its process; rows in fp32 only where `auto` is something else."""
    from mt_cli.machine.device import set_up_runtime

    usual = set_up_runtime(device=setting.device).precision
    precisions: list[Precision] = ["fp32"] if usual == "fp32" else ["bf16", "fp32"]
    backends: tuple[Backend, ...] = ("scratch", "torch")
    builds: dict[str, Callable[[Setting], Work]] = {CLASSIC: partial(classic, precision="fp32")}
    if usual != "fp32":
        builds[f"classic, {usual}"] = partial(classic, precision=usual)
    for backend in backends:
        for precision in precisions:
            builds[f"mt_cli, {backend}, {precision}"] = partial(
                ours, backend=backend, precision=precision, changes=LIKE_CLASSIC
            )
    builds[ALL] = partial(ours, backend=setting.config.model.backend, precision="auto", changes={})
    contenders = {}
    for name, build in builds.items():
        with left_out_if_ended(name):
            contenders[name] = start(build, setting)
    return contenders


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench train", description=__doc__)
    parser.add_argument("config", type=Path, help="a config whose data are prepared")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as for train")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--updates", type=int, default=5, help="of each loop in a round")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=usable_cores())
    parser.add_argument("--joeynmt", type=Path, metavar="PYTHON", help="an interpreter that has JoeyNMT 2.3")
    args = parser.parse_args()
    config = load_config(args.config, args.set)
    setting = Setting(config, prepared_dir(args.config), args.device, args.threads)
    contenders = start_all(setting)
    epoch = describe_epoch(setting.config, setting.data, seed=SEED, rows_of_classic=CLASSIC_BATCH)
    tokens: dict[str, list[int]] = {name: [] for name in contenders}
    for number in range(-WARM_UP, args.rounds):
        for name, contender in list(contenders.items()):
            warm_up = 1 if number == -WARM_UP or name.startswith("classic") else max(1, epoch.num_shapes - 1)
            with left_out_if_ended(name):
                tokens[name].append(contender.ask(warm_up if number < 0 else args.updates))
                speed = tokens[name][-1] / contender.seconds[-1]
                now = f"round {number + 1}" if number >= 0 else "warm-up"
                print(f"{now}: {name}: {speed:.0f}/s", file=sys.stderr)
                continue
            del contenders[name]
    for contender in contenders.values():
        contender.dismiss()
    numbers = {"rounds": args.rounds, "updates": args.updates, "threads": setting.threads}
    joeynmt = None
    if args.joeynmt:
        try:
            # It begins in another folder. Links are not resolved: they would lead out of a .venv.
            python = Path(shutil.which(args.joeynmt) or args.joeynmt).absolute()
            joeynmt = measure(python, setting.config, setting.data, **numbers)
        except (RuntimeError, OSError) as error:
            print(f"left out: JoeyNMT: {error}", file=sys.stderr)
    print(machine(setting.device, setting.threads))
    print(f"\n{table(contenders, tokens, joeynmt)}")
    # Of a GPU, the profiler's CPU times are those of launching its kernels.
    if setting.device == "cpu" and ALL in contenders:
        of_phases = phases(setting, args.updates)
        whole = sum(of_phases.values())
        print(f"\n{ALL}: " + ", ".join(f"{name} {s / whole:.0%}" for name, s in of_phases.items()))
    print(f"shapes: all {epoch.num_shapes} of an epoch had come before the first round of mt_cli")
    print(f"padding: classic {epoch.padding_of_classic:.1%}, mt_cli {epoch.padding:.1%}")


if __name__ == "__main__":
    main()
