"""Measure engines against each other, in one run on one machine.

`train` measures training: the classic loop of tutorials and mt_cli. `decode` measures translation,
from text to text: the classic loop, mt_cli, and a model exported to CTranslate2. Each engine has
its own process and works only while the others wait, round after round; the tables show medians of
the rounds.
"""

import argparse
import itertools
import multiprocessing
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
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
from mt_cli.machine.process import usable_cores

if TYPE_CHECKING:  # each process imports what it measures
    from mt_cli.config.schema import TrainingConfig
    from mt_cli.data.encoded import EncodedSplit
    from mt_cli.machine.device import Runtime
    from mt_cli.model.model import TranslationModel

Task = TypeVar("Task")
Answer = TypeVar("Answer")
PAD_ID, BOS_ID, EOS_ID = 0, 2, 3


# Engines in their processes


@dataclass
class Engine(Generic[Task, Answer]):
    """A program in its process, and what has been measured of it."""

    pipe: Connection
    seconds: list[float] = field(default_factory=list)
    """Of each task."""
    answers: list[Answer] = field(default_factory=list)

    def ask(self, task: Task) -> None:
        """Let it do a task; its answer and the time that it took are kept."""
        self.pipe.send(task)
        answer, seconds = self.pipe.recv()
        self.answers.append(answer)
        self.seconds.append(seconds)


def start(build: Callable[..., Callable[[Task], Answer]], *args: object) -> Engine[Task, Answer]:
    """A new process that calls `build(*args)` once, and what that gives with each task."""
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    spawn.Process(target=_serve, args=(build, args, there), daemon=True).start()
    there.close()
    here.recv()
    return Engine(here)


def _serve(
    build: Callable[..., Callable[[Task], Answer]], args: tuple[object, ...], pipe: Connection
) -> None:
    work = build(*args)
    pipe.send("ready")
    with suppress(EOFError, ConnectionError):  # whoever asks has ended
        while True:
            task = pipe.recv()
            started_at = time.perf_counter()
            answer = work(task)
            if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
                torch.cuda.synchronize()
            pipe.send((answer, time.perf_counter() - started_at))


def machine(args: argparse.Namespace) -> str:
    """What is measured on, in a line, and the precision that training may use there."""
    from mt_cli.machine.device import choose_runtime, describe_machine, set_up_process

    set_up_process(threads=args.threads)
    facts = describe_machine(choose_runtime(device=args.device))
    facts["training may use"] = facts.pop("precision")
    names = (
        "processor",
        "cpu",
        "amx",
        "cores",
        "device",
        "gpu",
        "threads",
        "training may use",
        "torch",
    )
    return ", ".join(f"{name} {facts[name]}" for name in names if name in facts)


def markdown(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


# Training

SEED = 1
CLASSIC_BATCH = 128
WARM_UP = {"cpu": 40, "cuda": 250}
"""Updates before the first round, until most shapes have come, and have a graph on a GPU; the
classic loop has no kernels made for shapes, and needs 1.
"""
CLASSIC, ALL = "classic, fp32", "mt_cli, all that the config asks for"
LIKE_CLASSIC = ("training.optimizer=adam", "training.r_drop=0.0")
"""Lets a training do no more than the classic loop does."""
Work = Callable[[int], int]
"""Makes so many updates; gives how many target tokens they had, `</s>` counted."""


def training_of(
    args: argparse.Namespace, changes: Sequence[str]
) -> "tuple[TranslationModel, EncodedSplit, TrainingConfig, Runtime]":
    """What is trained, on what, how and where."""
    from mt_cli.data.prepared import open_prepared
    from mt_cli.machine.device import choose_runtime, seed_dropout, set_up_process
    from mt_cli.model.model import build_model

    config = load_config(args.config, changes)
    set_up_process(threads=args.threads)
    runtime = choose_runtime(
        device=args.device, precision=config.runtime.precision, graphs=config.runtime.graphs
    )
    seed_dropout(SEED)
    prepared = open_prepared(Path("data/prepared") / args.config.stem)
    model = build_model(config.model, prepared.tokenizers, seed=SEED)
    return model.to(runtime.device), prepared.split("train"), config.training, runtime


def classic_training(args: argparse.Namespace, precision: str) -> Work:
    """As tutorials do it: random pairs, nn.Transformer with its own dropout, and Adam."""
    from mt_cli.data.batching import collate
    from mt_cli.model.cpu_kernels import Dropout

    changes = ["model.backend=torch", f"runtime.precision={precision}"]
    model, split, training, runtime = training_of(args, changes)
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, Dropout):
                setattr(module, name, nn.Dropout(child.p))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
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
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        return tokens

    return work


