"""Runs that are sealed as they should be, and whose manifests, configs, tokenizers and pointers are not."""

import json
import shutil
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from faults.malformed.malformation import (
    ESCAPE,
    EVALUATE,
    INSPECT,
    RESUME,
    RUN,
    TOO_DEEP,
    TOO_MANY_DIGITS,
    TRANSLATE,
    Malformation,
    best_checkpoint,
    edit,
    last_checkpoint,
    list_hash,
    replace_listed,
)

MANIFEST = RUN / "manifest.json"
NAMES: Mapping[str, str] = {
    "above": "../../../beside/kept.txt",
    "absolute": "/etc/hostname",
    "a folder": "tokenizer",
    "nothing": "",
    "itself": ".",
    "a NUL": "a\0b",
    "very long": "x" * 100_000,
    "an escape": f"tokenizer/{ESCAPE}",
    "half a character": "tokenizer/\ud800",
    "a device": "/dev/zero",
}
"""Names of files that a manifest may list."""
DOCUMENTS: Mapping[str, Mapping[str, object]] = {
    "another format": {"format": 2},
    "a format that is a word": {"format": ESCAPE},
    "hashes that are a list": {"sha256": ["config.toml"]},
    "hashes that are numbers": {"sha256": {"config.toml": 7}},
    "no hashes": {"sha256": {}},
    "many hashes": {"sha256": {f"{i}": "" for i in range(100_000)}},
    "data that are a list": {"prepared": []},
    "a parent that is a word": {"init_from": ESCAPE},
}
PLACES: Mapping[str, str] = {
    "a device": "/dev/zero",
    "an escape": ESCAPE,
    "half a character": "\ud800",
    "a NUL": "a\0b",
    "very long": "x" * 100_000,
    "all there is": "/",
}
"""Where a run may say that its data are, or the run that it started with."""
PARENTS: Mapping[str, Mapping[str, object]] = {
    **{f"in a place that is {name}": {"folder": place} for name, place in PLACES.items()},
    "in a place that is a pattern": {"folder": "a**b"},
    "in a place with a long name": {"folder": "x" * 4000},
    "that is gone": {"folder": "runs/gone"},
    "with a checkpoint above": {"checkpoint": "../../../beside"},
    "with a checkpoint that is a NUL": {"checkpoint": "step-\0"},
    "with a checkpoint that is an escape": {"checkpoint": ESCAPE},
    "with a checkpoint of many digits": {"checkpoint": "step-" + "1" * 5000},
    "of other weights": {"sha256": "0" * 64},
    "of no layers": {"decoder_layers": 0},
    "of a thousand layers": {"encoder_layers": 1000, "decoder_layers": 1000},
    "of layers beyond all bounds": {"encoder_layers": 10**18},
    "of half a layer": {"encoder_layers": 1.5},
}
"""What a run may say of the one that it started with."""
CONFIGS: Mapping[str, str] = {
    "tables that are too deep": "a = " + "[" * 50_000,
    "a number of too many digits": "a = " + "9" * 100_000,
    "an unknown key with an escape": '[model]\n"d\\u001b[2J\\u202e" = 1\n',
    "a model too wide": "[model]\nd_model = 1048576\nnum_heads = 1\n",
    "a width beyond all bounds": "[model]\nd_model = 1000000000000000000\n",
    "layers without end": "[model]\nencoder_layers = 100000\n",
    "a thousand layers": "[model]\nencoder_layers = 1000\n",
    "sentences without end": "[model]\nmax_len = 100000000\n",
    "another width": "[model]\nd_model = 4096\nnum_heads = 8\nmax_len = 65536\n",
    "a NUL": "\0",
    "half a character": 'a = "\\ud800"',
    "a translation without end": "[decoding]\nmax_len_factor = 1e308\n",
    "infinity": "[decoding]\nmax_len_factor = inf\n",
    "a language that is a path": '[data]\nsrc_lang = "../../x"\n',
}
STATES: Mapping[str, Mapping[str, object]] = {
    "step -5": {"step": -5},
    "step 10^30": {"step": 10**30},
    "half a step": {"step": 1.5},
    "a step that is a word": {"step": ESCAPE},
    "an epoch beyond the end": {"epoch": 10**18},
    "an update beyond its epoch": {"update_of_epoch": 10**18},
    "negative time": {"elapsed_s": -1.0},
    "a best step beyond all bounds": {"best_step": 10**18},
}
POINTERS: Mapping[str, bytes] = {
    "above": b"../../../beside\n",
    "above in the end": b"step-00000004/../../../..\n",
    "what is not there": b"step-99999999\n",
    "an escape": ESCAPE.encode(),
    "other digits": "step-٠٠٠٠٠٠٠٤\n".encode(),
    "too much": b"step-" + b"0" * 10**7,
    "two names": b"step-00000004 step-00000016\n",
}
DESCRIPTIONS: Mapping[str, Mapping[str, object]] = {
    "a language that is a module": {"src_lang": "de.stop_words"},
    "a language that is a path": {"src_lang": "../../../beside"},
    "a language that is an escape": {"src_lang": ESCAPE},
    "a language that is not there": {"src_lang": "xx.yy"},
    "no language": {"src_lang": ""},
    "another kind": {"kind": "bpe"},
    "a kind that is an escape": {"kind": ESCAPE},
    "no format": {"format": None},
}
SPECIALS = ["<pad>", "<unk>", "<s>", "</s>"]
VOCABULARIES: Mapping[str, bytes] = {
    "too deep": b"[" * 100_000,
    "numbers": b"[1, 2]",
    "no special symbols": b'["a", "b"]',
    "a word twice": json.dumps([*SPECIALS, ESCAPE, ESCAPE]).encode(),
    "a line end": json.dumps([*SPECIALS, "a\nb"]).encode(),
    "half a character": json.dumps([*SPECIALS, "\ud800"]).encode(),
    "a million words": json.dumps([*SPECIALS, *map(str, range(1_000_000))]).encode(),
    "a number of too many digits": TOO_MANY_DIGITS,
}


