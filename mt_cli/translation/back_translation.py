"""Synthetic pairs from monolingual text: a run translates it once, and the result is cached.

Lines of held-out splits are skipped, since they would leak test data into training, and so are
translations that loop, since they would teach looping.
"""

import json
import logging
from collections.abc import Sequence
from pathlib import Path

from mt_cli.config.schema import Config, DataConfig, FilesConfig, MorePairsConfig, Side, TranslateBy
from mt_cli.data.corpora import MadeFiles, SideFiles, find_corpus, is_trained_on, monolingual_text
from mt_cli.machine.device import fast_bf16
from mt_cli.machine.files import sha256_bytes, sync, write_atomically, write_json
from mt_cli.machine.locks import locked
from mt_cli.machine.terminal import progress_shown
from mt_cli.runs.opening import open_run_between
from mt_cli.runs.run import Run
from mt_cli.text.normalize import LOOP, decode_line, has_loop, key_of, normalize
from mt_cli.translation.options import DecodingOptions
from mt_cli.translation.translator import Translator

log = logging.getLogger(__name__)
FOLDER = Path("data/translated")
GIVEN = "given.txt"
MADE = "made.txt"
REPORT = "report.json"
UNFINISHED = "unfinished.txt"
"""The translations so far; the last line may be cut off."""
LINES_TOGETHER = 10_000
"""Lines translated before the next write: a kill loses at most these."""

BY: dict[TranslateBy, dict[str, object]] = {
    "greedy": {"beam_size": 1, "temperature": 0.0},
    "beam": {"beam_size": 5, "length_penalty": 1.0},
    "sample": {"beam_size": 1, "temperature": 1.0},
}


def make_pairs(config: Config, *, sources: Sequence[Path] = (), offline: bool = False) -> MadeFiles:
    """The pairs of each `[data.more.NAME]` with `translate_with`, from the cache or made now.

    An interrupted translation continues where it stopped.

    Raises:
        UsageError: a run does not exist or translates in another direction.
        DataError: a file is missing or damaged.
        ResourceError: files cannot be downloaded, or memory or disk are full.
    """
    data = config.data
    made = {}
    for name, more in data.more.items():
        if more.translate_with is None:
            continue
        text = monolingual_text(data, name, sources=sources, offline=offline)
        held_out = _held_out(data, text.side, sources=sources, offline=offline)
        run_from = data.src_lang if text.side == "src" else data.tgt_lang
        run_to = data.tgt_lang if text.side == "src" else data.src_lang
        asked_by = f"data.more.{name}.translate_with"
        run = open_run_between(run_from, run_to, more.translate_with, asked_by=asked_by)
        made[name] = _made(name, more, text, run, held_out)
    return made


def _held_out(data: DataConfig, side: Side, *, sources: Sequence[Path], offline: bool) -> set[str]:
    """The keys of all lines on one side of val and the test splits."""
    corpus = find_corpus(data, sources=sources, offline=offline)
    keys: set[str] = set()
    for name, split in corpus.items():
        if not is_trained_on(name):
            text = split.src if side == "src" else split.tgt
            keys.update(key_of(decode_line(line)) for line in text.lines())
    return keys


def _made(
    name: str, more: MorePairsConfig, text: SideFiles, run: Run, held_out: set[str]
) -> FilesConfig:
    lines = [line for line in map(decode_line, text.lines()) if normalize(line)]
    kept = [line for line in lines if key_of(line) not in held_out]
    num_held_out = len(lines) - len(kept)
    inputs = {
        "given": sha256_bytes("\n".join(kept).encode()),
        "weights": run.weights_sha256("best"),
        "tokenizer": run.tokenizer_hashes,
        "by": more.translate_by,
        "loop": LOOP.pattern,
    }
    folder = FOLDER / f"{name}-{sha256_bytes(json.dumps(inputs).encode())[:12]}"
    if not (folder / REPORT).exists():
        with locked(folder):
            _make(folder, name, kept, num_held_out, run, more)
    given = (folder / GIVEN,)
    made = (folder / MADE,)
    if text.side == "src":
        return FilesConfig(src=given, tgt=made)
    return FilesConfig(src=made, tgt=given)


def _make(
    folder: Path,
    name: str,
    given: Sequence[str],
    num_held_out: int,
    run: Run,
    more: MorePairsConfig,
) -> None:
    """Write the lines `given` and their translations to `folder`; the caller holds its lock."""
    write_atomically(folder / GIVEN, "".join(f"{line}\n" for line in given).encode())
    if num_held_out:
        log.info("%s: skipped %d lines that also occur in val or a test split", name, num_held_out)
    unfinished = folder / UNFINISHED
    whole = folder / MADE
    if not whole.exists():
        done = _whole_lines(unfinished)
        translator = Translator.of_models([run], _options(more))
        with (
            progress_shown(f"translating {name}", unit="lines", total=len(given)) as update,
            unfinished.open("ab") as file,
        ):
            update(done)
            for begin in range(done, len(given), LINES_TOGETHER):
                sources = given[begin : begin + LINES_TOGETHER]
                made = translator.translate(sources, on_progress=update)
                kept = ["" if loops(*pair) else pair[0] for pair in zip(made, sources, strict=True)]
                file.write("".join(f"{line}\n" for line in kept).encode())
                file.flush()
            sync(file.fileno())
        unfinished.replace(whole)
    num_empty = whole.read_bytes().split(b"\n").count(b"") - 1
    if num_empty:
        log.info("%s: skipped %d translations that are empty or repeat themselves", name, num_empty)
    write_json(
        folder / REPORT, {"lines": len(given), "held_out": num_held_out, "run": str(run.folder)}
    )


def loops(made: str, given: str) -> bool:
    """Whether a translation repeats words or letters endlessly and its source does not."""
    return has_loop(made) and not has_loop(given)


def _options(more: MorePairsConfig) -> DecodingOptions:
    search: dict[str, object] = {"precision": "bf16" if fast_bf16() else "fp32"}
    return DecodingOptions(search=search | BY[more.translate_by], owns_process=True)


def _whole_lines(path: Path) -> int:
    """The number of lines in `path`; an unfinished last line is removed first."""
    if not path.exists():
        return 0
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if whole != content:
        write_atomically(path, whole)
    return whole.count(b"\n")