def our_training(args: argparse.Namespace, changes: Sequence[str]) -> Work:
    """The trainer that users get."""
    from mt_cli.training.trainer import Trainer

    model, split, training, runtime = training_of(args, changes)
    reports = Trainer(model, split, training, runtime=runtime, seed=SEED).run()
    return lambda num_updates: sum(report.tgt_tokens for report in islice(reports, num_updates))


def bench_train(args: argparse.Namespace) -> str:
    """Measure training."""
    facts = machine(args)
    precisions = ["bf16", "fp32"] if "training may use bf16" in facts else ["fp32"]
    builds: dict[str, Callable[[argparse.Namespace], Work]] = {}
    for precision in reversed(precisions):
        builds[f"classic, {precision}"] = partial(classic_training, precision=precision)
    for backend, precision in itertools.product(("scratch", "torch"), precisions):
        changes = (f"model.backend={backend}", f"runtime.precision={precision}", *LIKE_CLASSIC)
        builds[f"mt_cli, {backend}, {precision}"] = partial(our_training, changes=changes)
    builds[ALL] = partial(our_training, changes=())
    if args.device == "cuda":
        builds[f"{ALL}, without graphs"] = partial(our_training, changes=["runtime.graphs=off"])
    engines: dict[str, Engine[int, int]] = {}
    for name, build in builds.items():
        engines[name] = start(build, args)
        engines[name].ask(1 if name.startswith("classic") else WARM_UP[args.device])
        print(f"warmed up: {name}", file=sys.stderr)
    for number in range(args.rounds):
        for name, engine in engines.items():
            engine.ask(args.updates)
            speed = engine.answers[-1] / engine.seconds[-1]
            print(f"round {number + 1}: {name}: {speed:.0f}/s", file=sys.stderr)
    return f"{facts}\n\n{training_table(engines)}"


def training_table(engines: dict[str, Engine[int, int]]) -> str:
    """The results in Markdown. The first task of each, which warms up, is left out.

    Speeds are compared within each round, because the pace of many machines changes from one minute
    to the next.
    """
    speeds: dict[str, list[float]] = {}
    for name, engine in engines.items():
        tasks = zip(engine.answers[1:], engine.seconds[1:], strict=True)
        speeds[name] = [tokens / seconds for tokens, seconds in tasks]
    rows = []
    for name, own in speeds.items():
        ratios = [speed / classic for speed, classic in zip(own, speeds[CLASSIC], strict=True)]
        rows.append([name, f"{statistics.median(own):.0f}", f"{statistics.median(ratios):.1f}"])
    return markdown(["loop", "target tokens/s", "× classic"], rows)


# Decoding

CLASSIC_STEPS = 50
SINGLE_LINES = 100
"""One at a time, so many lines of the set are enough to time an engine."""
BEAM_SIZE = 5
Translate = Callable[[Sequence[str]], list[str]]


@dataclass(frozen=True)
class Row:
    """One line of the table: what is measured."""

    engine: Literal["classic", "mt_cli", "CTranslate2"]
    model: Path
    precision: str
    beam_size: int
    batch: int
    """Sentences at once; 0 is the engine's own choice."""

    @property
    def search(self) -> str:
        return f"beam {self.beam_size}" if self.beam_size > 1 else "greedy"


