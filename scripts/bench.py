"""Measure engines against each other, in one run on one machine.

`train` measures training: the classic loop of tutorials and mt_cli. `decode` measures translation,
from text to text: the classic loop, mt_cli, and a model exported to CTranslate2. Each contender has
its own process and works only while the others wait, round after round; the tables show medians of
the rounds.
"""

import argparse
import itertools
import json
import multiprocessing
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from itertools import islice
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from mt_cli.config.load import load_config
from mt_cli.errors import MtCliError
from mt_cli.machine.limits import usable_cores

if TYPE_CHECKING:  # each contender imports what it measures
    from mt_cli.config.schema import TrainingConfig
    from mt_cli.data.prepared import EncodedSplit
    from mt_cli.machine.device import Runtime
    from mt_cli.model.translation_model import TranslationModel

Task = TypeVar("Task")
Answer = TypeVar("Answer")
Device = Literal["cpu", "cuda"]
Precision = Literal["fp32", "bf16"]
PAD_ID, BOS_ID, EOS_ID = 0, 2, 3
MB = 10**6
CORES = usable_cores()


# Contenders


@dataclass
class Contender(Generic[Task, Answer]):
    """A program in its process, and what has been measured of it."""

    pipe: Connection
    ready_s: float
    """From the start of the process until it could take a task."""
    seconds: list[float] = field(default_factory=list)
    """Of each task."""
    answers: list[Answer] = field(default_factory=list)
    peak_mb: float = 0.0

    def ask(self, task: Task) -> Answer:
        """Its answer; the time that it took, and the most memory so far, are kept.

        Raises:
            EOFError: the process has ended; it says why on stderr.
        """
        try:
            self.pipe.send(task)
            answer, seconds, self.peak_mb = self.pipe.recv()
        except OSError as error:
            raise EOFError from error
        self.seconds.append(seconds)
        self.answers.append(answer)
        return self.answers[-1]


def start(build: Callable[..., Callable[[Task], Answer]], *args: object) -> Contender[Task, Answer]:
    """A new process that calls `build(*args)` once, and what that gives with each task.

    Raises:
        EOFError: the process has ended; it says why on stderr.
    """
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    begin = time.perf_counter()
    spawn.Process(target=_serve, args=(build, args, there), daemon=True).start()
    there.close()
    here.recv()
    return Contender(here, time.perf_counter() - begin)


def _serve(
    build: Callable[..., Callable[[Task], Answer]], args: tuple[object, ...], pipe: Connection
) -> None:
    work = build(*args)
    pipe.send("ready")
    with suppress(EOFError, ConnectionError):  # whoever asks has ended
        while True:
            task = pipe.recv()
            begin = time.perf_counter()
            answer = work(task)
            if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
                torch.cuda.synchronize()
            pipe.send((answer, time.perf_counter() - begin, _peak_mb()))


