"""Decoding speed of engines over one test set: the classic loop, mt_cli and CTranslate2, as a Markdown table.

mt_cli is measured with both of its backends, and in bf16 where the processor is made for it. CTranslate2 is
measured by its own call and under mt_cli, as a user of an exported model has it.

All translate the same lines with the same model, from text to text, in rounds taken in turn;
the table shows the median of each engine's rounds.
"""

import argparse
import itertools
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from benchmarks.contenders import Contender, left_out_if_ended, start
from benchmarks.machine import machine
from mt_cli.artefacts.prepared import open_prepared_of
from mt_cli.artefacts.run import open_run
from mt_cli.machine.signals import Terminated, termination_raised
from mt_cli.machine.workers import usable_cores
from mt_cli.text.normalize import normalize
from mt_cli.text.tokenizer import Tokenizers
from mt_cli.translation.scoring import score_bleu

CLASSIC_STEPS = 50
SINGLE_LINES = 100
"""One at a time, so many lines of the set are enough to time an engine."""
BATCHES = (32, 64, 128)
"""CTranslate2's batch sizes: each of its rows uses the fastest, and the fastest share of threads."""

Translate = Callable[[Sequence[str]], list[str]]
Engine = Literal["classic", "mt_cli", "mt_cli, nn.Transformer", "CTranslate2", "mt_cli with CTranslate2"]


@dataclass(frozen=True)
class Row:
    """One line of the table: what is measured."""

    engine: Engine
    precision: str
    search: str
    beam_size: int
    batch: int
    """Sentences at once; 0 is the engine's own choice, or the fastest that was found."""
    threads: int = 0
    """Of CTranslate2 for one sentence at a time; 0 is one."""

    @property
    def name(self) -> str:
        """In a line of progress."""
        return f"{self.engine} {self.precision} {self.search}, batch {self.batch}"


@dataclass(frozen=True)
class Context:
    """What every engine is given."""

    run: Path
    exported: Path
    """Where the exported models are, in a folder for each precision."""
    device: Literal["cpu", "cuda"]
    threads: int
    length_penalty: float


def classic(row: Row, context: Context) -> Translate:
    """As tutorials do it: file order, and encoder and whole prefix computed anew for every token."""
    import torch

    from mt_cli.data.batching import pad_ids
    from mt_cli.machine.device import set_up_runtime
    from mt_cli.text.symbols import BOS_ID, EOS_ID

    set_up_runtime(device=context.device, precision="fp32", threads=context.threads)
    run = open_run(context.run)
    model = run.load_model(checkpoint="best", backend="torch").to(context.device).eval()

    @torch.inference_mode()
    def decode(lines: Sequence[str]) -> list[str]:
        ids = _encode(lines, run.tokenizers)
        src_ids = pad_ids([[*each, EOS_ID] for each in ids]).to(context.device)
        hyps = torch.full((len(lines), 1), BOS_ID, device=context.device)
        ended = torch.zeros(len(lines), dtype=torch.bool, device=context.device)
        for _ in range(CLASSIC_STEPS):
            latest = model(src_ids, hyps)[:, -1].argmax(-1)
            hyps = torch.cat([hyps, latest.unsqueeze(1)], dim=1)
            ended |= latest == EOS_ID
            if bool(ended.all()):
                break
        until_end = [itertools.takewhile(lambda i: i != EOS_ID, hyp) for hyp in hyps[:, 1:].tolist()]
        return run.tokenizers.tgt.decode([list(hyp) for hyp in until_end])

    return lambda lines: [
        text for begin in range(0, len(lines), row.batch) for text in decode(lines[begin : begin + row.batch])
    ]


def ours(row: Row, context: Context) -> Translate:
    """The Translator that users get, of the run or of what was exported from it."""
    from mt_cli.translation.translator import Translator

    is_exported = row.engine == "mt_cli with CTranslate2"
    translator = Translator.load(
        context.exported / row.precision if is_exported else context.run,
        beam_size=row.beam_size,
        length_penalty=context.length_penalty if row.beam_size > 1 else 0.0,
        batch_size=0,
        device=context.device,
        precision=None if is_exported else "bf16" if row.precision == "bf16" else "fp32",
        threads=context.threads,
        backend="torch" if row.engine == "mt_cli, nn.Transformer" else "scratch",
    )
    if row.batch == 1:
        return lambda lines: [translator.translate([line])[0] for line in lines]
    return translator.translate