def malformed_runs() -> Iterator[Malformation]:
    """Every malformed run that is no matter of weights."""
    for name, path in NAMES.items():
        yield Malformation(f"a manifest that lists {name}", partial(_list, name=path), TRANSLATE)
    for name, changes in DOCUMENTS.items():
        yield Malformation(
            f"a manifest with {name}", partial(_edit, path=MANIFEST, changes=changes), TRANSLATE
        )
    for name, place in PLACES.items():
        changes = {"prepared": {"folder": place, "sha256": ""}}
        yield Malformation(
            f"data in a place that is {name}", partial(_edit, path=MANIFEST, changes=changes), EVALUATE
        )
    for (
        name,
        text,
    ) in (
        CONFIGS.items()
    ):  # a config of a run that cannot be used is a wrong config, or a model that does not fit
        yield Malformation(
            f"a run's config with {name}",
            partial(_relist, path=RUN / "config.toml", content=text.encode()),
            TRANSLATE,
            (2, 3),
        )
    for name, line in POINTERS.items():
        yield Malformation(
            f"a pointer to {name}", partial(_write, path=RUN / "best.txt", content=line), TRANSLATE
        )
    yield Malformation("a parent as it should be", partial(_begin_with, changes={}), RESUME, (0,))
    for name, changes in PARENTS.items():  # before its first checkpoint, a run starts with them again
        yield Malformation(f"a parent {name}", partial(_begin_with, changes=changes), RESUME)
    for name, changes in STATES.items():  # a resume falls back to the checkpoint before
        yield Malformation(f"a state with {name}", partial(_edit_states, changes=changes), RESUME)
    yield from _malformed_tokenizers()
    yield from _malformed_names()


def _malformed_tokenizers() -> Iterator[Malformation]:
    for name, changes in DESCRIPTIONS.items():
        yield Malformation(f"a tokenizer of {name}", partial(_describe, changes=changes), TRANSLATE)
    for name, content in VOCABULARIES.items():
        path = RUN / "tokenizer" / "vocab.joint.json"
        yield Malformation(
            f"a vocabulary with {name}", partial(_relist, path=path, content=content), TRANSLATE
        )
    for name, content in {
        "noise": bytes(range(256)) * 40,
        "nothing": b"",
        "text that is too deep": TOO_DEEP,
    }.items():
        yield Malformation(f"subwords that are {name}", partial(_learn_subwords, content=content), TRANSLATE)


