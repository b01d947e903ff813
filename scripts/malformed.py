"""The malformed things of scripts/torture: what is put where, which command meets it, and how that
ends.

A stranger who makes a run can make its manifests too: only what its files say is wrong, never their
hashes.
"""

import hashlib
import json
import os
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

RUN, PREPARED, EXPORTED = Path("runs/tiny"), Path("data/prepared/tiny"), Path("exported/tiny")
TRANSLATE = ("translate", str(RUN), "--text", "Ein Hund.")
TRANSLATE_EXPORTED = ("translate", str(EXPORTED), "--text", "Ein Hund.")
RESUME = ("train", "tiny.toml", "--resume", "--set", "training.max_epochs=4")
TRAIN = ("train", "tiny.toml", "--run", "runs/new", "--max-steps", "1")
ESCAPE = "\x1b]0;owned\x07\x1b[2J\u202e"
"""What a terminal would obey, and an order of letters that hides some of them."""
HUGE = 1 << 37
"""Bytes of a file with holes, which takes no room on a disk."""
DEEP = b'{"a":' * 100_000 + b"1" + b"}" * 100_000
DIGITS = b'{"format": ' + b"9" * 100_000 + b"}"
Changes = Mapping[str, Mapping[str, object]]


@dataclass(frozen=True)
class Malformation:
    """Something that is malformed."""

    name: str
    make: Callable[[Path], object]
    """Puts it into the folder in which commands run."""
    command: tuple[str, ...]
    codes: tuple[int, ...] = (3,)
    """Exit codes that are right."""


# Files that are something else


def _outside(path: Path) -> Path:
    return (
        next(each for each in path.parents if each.name == "inside").with_name("beside")
        / "kept.txt"
    )


IMPOSTORS: Mapping[str, Callable[[Path], object]] = {
    "a link outside": lambda path: path.symlink_to(_outside(path)),
    "a link to a device": lambda path: path.symlink_to("/dev/zero"),
    "a pipe": os.mkfifo,
    "a folder": Path.mkdir,
    "too much": lambda path: path.open("wb").truncate(HUGE),
    "nothing": Path.touch,
    "noise": lambda path: path.write_bytes(bytes(range(256)) * 16),
    "text that is too deep": lambda path: path.write_bytes(DEEP),
    "a number of too many digits": lambda path: path.write_bytes(DIGITS),
    "a list": lambda path: path.write_bytes(b"[1, 2, 3]"),
}
READ: dict[Path, tuple[str, ...]] = {
    RUN / "manifest.json": TRANSLATE,
    RUN / "config.toml": TRANSLATE,
    RUN / "tokenizer/tokenizer.json": TRANSLATE,
    RUN / "best.txt": TRANSLATE,
    RUN / "checkpoints/BEST/manifest.json": TRANSLATE,
    RUN / "checkpoints/BEST/model.safetensors": TRANSLATE,
    RUN / "checkpoints/LAST/state.json": RESUME,
    RUN / "checkpoints/LAST/state.safetensors": RESUME,
    PREPARED / "manifest.json": TRAIN,
    PREPARED / "tokenizer/tokenizer.json": TRAIN,
}
"""Files, and a command that reads each."""
READ_EXPORTED = dict.fromkeys(
    (EXPORTED / "config.toml", EXPORTED / "model.bin"), TRANSLATE_EXPORTED
)

# Documents that say what cannot be

