"""The `config new` command: a config that suits a corpus, and the splits that the corpus lacks.

Knows the corpus's files; what suits which size is decided elsewhere.
"""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mt_cli.artefacts.corpora import TRAIN, Corpus, find_corpus, paths_of, read_pairs
from mt_cli.artefacts.files import write_atomically
from mt_cli.artefacts.folders import built_beside, check_outside, check_replaceable
from mt_cli.artefacts.run import open_run
from mt_cli.config import Config, DataConfig, commented_toml, parse_config
from mt_cli.errors import UsageError, command_line
from mt_cli.stages.configure.corpus_size import CorpusSize, measure
from mt_cli.stages.configure.held_out import cut_off
from mt_cli.stages.configure.sizing import Tables, suited_to, suited_to_fine_tuning, updates_per_epoch

log = logging.getLogger(__name__)

VAL, TEST = "val", "test"
FilePair = tuple[Path, Path]
"""A source file and a target file."""


@dataclass(frozen=True)
class NewConfig:
    """What `config new` made."""

    text: str
    """The config as a file."""
    path: Path | None
    """Where it was written."""
    pairs: dict[str, int]
    """Pairs of the splits that were cut off the corpus; empty if none was."""


def new_config(
    files: Mapping[str, FilePair],
    *,
    src_lang: str | None = None,
    tgt_lang: str | None = None,
    parent: Path | None = None,
    output: Path | None = None,
    overwrite: bool = False,
) -> NewConfig:
    """Write a config for the parallel `files` by split, or for the bundled sample if there are none.

    If `val` or `test` is missing, it is cut off the training pairs, into a folder beside `output`. With a
    `parent` run, the config goes on from that run's weights, with its tokenizer.

    Raises:
        UsageError: a place is taken, a name is not UTF-8, or a flag is missing.
        DataError: the files are missing, do not align, or hold too few pairs.
    """
    for place in (output, parent):
        if place is not None and not _is_text(str(place)):
            raise UsageError(
                f"{place}: its name is not UTF-8, and the config's header cannot hold it; rename it"
            )
    if output is not None and output.exists() and not overwrite:
        raise UsageError(f"{output} exists; --overwrite replaces it, --output names another")
    trained = None if parent is None else open_run(parent).config
    data = DataConfig()
    if files:
        data = _data_config(files, src_lang=src_lang, tgt_lang=tgt_lang)
    corpus = find_corpus(data)
    pairs: dict[str, int] = {}
    if files and (missing := [name for name in (VAL, TEST) if name not in files]):
        data, pairs = _with_splits_cut_off(data, corpus, missing, output=output, overwrite=overwrite)
        corpus = find_corpus(data)
    size = measure(read_pairs(corpus[TRAIN]))
    config = _suited(data, size, parent, trained)
    text = commented_toml(config, header=_header(config, size, output, pairs, parent))
    if output is not None:
        write_atomically(output, text.encode())
    return NewConfig(text, output, pairs)


def _data_config(files: Mapping[str, FilePair], *, src_lang: str | None, tgt_lang: str | None) -> DataConfig:
    if TRAIN not in files:
        raise UsageError("--val and --test need training pairs beside them; name them with --train SRC TGT")
    for path in (path for pair in files.values() for path in pair):
        if not _is_text(str(path)):
            raise UsageError(f"{path}: its name is not UTF-8, and a config cannot hold it; rename it")
    src, tgt = files[TRAIN]
    splits = list(dict.fromkeys((TRAIN, VAL, *files)))
    tables: Tables = {
        "data": {
            "corpus": "files",
            "splits": splits,
            # `val` is cut off the training pairs if it is not given.
            "files": {name: _file_table(files.get(name, files[TRAIN])) for name in splits},
            "src_lang": src_lang or _language_of(src, flag="--src-lang"),
            "tgt_lang": tgt_lang or _language_of(tgt, flag="--tgt-lang"),
        }
    }
    return parse_config(tables, origin="config new").data


def _is_text(name: str) -> bool:
    """Whether `name` was UTF-8 on disk."""
    return name == name.encode(errors="replace").decode()


def _file_table(pair: FilePair) -> dict[str, str]:
    src, tgt = pair
    return {"src": str(src), "tgt": str(tgt)}


