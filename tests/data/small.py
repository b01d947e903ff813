"""Small corpora of files, and configs that name them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from mt_cli.config.load import parse_config
from mt_cli.config.schema import Config, FilesConfig
from mt_cli.data.corpora import ParallelText

Pairs = Sequence[tuple[str, str]]
BPE = {"kind": "bpe", "vocab_size": 300}
UNIGRAM = {"kind": "unigram", "vocab_size": 300, "joint": False}
WORDS = {"kind": "spacy", "min_freq": 1, "joint": False}


def write_pairs(folder: Path, name: str, pairs: Pairs) -> dict[str, str]:
    """Write `pairs` as two files of lines; gives the table of a config that names them."""
    table = {}
    for place, side in enumerate(("src", "tgt")):
        path = folder / f"{name}.{side}"
        path.write_text("".join(f"{pair[place]}\n" for pair in pairs), encoding="utf-8")
        table[side] = str(path)
    return table


def config_of(
    folder: Path,
    splits: Mapping[str, Pairs],
    *,
    tokenizer: Mapping[str, object] = BPE,
    **data: object,
) -> Config:
    """A config of the corpus `splits`, which is written into `folder`."""
    files = {name: write_pairs(folder, name, pairs) for name, pairs in splits.items()}
    data = {"corpus": "files", "splits": list(splits), "files": files, **data}
    return parse_config({"data": data, "tokenizer": tokenizer, "model": {"tie": "none"}})


def text_in(src: Path | Sequence[Path], tgt: Path, **columns: object) -> ParallelText:
    """The text of some files, or of the columns of one."""
    return ParallelText.of(FilesConfig.model_validate({"src": src, "tgt": tgt, **columns}))