NAMES: Mapping[str, str] = {
    "above": "../../../beside/kept.txt",
    "absolute": "/etc/hostname",
    "a folder": "tokenizer",
    "a NUL": "a\0b",
    "very long": "x" * 100_000,
    "an escape": f"tokenizer/{ESCAPE}",
}
"""Names of files that a manifest may list."""
RUN_MANIFESTS: Changes = {
    "another format": {"format": 999},
    "a format that is a word": {"format": ESCAPE},
    "hashes that are a list": {"sha256": ["config.toml"]},
    "hashes that are numbers": {"sha256": {"config.toml": 7}},
    "no hashes": {"sha256": {}},
}
PREPARED_MANIFESTS: Changes = {
    "negative pairs": {"pairs": {"train": -1, "val": -1, "test": -1}},
    "pairs without end": {"pairs": {"train": 10**18, "val": 10**18, "test": 10**18}},
    "fewer pairs than there are": {"pairs": {"train": 1, "val": 1, "test": 1}},
    "another format": {"format": 999},
    "files that are a list": {"outputs": []},
}
STATES: Changes = {
    "step -5": {"step": -5},
    "step 10^30": {"step": 10**30},
    "an epoch beyond the end": {"epoch": 10**18},
    "an update beyond its epoch": {"update_of_epoch": 10**18},
}
TOKENIZERS: Changes = {
    "a language that is a module": {"src_lang": "de.stop_words"},
    "a language that is a path": {"src_lang": "../../../beside"},
    "another kind": {"kind": "bpe"},
}
POINTERS: Mapping[str, bytes] = {
    "above": b"../../../beside\n",
    "what is not there": b"step-99999999\n",
    "an escape": ESCAPE.encode(),
    "too much": b"step-" + b"0" * 10**7,
}
SPECIALS = ["<pad>", "<unk>", "<s>", "</s>"]
VOCABULARIES: Mapping[str, bytes] = {
    "too deep": b"[" * 100_000,
    "no special symbols": b'["a", "b"]',
    "a word twice": json.dumps([*SPECIALS, ESCAPE, ESCAPE]).encode(),
    "half a character": json.dumps([*SPECIALS, "\ud800"]).encode(),
    "a million words": json.dumps([*SPECIALS, *map(str, range(1_000_000))]).encode(),
}
CONFIGS: Mapping[str, str] = {
    "nested lists": "a = " + "[" * 50_000,
    "nested tables": "[" + "a." * 50_000 + "a]\n",
    "a number of too many digits": "a = " + "9" * 100_000,
    "a NUL": "\0",
    "a key that is an escape": '[model]\n"d\\u001b[2J\\u202e" = 1\n',
    "a width beyond all bounds": "[model]\nd_model = 1000000000000000000\n",
    "layers without end": "[model]\nencoder_layers = 100000\n",
    "sentences without end": "[model]\nmax_len = 100000000\n",
    "infinity": "[decoding]\nmax_len_factor = inf\n",
    "a language that is a path": '[data]\nsrc_lang = "../../x"\n',
    "beams without end": "[decoding]\nbeam_size = 1" + "0" * 30 + "\n",
    "many keys": "".join(f"k{i} = 1\n" for i in range(50_000)),
}

# Arrays and tensors that are none


def _change_header(changes: Mapping[str, object], content: bytes) -> bytes:
    begin = 8 + struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8:begin])
    header.pop("__metadata__", None)
    text = json.dumps({name: {**entry, **changes} for name, entry in header.items()}).encode()
    return struct.pack("<Q", len(text)) + text + content[begin:]


def _npy(dtype: str, shape: str, content: bytes = b"") -> bytes:
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + content


ARRAYS: Mapping[str, bytes] = {
    "floats": _npy("<f4", "(200,)", bytes(800)),
    "objects": _npy("|O", "(1,)", b"cos\nsystem\n(S'touch ../beside/owned'\ntR."),
    "a matrix": _npy("<u2", "(2, 200)", bytes(800)),
    "nothing": _npy("<u2", "(0,)"),
    "ids that no vocabulary has": _npy("<u2", "(1000,)", b"\xff" * 2000),
    "a negative shape": _npy("<u2", "(-1,)"),
    "a call": _npy("<u2", "__import__('os').system('touch ../beside/owned')"),
    "an empty file": b"",
}
HEADERS: Changes = {
    "64-bit floats": {"dtype": "F64"},
    "a kind that is an escape": {"dtype": ESCAPE},
    "shapes beyond all bounds": {"shape": [10**12, 10**12]},
    "shapes that are words": {"shape": ESCAPE},
    "offsets beyond the end": {"data_offsets": [0, 10**15]},
    "offsets that overlap": {"data_offsets": [0, 4]},
}
"""What the header of a file of weights says of every tensor."""
WEIGHTS: Mapping[str, Callable[[bytes], bytes]] = {
    "a header without end": lambda _: struct.pack("<Q", (1 << 63) - 1) + b"{}",
    "a header that is a list": lambda _: struct.pack("<Q", 2) + b"[]",
    "a header that is too deep": lambda _: struct.pack("<Q", len(DEEP)) + DEEP,
    "NaN": lambda content: content[:-4] + struct.pack("<f", float("nan")),
    "infinity": lambda content: content[:-4] + struct.pack("<f", float("inf")),
    "bytes after their end": lambda content: content + bytes(8),
    "another name": lambda content: content.replace(b"embedding", b"embeddinG"),
    **{name: partial(_change_header, changes) for name, changes in HEADERS.items()},
}