def classic_decoding(row: Row, args: argparse.Namespace) -> Translate:
    """As tutorials do it: file order, and the whole prefix computed anew for every token."""
    from mt_cli.machine.device import set_up_process
    from mt_cli.runs.opening import open_run

    set_up_process(threads=args.threads)
    run = open_run(row.model)
    model = run.load_model(checkpoint="best", backend="torch").to(args.device).eval()

    @torch.inference_mode()
    def decode(lines: Sequence[str]) -> list[str]:
        ids = [torch.tensor([*each, EOS_ID]) for each in run.tokenizers.src.encode(list(lines))]
        src_ids = pad_sequence(ids, batch_first=True, padding_value=PAD_ID).to(args.device)
        hyps = torch.full((len(lines), 1), BOS_ID, device=args.device)
        has_eos = torch.zeros(len(lines), dtype=torch.bool, device=args.device)
        for _ in range(min(CLASSIC_STEPS, model.max_len - 1)):
            latest = model(src_ids, hyps)[:, -1].argmax(-1)
            hyps = torch.cat([hyps, latest.unsqueeze(1)], dim=1)
            has_eos |= latest == EOS_ID
            if bool(has_eos.all()):
                break
        found = []
        for hyp in hyps[:, 1:].tolist():
            found.append(hyp[: hyp.index(EOS_ID)] if EOS_ID in hyp else hyp)
        return run.tokenizers.tgt.decode(found)

    def translate(lines: Sequence[str]) -> list[str]:
        found: list[str] = []
        for begin in range(0, len(lines), row.batch):
            found += decode(lines[begin : begin + row.batch])
        return found

    return translate


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
        precision=None if row.engine == "CTranslate2" else row.precision,
        threads=args.threads,
    )
    if row.batch == 1:
        return lambda lines: [translator.translate([line])[0] for line in lines]
    return translator.translate


def rows_for(args: argparse.Namespace, *, has_bf16: bool, exported: Path) -> list[Row]:
    """What is measured; exports the run for CTranslate2 where that is installed."""
    rows = [Row("classic", args.run, "fp32", 1, 1), Row("classic", args.run, "fp32", 1, 128)]
    for precision in ("fp32", "bf16") if has_bf16 else ("fp32",):
        rows += _searches("mt_cli", args.run, precision)
    if find_spec("ctranslate2"):
        for precision in ("float32", "bfloat16" if args.device == "cuda" else "int8"):
            folder = exported / precision
            quantization = "none" if precision == "float32" else precision
            command = [sys.executable, "-m", "mt_cli", "export", args.run, folder, "--quiet"]
            command += ["--to", "ctranslate2", "--quantization", quantization]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            rows += _searches("CTranslate2", folder, precision)
    return rows


def _searches(engine: Literal["mt_cli", "CTranslate2"], model: Path, precision: str) -> list[Row]:
    searches = ((1, 1), (1, 0), (BEAM_SIZE, 0))
    return [Row(engine, model, precision, beam_size, batch) for beam_size, batch in searches]