def _peak_mb() -> float:
    """The most memory so far: of the GPU where PyTorch has used one, else of this process."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return torch.cuda.max_memory_allocated() / MB
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / MB


@contextmanager
def left_out_if_ended(name: str) -> Iterator[None]:
    """Say on stderr that the contender `name` is left out, where its process has ended."""
    try:
        yield
    except EOFError:
        print(f"left out: {name}: its process has ended, see above", file=sys.stderr)


def machine(device: Device, threads: int) -> str:
    """What is measured on, in a line, and the precision that training chooses there."""
    from mt_cli.machine.device import choose_runtime, describe_machine, set_up_process

    set_up_process(threads=threads)
    facts = describe_machine(choose_runtime(device=device))
    facts["training in"] = facts.pop("precision")
    names = ("processor", "cpu", "amx", "cores", "device", "gpu", "threads", "training in", "torch")
    return ", ".join(f"{name} {facts[name]}" for name in names if name in facts)


def markdown(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *rows))


# Training

SEED = 1
CLASSIC_BATCH = 128
CLASSIC, ALL = "classic, fp32", "mt_cli, all that the config asks for"
LIKE_CLASSIC = ("training.optimizer=adam", "training.r_drop=0.0")
"""What makes a training do no more than the classic loop does."""
Work = Callable[[int], int]
"""Makes so many updates; gives how many target tokens they had, `</s>` counted."""


@dataclass(frozen=True)
class Setting:
    """What every contender trains."""

    config: Path
    changes: tuple[str, ...]
    """As for `--set`."""
    data: Path
    device: Device
    threads: int


def training_of(
    setting: Setting, backend: str, precision: str, changes: Sequence[str] = ()
) -> "tuple[TranslationModel, EncodedSplit, TrainingConfig, Runtime]":
    """What every contender trains, on what, how and where."""
    from mt_cli.data.prepared import open_prepared
    from mt_cli.machine.device import choose_runtime, seed_everything, set_up_process
    from mt_cli.model.translation_model import TranslationModel

    own = [f"model.backend={backend}", f"runtime.precision={precision}"]
    config = load_config(setting.config, [*setting.changes, *own, *changes])
    set_up_process(threads=setting.threads)
    runtime = choose_runtime(device=setting.device, precision=config.runtime.precision)
    seed_everything(SEED)
    prepared = open_prepared(setting.data)
    model = TranslationModel(
        src_vocab_size=prepared.tokenizers.src.vocab_size,
        tgt_vocab_size=prepared.tokenizers.tgt.vocab_size,
        generator=torch.Generator().manual_seed(SEED),
        **config.model.model_dump(),
    )
    return model.to(runtime.device), prepared.split("train"), config.training, runtime


def classic_training(setting: Setting, precision: Precision) -> Work:
    """As tutorials do it: random pairs, nn.Transformer and its own dropout, Adam, a loss over
    padding too.
    """
    from mt_cli.data.batching import collate
    from mt_cli.model.cpu_kernels import Dropout

    model, split, training, runtime = training_of(setting, "torch", precision)
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, Dropout):
                setattr(module, name, nn.Dropout(child.p))
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-4)
    rng = np.random.default_rng(SEED)

    def work(num_updates: int) -> int:
        tokens = 0
        for _ in range(num_updates):
            batch = collate(split, rng.integers(len(split), size=CLASSIC_BATCH))
            tokens += int((batch.tgt_out != PAD_ID).sum())
            batch = batch.to(runtime.device)
            with runtime.autocast():
                logits = model.train()(batch.src_ids, batch.tgt_in)
                loss = F.cross_entropy(
                    logits.flatten(0, 1),
                    batch.tgt_out.flatten(),
                    ignore_index=PAD_ID,
                    label_smoothing=training.label_smoothing,
                )
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
        return tokens

    return work


def our_training(
    setting: Setting, backend: Literal["scratch", "torch"], precision: str, like: bool
) -> Work:
    """The trainer that users get; if `like` the classic loop, it does no more than that does."""
    from mt_cli.training.trainer import Trainer

    changes = LIKE_CLASSIC if like else ()
    model, split, training, runtime = training_of(setting, backend, precision, changes)
    reports = Trainer(model, split, training, runtime=runtime, seed=SEED).run()
    return lambda num_updates: sum(report.tgt_tokens for report in islice(reports, num_updates))


def bench_train(args: argparse.Namespace) -> str:
    """Measure training."""
    data = args.data or Path("data/prepared") / args.config.stem
    setting = Setting(args.config, tuple(args.set), data, args.device, args.threads)
    facts = machine(args.device, args.threads)
    has_bf16 = "training in bf16" in facts
    precisions: list[Precision] = ["bf16", "fp32"] if has_bf16 else ["fp32"]
    builds: dict[str, Callable[[Setting], Work]] = {
        CLASSIC: partial(classic_training, precision="fp32")
    }
    if has_bf16:
        builds["classic, bf16"] = partial(classic_training, precision="bf16")
    backends: tuple[Literal["scratch", "torch"], ...] = ("scratch", "torch")
    for backend, precision in itertools.product(backends, precisions):
        builds[f"mt_cli, {backend}, {precision}"] = partial(
            our_training, backend=backend, precision=precision, like=True
        )
    own = load_config(args.config, args.set).model.backend
    builds[ALL] = partial(our_training, backend=own, precision="auto", like=False)
    contenders: dict[str, Contender[int, int]] = {}
    for name, build in builds.items():
        with left_out_if_ended(name):
            contenders[name] = start(build, setting)
    for number, updates in enumerate([1, args.warm_up, *[args.updates] * args.rounds]):
        for name, contender in list(contenders.items()):
            with left_out_if_ended(name):
                is_brief = number == 1 and name.startswith(
                    "classic"
                )  # it has no kernels made for shapes
                speed = contender.ask(1 if is_brief else updates) / contender.seconds[-1]
                print(f"round {number - 1}: {name}: {speed:.0f}/s", file=sys.stderr)
                continue
            del contenders[name]
    return f"{facts}\n\n{training_table(contenders)}"


def training_table(contenders: "dict[str, Contender[int, int]]") -> str:
    """The results in Markdown. The first two tasks of each, which warm up, are left out.

    Speeds are compared within each round, for the pace of many machines changes from one minute to
    the next.
    """
    speeds = {
        name: [
            tokens / seconds for tokens, seconds in zip(each.answers, each.seconds, strict=True)
        ][2:]
        for name, each in contenders.items()
    }
    rows = []
    for name, each in contenders.items():
        ratios = [
            own / other for own, other in zip(speeds[name], speeds.get(CLASSIC, []), strict=False)
        ]
        times = f"{statistics.median(ratios):.1f}" if ratios else "–"
        first_s = each.ready_s + each.seconds[0]
        speed = statistics.median(speeds[name])
        rows.append([name, f"{speed:.0f}", times, f"{first_s:.1f}", f"{each.peak_mb:.0f}"])
    heads = ["loop", "target tokens/s", "× classic", "first update after, s", "peak MB"]
    return markdown(heads, rows)


# Decoding

CLASSIC_STEPS = 50
SINGLE_LINES = 100
"""One at a time, so many lines of the set are enough to time an engine."""
Engine = Literal["classic", "mt_cli", "CTranslate2"]
Translate = Callable[[Sequence[str]], list[str]]


@dataclass(frozen=True)
class Row:
    """One line of the table: what is measured."""

    engine: Engine
    model: Path
    precision: str
    beam_size: int
    batch: int
    """Sentences at once; 0 is the engine's own choice."""

    @property
    def search(self) -> str:
        """In words."""
        return f"beam {self.beam_size}" if self.beam_size > 1 else "greedy"

    def __str__(self) -> str:
        return f"{self.engine} {self.precision} {self.search}, batch {self.batch}"