def malformations(*, has_export: bool) -> Iterator[Malformation]:
    """All of them; those of exported models if there is one."""
    read = READ | READ_EXPORTED if has_export else READ
    for (kind, put), (path, command) in product(IMPOSTORS.items(), read.items()):
        codes = (
            (0, 3) if command == RESUME else (3,)
        )  # a resume may fall back to the checkpoint before
        yield Malformation(
            f"{kind} for {path}", partial(_replace, path=path, put=put), command, codes
        )
    yield from _of_documents(RUN / "manifest.json", RUN_MANIFESTS, "a manifest", TRANSLATE)
    yield from _of_documents(RUN / "tokenizer/tokenizer.json", TOKENIZERS, "a tokenizer", TRANSLATE)
    yield from _of_documents(PREPARED / "manifest.json", PREPARED_MANIFESTS, "prepared data", TRAIN)
    for path, what, command in ((RUN, "a run", TRANSLATE), (PREPARED, "prepared data", TRAIN)):
        for name, listed in NAMES.items():
            yield Malformation(
                f"{what} that lists {name}", partial(_list, path=path, name=listed), command
            )
    for name, changes in STATES.items():
        yield Malformation(f"states with {name}", partial(_edit_states, changes=changes), RESUME)
    for name, line in POINTERS.items():
        yield _of_content(RUN / "best.txt", line, f"a pointer to {name}", TRANSLATE)
    for name, content in VOCABULARIES.items():
        yield _of_content(
            RUN / "tokenizer/vocab.joint.json", content, f"a vocabulary with {name}", TRANSLATE
        )
    for name, text in CONFIGS.items():
        yield _of_content(
            RUN / "config.toml", text.encode(), f"a config with {name}", TRANSLATE, (2, 3)
        )
    for name, content in ARRAYS.items():
        yield _of_content(PREPARED / "train.src.npy", content, f"sentences that are {name}", TRAIN)
        yield _of_content(
            PREPARED / "train.src.offsets.npy", content, f"offsets that are {name}", TRAIN
        )
    for name, change in WEIGHTS.items():
        yield Malformation(
            f"weights with {name}", partial(_change_weights, change=change), TRANSLATE
        )


def _of_documents(
    path: Path, table: Changes, what: str, command: tuple[str, ...]
) -> Iterator[Malformation]:
    for name, changes in table.items():
        yield Malformation(
            f"{what} with {name}", partial(_edit, path=path, changes=changes), command
        )


def _of_content(
    path: Path, content: bytes, name: str, command: tuple[str, ...], codes: tuple[int, ...] = (3,)
) -> Malformation:
    return Malformation(name, lambda folder: _put(folder / path, content), command, codes)


# How things are made


def _resolve(folder: Path, path: Path) -> Path:
    """`path`, with the best or the last checkpoint in it."""
    names = {
        name: (folder / RUN / f"{name.lower()}.txt").read_text().strip()
        for name in ("BEST", "LAST")
    }
    return folder.joinpath(*(names.get(part, part) for part in path.parts))


def _replace(folder: Path, *, path: Path, put: Callable[[Path], object]) -> None:
    place = _resolve(folder, path)
    place.rename(place.with_name(f"{place.name}.real"))
    put(place)


def _edit(folder: Path, *, path: Path, changes: Mapping[str, object]) -> None:
    document = {**json.loads((folder / path).read_bytes()), **changes}
    _put(folder / path, json.dumps(document).encode())


def _put(path: Path, content: bytes) -> None:
    """Write a file, and its hash into the manifest above it that lists it."""
    path.write_bytes(content)
    for folder in path.parents:
        name = path.relative_to(folder).as_posix()
        if name != "manifest.json" and f'"{name}"'.encode() in _bytes(folder / "manifest.json"):
            _list(folder, path=Path(), name=name, digest=hashlib.sha256(content).hexdigest())


def _bytes(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""


def _list(folder: Path, *, path: Path, name: str, digest: str = "0" * 64) -> None:
    """Let the manifest in the folder `path` list a file."""
    manifest = path / "manifest.json"
    document = json.loads((folder / manifest).read_bytes())
    key = "outputs" if "outputs" in document else "sha256"
    _edit(folder, path=manifest, changes={key: {**document[key], name: digest}})


def _edit_states(folder: Path, *, changes: Mapping[str, object]) -> None:
    for path in folder.joinpath(RUN).glob("checkpoints/*/state.json"):
        _edit(path.parent, path=Path(path.name), changes=changes)


def _change_weights(folder: Path, *, change: Callable[[bytes], bytes]) -> None:
    path = _resolve(folder, RUN / "checkpoints/BEST/model.safetensors")
    _put(path, change(path.read_bytes()))