def bench_decode(args: argparse.Namespace) -> str:
    """Measure translation."""
    from mt_cli.evaluation.evaluate import System
    from mt_cli.evaluation.test_sets import EvalChoice
    from mt_cli.translation.options import DecodingOptions

    choice = EvalChoice([args.split], data=args.data)
    (test_set,) = System([args.run], DecodingOptions()).test_sets(choice)
    lines = test_set.sources[: args.lines]
    refs = test_set.refs[0][: args.lines]
    facts = machine(args)
    engines: dict[Row, Engine[Sequence[str], list[str]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        has_bf16 = "training may use bf16" in facts
        for row in rows_for(args, has_bf16=has_bf16, exported=Path(folder)):
            build = classic_decoding if row.engine == "classic" else our_decoding
            engines[row] = start(build, row, args)
        for number in range(args.rounds + 1):
            for row, engine in engines.items():
                engine.ask(lines[:SINGLE_LINES] if row.batch == 1 else lines)
                name = f"{row.engine} {row.precision} {row.search}, batch {row.batch}"
                print(f"round {number}: {name}: {engine.seconds[-1]:.1f} s", file=sys.stderr)
        cold = cold_table(args.run, Path(folder) / "float32", lines[0], rounds=args.rounds)
    return f"{facts}\n\n{decoding_table(engines, refs)}\n\n{cold}"


PEER = """
import ctranslate2, pathlib, sentencepiece, sys
folder, line = sys.argv[1:]
(model,) = (each for each in pathlib.Path(folder, "tokenizer").iterdir() if each.suffix == ".model")
subwords = sentencepiece.SentencePieceProcessor(model_file=str(model))
translator = ctranslate2.Translator(folder)
(result,) = translator.translate_batch([subwords.encode(line, out_type=str)], beam_size=1)
print(subwords.decode(result.hypotheses[0]))
"""
"""What somebody writes who has joint subwords and wants nothing but a translation."""


STOPWATCH = """
import resource, subprocess, sys, time
began = time.perf_counter()
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)
print(time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""
"""A process of its own, because a child's memory counts from that of its parent."""


def cold_table(run: Path, exported: Path, line: str, *, rounds: int) -> str:
    """What one line costs a shell: seconds from a command's start to its end, and its memory."""
    python = sys.executable
    translate = [python, "-m", "mt_cli", "translate", "--text", line]
    commands = {"mt_cli translate, the run": [*translate, str(run), "--device", "cpu"]}
    if exported.exists():
        commands["mt_cli translate, exported"] = [*translate, str(exported), "--device", "cpu"]
        if len(list(exported.glob("tokenizer/*.model"))) == 1:
            commands["ten lines with ctranslate2 and sentencepiece"] = [
                python, "-c", PEER, str(exported), line,
            ]  # fmt: skip
    commands["mt_cli --help"] = [python, "-m", "mt_cli", "--help"]
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    megabytes: dict[str, float] = {}
    for _ in range(rounds):
        for name, command in commands.items():
            measured = subprocess.check_output([python, "-c", STOPWATCH, *command], text=True)
            elapsed, kilobytes = measured.split()
            seconds[name].append(float(elapsed))
            megabytes[name] = int(kilobytes) / 1024
    rows = []
    for name, own in seconds.items():
        rows.append([name, f"{statistics.median(own):.2f}", f"{megabytes[name]:.0f}"])
    return markdown(["one line, from the command's start to its end", "seconds", "MB"], rows)


def decoding_table(
    engines: dict[Row, Engine[Sequence[str], list[str]]], refs: Sequence[str]
) -> str:
    """The results in Markdown. The first task of each, which warms up, is left out."""
    from sacrebleu import corpus_bleu

    speeds: dict[Row, float] = {}
    for row, engine in engines.items():
        speeds[row] = len(engine.answers[-1]) / statistics.median(engine.seconds[1:])
    classics = {row.batch: speed for row, speed in speeds.items() if row.engine == "classic"}
    table = []
    for row, engine in engines.items():
        texts = engine.answers[-1]
        is_whole = len(texts) == len(refs)
        against = classics[1] if row.batch == 1 else max(classics.values())
        table.append(
            [
                row.engine,
                row.precision,
                row.search,
                str(row.batch or "its own choice"),
                f"{speeds[row]:.1f}",
                f"{corpus_bleu(texts, [list(refs)]).score:.2f}" if is_whole else "–",
                f"{speeds[row] / against:.1f}",
            ]
        )
    heads = ["engine", "precision", "search", "at once", "sentences/s", "BLEU", "× classic"]
    return markdown(heads, table)


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    shared.add_argument("--threads", type=int, default=usable_cores())
    commands = parser.add_subparsers(required=True, metavar="train|decode")
    train = commands.add_parser("train", parents=[shared], help="measure updates of a training")
    train.add_argument("config", type=Path, help="a config whose data are prepared")
    train.add_argument("--rounds", type=int, default=5)
    train.add_argument("--updates", type=int, default=5, help="of each loop in a round")
    train.set_defaults(bench=bench_train)
    decode = commands.add_parser("decode", parents=[shared], help="measure translation")
    decode.add_argument("run", type=Path, help="a trained run")
    decode.add_argument("--split", default="test_2016_flickr")
    decode.add_argument(
        "--data", type=Path, help="prepared folder, or that of Multi30k's own files"
    )
    decode.add_argument("--rounds", type=int, default=3)
    decode.add_argument("--lines", type=int, help="only so many lines of the split")
    decode.add_argument("--length-penalty", type=float, default=1.4, help="of beams")
    decode.set_defaults(bench=bench_decode)
    args = parser.parse_args()
    try:
        print(args.bench(args))
    except EOFError:
        sys.exit("scripts/bench: a process has ended, see above")
    except (OSError, MtCliError) as error:
        sys.exit(f"scripts/bench: {error}")


if __name__ == "__main__":
    main()