def ctranslate2(row: Row, context: Context) -> Translate:
    """The exported model, in its fastest setting for this search."""
    import ctranslate2 as library  # type: ignore[import-untyped, unused-ignore]

    run = open_run(context.run)
    src_names, tgt_names = run.tokenizers.src.entries, run.tokenizers.tgt.entries
    places = {name: i for i, name in enumerate(tgt_names)}

    def engine(workers: int, threads: int) -> "library.Translator":
        return library.Translator(
            str(context.exported / row.precision),
            device=context.device,
            inter_threads=workers,
            intra_threads=threads,
        )

    def translate(translator: "library.Translator", lines: Sequence[str], batch: int) -> list[str]:
        tokens = [[src_names[i] for i in ids] for ids in _encode(lines, run.tokenizers)]
        results = translator.translate_batch(
            tokens, max_batch_size=batch, beam_size=row.beam_size, max_decoding_length=255, disable_unk=True
        )
        return run.tokenizers.tgt.decode([[places[t] for t in each.hypotheses[0]] for each in results])

    if row.batch == 1:
        single = engine(1, row.threads or 1)
        return lambda lines: [translate(single, [line], 1)[0] for line in lines]

    threads = context.threads
    shares = {(threads, 1), (1, threads)} if context.device == "cpu" else {(1, 1)}
    engines = {share: engine(*share) for share in shares}
    settings = list(itertools.product(shares, BATCHES))
    chosen: list[tuple[tuple[int, int], int]] = []

    def fastest(lines: Sequence[str]) -> list[str]:
        if not chosen:
            sample = lines[: max(200, len(lines) // 3)]
            chosen.append(
                min(settings, key=lambda s: _seconds(lambda: translate(engines[s[0]], sample, s[1])))
            )
        setting, batch = chosen[0]
        return translate(engines[setting], lines, batch)

    return fastest


def _encode(lines: Sequence[str], tokenizers: Tokenizers) -> list[list[int]]:
    return tokenizers.src.encode([normalize(line, lowercase=tokenizers.options.lowercase) for line in lines])


ENGINES: dict[Engine, Callable[[Row, Context], Translate]] = {
    "classic": classic,
    "mt_cli": ours,
    "mt_cli, nn.Transformer": ours,
    "CTranslate2": ctranslate2,
    "mt_cli with CTranslate2": ours,
}


def engine_for(row: Row, context: Context) -> Translate:
    """What translates in a contender's process."""
    return ENGINES[row.engine](row, context)


@dataclass
class Entry:
    """A row of the table, who is measured for it, and what came out."""

    row: Row
    contender: Contender[Sequence[str], list[str]]
    lines: list[str]
    texts: list[str] = field(default_factory=list)

    @property
    def speed(self) -> float:
        """Sentences a second, the median of the rounds."""
        return len(self.lines) / self.contender.median_s


def rows_for(device: str, beam_size: int, threads: int) -> list[Row]:
    """What is measured on a machine with this device."""
    from mt_cli.machine.hardware import is_fast_in_bf16

    greedy = Row("classic", "fp32", "greedy", 1, 1)
    beam = f"beam {beam_size}"
    rows = [greedy, replace(greedy, batch=128)]
    precisions: dict[Engine, list[str]] = {
        "mt_cli": ["fp32", *(["bf16"] if device == "cuda" or is_fast_in_bf16() else [])],
        "mt_cli, nn.Transformer": ["fp32"],
        "CTranslate2": exported_precisions(device),
        "mt_cli with CTranslate2": exported_precisions(device),
    }
    for engine, of_engine in precisions.items():
        for precision in of_engine:
            single = Row(engine, precision, "greedy", 1, 1)
            is_shared = engine == "CTranslate2" and device == "cpu" and threads > 1
            rows += [
                single,
                *([replace(single, threads=threads)] if is_shared else []),
                Row(engine, precision, "greedy", 1, 0),
                # Of nn.Transformer, which computes whole prefixes anew, a beam would take minutes.
                *([] if engine == "mt_cli, nn.Transformer" else [Row(engine, precision, beam, beam_size, 0)]),
            ]
    return rows


def exported_precisions(device: str) -> list[str]:
    """What the run is exported in."""
    return ["float32", "bfloat16" if device == "cuda" else "int8"]


def export(run: Path, folder: Path, precision: str) -> None:
    """Export `run` in `precision` to a folder in `folder`. Where that fails, it says why, and makes none."""
    quantization = "none" if precision == "float32" else precision
    command = [sys.executable, "-m", "mt_cli", "export", str(run), str(folder / precision)]
    options = ["--to", "ctranslate2", "--quantization", quantization, "--quiet"]
    subprocess.run([*command, *options], check=False, stdout=subprocess.DEVNULL)


def warmed_up(row: Row, context: Context, lines: list[str]) -> Entry | None:
    """The engine for `row`, which has translated once; None where it cannot."""
    if "CTranslate2" in row.engine and not (context.exported / row.precision).exists():
        print(f"left out: {row.name}: the model was not exported, see above", file=sys.stderr)
        return None
    print(f"warm-up: {row.name}", file=sys.stderr)
    own = lines[:SINGLE_LINES] if row.batch == 1 else lines
    with left_out_if_ended(row.name):
        contender: Contender[Sequence[str], list[str]] = start(engine_for, row, context)
        contender.ask(own)
        return Entry(row, contender, own)
    return None


def translates_again(entry: Entry, *, round_number: int) -> bool:
    """Let the engine of `entry` translate once more; False where its process has ended."""
    with left_out_if_ended(entry.row.name):
        entry.texts = entry.contender.ask(entry.lines)
        print(f"round {round_number}: {entry.row.name}: {entry.speed:.1f}/s", file=sys.stderr)
        return True
    return False


def table(
    entries: Sequence[Entry],
    refs: Sequence[str],
    *,
    lowercase: bool,
    count: Callable[[list[str]], int],
    device: str,
) -> str:
    """The results in Markdown; `count` gives the tokens of some translations.

    Of a GPU's memory, only what PyTorch took is known.
    """
    classics = {each.row.batch: each.speed for each in entries if each.row.engine == "classic"}
    lines = [
        "| engine | precision | search | at once | sentences/s | tokens/s | BLEU | peak MB | × classic |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for each in entries:
        row = each.row
        bleu = "–"
        if len(each.texts) == len(refs):
            bleu = f"{score_bleu(each.texts, refs, lowercase=lowercase).score:.2f}"
        batch = str(row.batch) if row.batch else "its own choice"
        if row.threads:
            batch += f", {row.threads} threads"
        against = classics.get(1) if row.batch == 1 else max(classics.values(), default=None)
        tokens = count(each.texts) * each.speed / len(each.lines)
        is_unknown = device == "cuda" and "CTranslate2" in row.engine
        memory = "–" if is_unknown else f"{each.contender.peak_mb:.0f}"
        lines.append(
            f"| {row.engine} | {row.precision} | {row.search} | {batch} | {each.speed:.1f} | {tokens:.0f} "
            f"| {bleu} | {memory} | {f'{each.speed / against:.1f}' if against else '–'} |"
        )
    return "\n".join(lines)


def _seconds(function: Callable[[], object]) -> float:
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench decode", description=__doc__)
    parser.add_argument("run", type=Path, help="a trained run, whose prepared data are at hand")
    parser.add_argument("--split", default="test_2016_flickr")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--lines", type=int, help="only so many lines of the split")
    parser.add_argument("--beam-size", type=int, default=5)
    parser.add_argument("--length-penalty", type=float, default=1.4, help="of mt_cli's beams")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=usable_cores())
    args = parser.parse_args()

    run = open_run(args.run)
    prepared = open_prepared_of(run)
    lines = prepared.lines(args.split, "src")[: args.lines]
    refs = prepared.lines(args.split, "tgt")[: args.lines]
    with tempfile.TemporaryDirectory() as folder:
        exported = Path(folder)
        for precision in exported_precisions(args.device):
            export(args.run, exported, precision)
        context = Context(args.run, exported, args.device, args.threads, args.length_penalty)
        rows = rows_for(args.device, args.beam_size, args.threads)
        entries = [entry for row in rows if (entry := warmed_up(row, context, lines)) is not None]
        with suppress(Terminated), termination_raised():  # then the table is of the rounds so far
            for number in range(args.rounds):
                entries = [each for each in entries if translates_again(each, round_number=number + 1)]
        for each in entries:
            each.contender.dismiss()
    entries = [each for each in entries if len(each.contender.seconds) > 1]
    tokenizers = run.tokenizers

    def count(texts: list[str]) -> int:
        return sum(len(ids) + 1 for ids in tokenizers.tgt.encode(texts))

    print(machine(args.device, args.threads), end="\n\n")
    lowercase = tokenizers.options.lowercase
    print(table(entries, refs, lowercase=lowercase, count=count, device=args.device))


if __name__ == "__main__":
    main()
