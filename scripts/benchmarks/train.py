"""Training speed over the same data with the same model: the classic loop and mt_cli, as a Markdown table.

Each contender makes some updates in turn, round after round; the table shows the median of its rounds.
"""

import argparse
import os
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.contenders import Contender, start
from benchmarks.joeynmt import Speed, measure
from mt_cli.commands.flags import prepared_dir
from mt_cli.config import Backend, Config, load_config

if TYPE_CHECKING:
    from torch import Tensor

    from mt_cli.data.split import EncodedSplit
    from mt_cli.model.translation_model import TranslationModel

CLASSIC_BATCH = 128
PHASES = ("collate", "forward", "backward", "update")


@dataclass(frozen=True)
class Setting:
    """What every contender is given."""

    config: Config
    data: Path
    threads: int


Work = Callable[[int], int]
"""Makes so many updates; gives how many real target tokens they had, `</s>` counted."""


def classic(setting: Setting) -> Work:
    """As tutorials do it: random pairs, nn.Transformer with its own dropout, a loss over padding too."""
    import numpy as np
    import torch
    from torch.nn import functional as F

    from mt_cli.data.batching import collate
    from mt_cli.model.dropout import Dropout
    from mt_cli.text.symbols import PAD_ID

    split, model = _data_and_model(setting, "torch")
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
            loss = loss_of(model(batch.src_ids, batch.tgt_in), batch.tgt_out)
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            tokens += int((batch.tgt_out != PAD_ID).sum())
        return tokens

    return work


LIKE_CLASSIC = {"optimizer": "adam", "r_drop": 0.0}
"""What makes a training do no more than the classic loop does."""


def ours(setting: Setting, backend: Backend, changes: dict[str, object]) -> Work:
    """The trainer that users get, with `changes` to `[training]`."""
    from mt_cli.machine.device import Runtime
    from mt_cli.training.trainer import Trainer

    split, model = _data_and_model(setting, backend)
    runtime = Runtime(next(model.parameters()).device, "fp32")
    training = setting.config.training.model_copy(update=changes)
    reports = Trainer(model, split, training, runtime=runtime, seed=1).run()

    return lambda num_updates: sum(report.tgt_tokens for report in islice(reports, num_updates))


def _data_and_model(setting: Setting, backend: Backend) -> "tuple[EncodedSplit, TranslationModel]":
    from mt_cli.artefacts.prepared import open_prepared
    from mt_cli.artefacts.run import build_model
    from mt_cli.machine.device import seed_everything, set_up_runtime

    set_up_runtime(device="cpu", precision="fp32", threads=setting.threads)
    seed_everything(1)
    prepared = open_prepared(setting.data)
    model = build_model(
        setting.config.model.model_copy(update={"backend": backend}),
        src_vocab_size=prepared.tokenizers.src.vocab_size,
        tgt_vocab_size=prepared.tokenizers.tgt.vocab_size,
        seed=1,
    )
    return prepared.split("train"), model


def phases(setting: Setting, num_updates: int) -> dict[str, float]:
    """Seconds of each phase of `num_updates` updates, by PyTorch's profiler."""
    from torch.profiler import ProfilerActivity, profile

    work = ours(setting, setting.config.model.backend, {})
    work(2)
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        work(num_updates)
    events = {event.key: event.cpu_time_total / 1e6 for event in profiler.key_averages()}
    return {phase: events[phase] for phase in PHASES}


def padding(setting: Setting) -> tuple[float, float]:
    """Share of padding in an epoch's batches: the classic ones, and ours."""
    import numpy as np

    from mt_cli.artefacts.prepared import open_prepared
    from mt_cli.data.batching import plan_epoch

    split = open_prepared(setting.data).split("train")
    sides = split.src.lengths + 1, split.tgt.lengths + 1
    rng = np.random.default_rng(1)
    order = rng.permutation(len(split))
    random = [order[begin : begin + CLASSIC_BATCH] for begin in range(0, len(order), CLASSIC_BATCH)]
    planned = plan_epoch(
        split,
        tokens_per_batch=setting.config.training.tokens_per_batch,
        max_width=setting.config.model.max_len,
        rng=rng,
    )
    places = (
        sum(len(batch) * int(side[batch].max()) for batch in random for side in sides),
        sum(batch.shape.rows * (batch.shape.src_width + batch.shape.tgt_width) for batch in planned),
    )
    real = sum(int(side.sum()) for side in sides)
    return 1 - real / places[0], 1 - real / places[1]


def table(
    contenders: dict[str, Contender[int, int]], tokens: dict[str, list[int]], joeynmt: Speed | None
) -> str:
    """The results in Markdown."""
    lines = [
        "| loop | target tokens/s | × classic | first update after, s | peak MB |",
        "| --- | --- | --- | --- | --- |",
    ]
    medians = {
        name: statistics.median(
            each / seconds for each, seconds in zip(tokens[name][1:], contender.seconds[1:], strict=True)
        )
        for name, contender in contenders.items()
    }
    for name, contender in contenders.items():
        lines.append(
            f"| {name} | {medians[name]:.0f} | {medians[name] / medians['classic']:.1f} "
            f"| {contender.ready_s + contender.seconds[0]:.1f} | {contender.peak_mb:.0f} |"
        )
    if joeynmt:
        speed = joeynmt.tokens_per_s
        lines.append(
            f"| JoeyNMT 2.3 | {speed:.0f} | {speed / medians['classic']:.1f} "
            f"| {joeynmt.first_round_after_s:.1f} (a whole round) | {joeynmt.peak_mb:.0f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench train", description=__doc__)
    parser.add_argument("config", type=Path, help="a config whose data are prepared")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as for train")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--updates", type=int, default=5, help="of each loop in a round")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--joeynmt", type=Path, metavar="PYTHON", help="an interpreter that has JoeyNMT 2.3")
    args = parser.parse_args()
    setting = Setting(load_config(args.config, args.set), prepared_dir(args.config), args.threads)

    contenders: dict[str, Contender[int, int]] = {
        "classic": start(classic, setting),
        "mt_cli, scratch": start(partial(ours, backend="scratch", changes=LIKE_CLASSIC), setting),
        "mt_cli, torch": start(partial(ours, backend="torch", changes=LIKE_CLASSIC), setting),
        "mt_cli, all that the config asks for": start(
            partial(ours, backend=setting.config.model.backend, changes={}), setting
        ),
    }
    tokens: dict[str, list[int]] = {name: [] for name in contenders}
    for number in range(args.rounds + 1):
        for name, contender in contenders.items():
            tokens[name].append(contender.ask(args.updates if number else 1))
            speed = tokens[name][-1] / contender.seconds[-1]
            print(f"{f'round {number}' if number else 'warm-up'}: {name}: {speed:.0f}/s", file=sys.stderr)
    for contender in contenders.values():
        contender.dismiss()
    numbers = {"rounds": args.rounds, "updates": args.updates, "threads": setting.threads}
    joeynmt = args.joeynmt and measure(args.joeynmt, setting.config, setting.data, **numbers)
    print(table(contenders, tokens, joeynmt))
    of_phases = phases(setting, args.updates)
    whole = sum(of_phases.values())
    print(
        "\nmt_cli, all that the config asks for: "
        + ", ".join(f"{name} {s / whole:.0%}" for name, s in of_phases.items())
    )
    print("padding: classic {:.1%}, mt_cli {:.1%}".format(*padding(setting)))


if __name__ == "__main__":
    main()