def classic_decoding(row: Row, args: argparse.Namespace) -> Translate:
    """As tutorials do it: file order, and encoder and whole prefix computed anew for every token."""
    from mt_cli.machine.device import set_up_process
    from mt_cli.runs.run import open_run

    set_up_process(threads=args.threads)
    run = open_run(row.model)
    model = run.load_model(checkpoint="best", backend="torch").to(args.device).eval()

    @torch.inference_mode()
    def decode(lines: Sequence[str]) -> list[str]:
        ids = [torch.tensor([*each, EOS_ID]) for each in run.tokenizers.src.encode(list(lines))]
        src_ids = pad_sequence(ids, batch_first=True, padding_value=PAD_ID).to(args.device)
        hyps = torch.full((len(lines), 1), BOS_ID, device=args.device)
        ended = torch.zeros(len(lines), dtype=torch.bool, device=args.device)
        for _ in range(CLASSIC_STEPS):
            latest = model(src_ids, hyps)[:, -1].argmax(-1)
            hyps = torch.cat([hyps, latest.unsqueeze(1)], dim=1)
            ended |= latest == EOS_ID
            if bool(ended.all()):
                break
        until_end = (
            itertools.takewhile(lambda i: i != EOS_ID, hyp) for hyp in hyps[:, 1:].tolist()
        )
        return run.tokenizers.tgt.decode([list(hyp) for hyp in until_end])

    return lambda lines: [
        text
        for begin in range(0, len(lines), row.batch)
        for text in decode(lines[begin : begin + row.batch])
    ]


def our_decoding(row: Row, args: argparse.Namespace) -> Translate:
    """The Translator that users get, of the run or of what was exported from it."""
    from mt_cli import Translator
    from mt_cli.machine.device import set_up_process

    set_up_process(threads=args.threads)
    translator = Translator.load(
        row.model,
        beam_size=row.beam_size,
        length_penalty=args.length_penalty if row.beam_size > 1 else 0.0,
        batch_size=0,
        device=args.device,
        precision=None
        if row.engine == "CTranslate2"
        else "bf16"
        if row.precision == "bf16"
        else "fp32",
        threads=args.threads,
    )
    if row.batch == 1:
        return lambda lines: [translator.translate([line])[0] for line in lines]
    return translator.translate


def rows_for(args: argparse.Namespace, *, has_bf16: bool, exported: Path) -> list[Row]:
    """What is measured; exports the run for CTranslate2 where that is installed."""
    rows = [Row("classic", args.run, "fp32", 1, 1), Row("classic", args.run, "fp32", 1, 128)]
    models: list[tuple[Engine, Path, str]] = [("mt_cli", args.run, "fp32")]
    if has_bf16:
        models.append(("mt_cli", args.run, "bf16"))
    if find_spec("ctranslate2"):
        for precision in ("float32", "bfloat16" if args.device == "cuda" else "int8"):
            quantization = "none" if precision == "float32" else precision
            command = [
                sys.executable,
                "-m",
                "mt_cli",
                "export",
                args.run,
                exported / precision,
                "--quiet",
            ]
            options = ["--to", "ctranslate2", "--quantization", quantization]
            subprocess.run([*command, *options], check=True, stdout=subprocess.DEVNULL)
            models.append(("CTranslate2", exported / precision, precision))
    for (engine, model, precision), (beam_size, batch) in itertools.product(
        models, ((1, 1), (1, 0), (args.beam_size, 0))
    ):
        rows.append(Row(engine, model, precision, beam_size, batch))
    return rows