def _language_of(path: Path, *, flag: str) -> str:
    """The language that a file's ending names, as in `train.es` or `train.es.gz`."""
    ending = (path.with_suffix("") if path.suffix == ".gz" else path).suffix[1:]
    if not re.fullmatch(r"[a-z]{2}", ending):
        raise UsageError(
            f"{path}: its name does not say in which language it is; add {flag}, such as {flag} es"
        )
    return ending


def _with_splits_cut_off(
    data: DataConfig, corpus: Corpus, missing: list[str], *, output: Path | None, overwrite: bool
) -> tuple[DataConfig, dict[str, int]]:
    if output is None:
        raise UsageError(
            f"{' and '.join(missing)} are cut off the training pairs and need a place; name the config's "
            f"file with --output, or the pairs with {' and '.join(f'--{name} SRC TGT' for name in missing)}"
        )
    folder = output.with_name(f"{output.stem}-corpus")
    names = [f"{split}.{side}" for split in (TRAIN, *missing) for side in _languages(data)]
    check_replaceable(
        folder,
        is_wanted=overwrite,
        own_files=names,
        kind=f"a folder of {', '.join(names)}",
        ways_out="--overwrite replaces it, --output names another place",
    )
    check_outside(folder, paths_of(corpus), way_out="name another place with --output")
    with built_beside(folder) as partial:
        paths = {split: _paths(data, partial, split) for split in (TRAIN, *missing)}
        report = cut_off(corpus[TRAIN], missing, paths=paths)
    log.info("%s  %s", folder, "  ".join(f"{name} {count:,} pairs" for name, count in report.pairs.items()))
    if report.num_repeated:
        log.info("%d pairs left out, whose source or target is in a held-out pair", report.num_repeated)
    if report.num_empty:
        log.info("%d pairs left out, because a side is empty", report.num_empty)
    files = {name: _paths(data, folder, name) for name in (TRAIN, *missing)}
    tables = data.model_dump(mode="json")
    tables["splits"] = list(dict.fromkeys((*data.splits, *missing)))
    tables["files"] = {
        **tables["files"],
        **{name: _file_table(pair) for name, pair in files.items()},
    }
    return parse_config({"data": tables}, origin="config new").data, report.pairs


def _languages(data: DataConfig) -> tuple[str, str]:
    """The endings of both sides' files, which differ even if the languages do not."""
    same = data.src_lang == data.tgt_lang
    return ("src", "tgt") if same else (data.src_lang, data.tgt_lang)


def _paths(data: DataConfig, folder: Path, split: str) -> FilePair:
    src, tgt = _languages(data)
    return folder / f"{split}.{src}", folder / f"{split}.{tgt}"


def _suited(data: DataConfig, size: CorpusSize, parent: Path | None, trained: Config | None) -> Config:
    tables: Tables = {"data": data.model_dump(mode="json")}
    if trained is None:
        return parse_config(tables | suited_to(size), origin="config new")
    suited = suited_to_fine_tuning(size, trained)
    suited["tokenizer"]["from_run"] = str(parent)
    tables["data"] |= {"lowercase": trained.data.lowercase, "max_len": trained.data.max_len}
    return parse_config(tables | suited, origin="config new")


def _header(
    config: Config, size: CorpusSize, output: Path | None, pairs: Mapping[str, int], parent: Path | None
) -> str:
    training = config.training
    per_epoch = updates_per_epoch(size.num_tokens, tokens_per_batch=training.tokens_per_batch)
    place = output or Path("mine.toml")
    init = () if parent is None else ("--init-from", parent)
    cut = f" The splits were cut off one corpus: {', '.join(f'{n} {c:,}' for n, c in pairs.items())} pairs."
    return (
        f"{config.data.src_lang} to {config.data.tgt_lang}, sized by mt-cli config new for "
        f"{size.num_pairs:,} training pairs, about {size.num_tokens:,} tokens.{cut if pairs else ''}\n"
        f"About {per_epoch * training.max_epochs:,} updates, {per_epoch} an epoch. To use it:\n"
        f"  {command_line('prepare', place)}\n"
        f"  {command_line('train', place, *init)}\n"
        f"  {command_line('evaluate', Path('runs') / place.stem, '--split', 'test')}"
    )