def _malformed_names() -> Iterator[Malformation]:
    yield Malformation("an evaluation whose name is an escape", _hostile_evaluation, INSPECT, (0,))
    yield Malformation(
        "a status with escapes",
        partial(_edit, path=RUN / "status.json", changes={ESCAPE: ESCAPE}),
        INSPECT,
        (0,),
    )
    yield Malformation(
        "an environment with escapes",
        partial(_edit, path=RUN / "env.json", changes={ESCAPE: ESCAPE}),
        INSPECT,
        (0,),
    )
    yield Malformation(
        "a run that is no UTF-8", _hostile_run_name, ("inspect", "runs/bad\udcff\x1b[2J"), (0,)
    )
    yield Malformation("a checkpoint whose name is an escape", _hostile_checkpoint, INSPECT, (0,))
    yield Malformation(
        "metrics of noise",
        partial(_write, path=RUN / "metrics.jsonl", content=bytes(range(256)) * 999),
        INSPECT,
    )
    yield Malformation("metrics without end", _huge_metrics, INSPECT)
    for place in ("/dev/zero", "/", "/etc/passwd", "corpus"):
        yield Malformation(
            f"{place} for a run", lambda folder: None, ("translate", place, "--text", "Ein Hund."), (2, 3)
        )


def _list(folder: Path, *, name: str) -> None:
    list_hash(folder / MANIFEST, name, "0" * 64)


def _edit(folder: Path, *, path: Path, changes: Mapping[str, object]) -> None:
    edit(folder / path, changes)


def _begin_with(folder: Path, *, changes: Mapping[str, object]) -> None:
    """Let a run without a checkpoint say that it started with a copy of itself, but for the `changes`."""
    run, parent = folder / RUN, folder / "runs" / "parent"
    run.rename(parent)
    shutil.copytree(parent, run, ignore=shutil.ignore_patterns("checkpoints", "*.txt"))
    checkpoint = best_checkpoint(folder, run=Path("runs/parent"))
    weights = json.loads((checkpoint / "manifest.json").read_bytes())["sha256"]["model.safetensors"]
    started_with = {"folder": "runs/parent", "checkpoint": checkpoint.name, "sha256": weights, **changes}
    edit(folder / MANIFEST, {"init_from": started_with})


def _relist(folder: Path, *, path: Path, content: bytes) -> None:
    replace_listed(folder / path, content)


def _write(folder: Path, *, path: Path, content: bytes) -> None:
    (folder / path).write_bytes(content)


def _edit_states(folder: Path, *, changes: Mapping[str, object]) -> None:
    for path in folder.joinpath(RUN).glob("checkpoints/*/state.json"):
        replace_listed(path, json.dumps({**json.loads(path.read_bytes()), **changes}).encode())


def _describe(folder: Path, *, changes: Mapping[str, object]) -> None:
    path = folder / RUN / "tokenizer" / "tokenizer.json"
    replace_listed(path, json.dumps({**json.loads(path.read_bytes()), **changes}).encode())


def _learn_subwords(folder: Path, *, content: bytes) -> None:
    _describe(folder, changes={"kind": "bpe"})
    replace_listed(folder / RUN / "tokenizer" / "joint.model", content)


def _hostile_evaluation(folder: Path) -> None:
    place = folder / RUN / "eval" / f"test{ESCAPE}"
    folder.joinpath(RUN, "eval", "test-greedy").rename(place)
    edit(place / "scores.json", {"n": ESCAPE, ESCAPE: [ESCAPE]})


def _hostile_run_name(folder: Path) -> None:
    folder.joinpath(RUN).rename(folder / "runs" / "bad\udcff\x1b[2J")


def _hostile_checkpoint(folder: Path) -> None:
    last_checkpoint(folder).with_name(f"step-{ESCAPE}").mkdir()
    best_checkpoint(folder).with_name(f"step-{'9' * 200}").mkdir()


def _huge_metrics(folder: Path) -> None:
    with folder.joinpath(RUN, "metrics.jsonl").open("ab") as file:
        file.truncate(1 << 37)