def bench_decode(args: argparse.Namespace) -> str:
    """Measure translation."""
    data = args.data or Path(
        json.loads((args.run / "manifest.json").read_text())["prepared"]["folder"]
    )
    lines, refs = (
        (data / f"{args.split}.{side}.txt").read_text(encoding="utf-8").splitlines()[: args.lines]
        for side in ("src", "tgt")
    )
    facts = machine(args.device, args.threads)
    contenders: dict[Row, Contender[Sequence[str], list[str]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        rows = rows_for(args, has_bf16="training in bf16" in facts, exported=Path(folder))
        for row in rows:
            with left_out_if_ended(str(row)):
                contenders[row] = start(
                    classic_decoding if row.engine == "classic" else our_decoding, row, args
                )
        for number in range(args.rounds + 1):
            for row, contender in list(contenders.items()):
                with left_out_if_ended(str(row)):
                    contender.ask(lines[:SINGLE_LINES] if row.batch == 1 else lines)
                    print(f"round {number}: {row}: {contender.seconds[-1]:.1f} s", file=sys.stderr)
                    continue
                del contenders[row]
    return f"{facts}\n\n{decoding_table(contenders, refs)}"


def decoding_table(
    contenders: "dict[Row, Contender[Sequence[str], list[str]]]", refs: Sequence[str]
) -> str:
    """The results in Markdown. The first task of each, which warms up, is left out."""
    from sacrebleu import corpus_bleu

    speeds = {
        row: len(each.answers[-1]) / statistics.median(each.seconds[1:])
        for row, each in contenders.items()
    }
    classics = {row.batch: speed for row, speed in speeds.items() if row.engine == "classic"}
    table = []
    for row, each in contenders.items():
        texts = each.answers[-1]
        bleu = corpus_bleu(texts, [list(refs)]) if len(texts) == len(refs) else None
        is_known = (
            row.engine != "CTranslate2" or not torch.cuda.is_available()
        )  # PyTorch's share alone is
        against = classics.get(1) if row.batch == 1 else max(classics.values(), default=None)
        table.append(
            [
                row.engine,
                row.precision,
                row.search,
                str(row.batch or "its own choice"),
                f"{speeds[row]:.1f}",
                f"{bleu.score:.2f}" if bleu else "–",
                f"{each.peak_mb:.0f}" if is_known else "–",
                f"{speeds[row] / against:.1f}" if against else "–",
            ]
        )
    heads = [
        "engine",
        "precision",
        "search",
        "at once",
        "sentences/s",
        "BLEU",
        "peak MB",
        "× classic",
    ]
    return markdown(heads, table)


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    shared.add_argument("--threads", type=int, default=CORES)
    shared.add_argument(
        "--data", type=Path, help="prepared data, where they are not at their usual place"
    )
    commands = parser.add_subparsers(required=True, metavar="train|decode")
    train = commands.add_parser("train", parents=[shared], help="measure updates of a training")
    train.add_argument("config", type=Path, help="a config whose data are prepared")
    train.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="as for train"
    )
    train.add_argument("--rounds", type=int, default=5)
    train.add_argument("--updates", type=int, default=5, help="of each loop in a round")
    train.add_argument("--warm-up", type=int, default=40, help="updates before the first round")
    train.set_defaults(bench=bench_train)
    decode = commands.add_parser("decode", parents=[shared], help="measure translation")
    decode.add_argument("run", type=Path, help="a trained run")
    decode.add_argument("--split", default="test_2016_flickr")
    decode.add_argument("--rounds", type=int, default=3)
    decode.add_argument("--lines", type=int, help="only so many lines of the split")
    decode.add_argument("--beam-size", type=int, default=5)
    decode.add_argument("--length-penalty", type=float, default=1.4, help="of beams")
    decode.set_defaults(bench=bench_decode)
    args = parser.parse_args()
    try:
        print(args.bench(args))
    except (OSError, MtCliError) as error:
        sys.exit(f"scripts/bench: {error}")


if __name__ == "__main__":
    main()
