"""`config new` and `config check`: a config that suits a corpus, and what is wrong with one."""

import logging
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mt_cli.config.load import commented_toml, load_config, parse_config
from mt_cli.config.schema import Config, DataConfig
from mt_cli.data.corpora import (
    MORE,
    TRAIN,
    Corpus,
    CorpusSplit,
    find_corpus,
    is_trained_on,
    paths_of,
    read_pairs,
)
from mt_cli.errors import ConfigError, DataError, MtCliError, ResourceError, UsageError, command_line
from mt_cli.machine.files import built_beside, check_outside, check_replaceable, locked, write_atomically
from mt_cli.runs.run import open_run
from mt_cli.text.normalize import Hashes, decode_line, hash_texts, normalize, strip_line_end
from mt_cli.training.sizing import (
    CorpusSize,
    Plan,
    Tables,
    before_training,
    measure,
    suited_to,
    updates_per_epoch,
)

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
    for place in (output, parent, *(path for pair in files.values() for path in pair)):
        if place is not None and str(place) != str(place).encode(errors="replace").decode():
            raise UsageError(f"{place}: its name is not UTF-8, and a config cannot hold it; rename it")
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
    tables: Tables = {"data": data.model_dump(mode="json"), **suited_to(size, trained)}
    if trained is not None:
        tables["tokenizer"]["from_run"] = str(parent)
        tables["data"] |= {"lowercase": trained.data.lowercase, "max_len": trained.data.max_len}
    config = parse_config(tables, origin="config new")
    text = commented_toml(config, header=_header(config, size, output, pairs, parent))
    if output is not None:
        write_atomically(output, text.encode())
    return NewConfig(text, output, pairs)


def _data_config(files: Mapping[str, FilePair], *, src_lang: str | None, tgt_lang: str | None) -> DataConfig:
    if TRAIN not in files:
        raise UsageError("--val and --test need training pairs beside them; name them with --train SRC TGT")
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
    with locked(folder), built_beside(folder) as partial:
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


SHARE = 0.05
FEWEST, MOST = 50, 2000
"""Pairs of a split: fewer give a score that says little, more cost training pairs and time."""
MOST_OF_A_SMALL_CORPUS = 0.1
SMALLEST_CORPUS = 20
"""Pairs that differ on both sides, without which there is nothing to cut off."""


@dataclass
class CutReport:
    """What became of a corpus's pairs."""

    pairs: dict[str, int] = field(default_factory=dict)
    """Pairs written, by split."""
    num_empty: int = 0
    """Pairs left out because a side has no text."""
    num_repeated: int = 0
    """Pairs left out because a held-out pair has the same source or the same target."""


def cut_off(
    corpus: CorpusSplit, names: Sequence[str], *, paths: Mapping[str, tuple[Path, Path]]
) -> CutReport:
    """Write the pairs of `corpus` to the `paths` (source, target) of `train` and of the new splits `names`.

    A pair stays out of training if its source or its target is that of a held-out pair, whatever its case
    and spaces.

    Raises:
        DataError: the corpus is too small, or its files do not align.
    """
    src_hashes, tgt_hashes, is_filled = _hash_sides(corpus)
    place_of = _choose(src_hashes, tgt_hashes, is_filled, names, origin=corpus.src.path)
    held_out = np.array(sorted(place_of), np.int64)
    repeats = np.isin(src_hashes, src_hashes[held_out]) | np.isin(tgt_hashes, tgt_hashes[held_out])
    report = CutReport(dict.fromkeys((TRAIN, *names), 0))
    with ExitStack() as stack:
        files = {
            name: [stack.enter_context(path.open("wb")) for path in paths[name]] for name in report.pairs
        }
        for index, pair in enumerate(read_pairs(corpus)):
            name = place_of.get(index, TRAIN)
            if not is_filled[index]:
                report.num_empty += 1
            elif name == TRAIN and repeats[index]:
                report.num_repeated += 1
            else:
                report.pairs[name] += 1
                for file, line in zip(files[name], pair, strict=True):
                    file.write(strip_line_end(line) + b"\n")
    if not report.pairs[TRAIN]:
        raise DataError(f"{corpus.src.path}: every pair repeats a held-out one; nothing is left to train on")
    return report


def _hash_sides(corpus: CorpusSplit) -> tuple[Hashes, Hashes, NDArray[np.bool_]]:
    """The hash of each normalised source and target, and whether both have text."""
    lines = (line for pair in read_pairs(corpus) for line in pair)
    columns = hash_texts(normalize(decode_line(line), lowercase=True) for line in lines).reshape(-1, 2)
    (empty,) = hash_texts([""])
    return columns[:, 0], columns[:, 1], (columns != empty).all(axis=1)


def _choose(
    src_hashes: Hashes,
    tgt_hashes: Hashes,
    is_filled: NDArray[np.bool_],
    names: Sequence[str],
    *,
    origin: Path,
) -> dict[int, str]:
    """The split of each pair that is held out: pairs of which no two share a side, as if drawn at random."""
    num_different = min(len(np.unique(hashes[is_filled])) for hashes in (src_hashes, tgt_hashes))
    size = num_held_out(num_different)
    chosen: dict[int, str] = {}
    seen: set[tuple[str, int]] = set()
    # By hash. Both sides decide, so that of several pairs with one source it is not the file's order.
    for index in np.lexsort((tgt_hashes, src_hashes)).tolist():
        sides = {("src", int(src_hashes[index])), ("tgt", int(tgt_hashes[index]))}
        if len(chosen) == size * len(names):
            break
        if is_filled[index] and seen.isdisjoint(sides):
            seen |= sides
            chosen[index] = names[len(chosen) // size]
    if num_different < SMALLEST_CORPUS or len(chosen) < size * len(names):
        raise DataError(
            f"{origin}: only {num_different} different pairs, too few to cut off {' and '.join(names)}; "
            f"{SMALLEST_CORPUS} at least are needed"
        )
    return chosen


def num_held_out(num_pairs: int) -> int:
    """Pairs of a held-out split, of `num_pairs` that differ."""
    wanted = min(MOST, max(FEWEST, round(num_pairs * SHARE)))
    return max(1, min(wanted, int(num_pairs * MOST_OF_A_SMALL_CORPUS)))


@dataclass(frozen=True)
class Diagnosis:
    """What is wrong with one config."""

    name: str
    errors: list[str] = field(default_factory=list)
    """Why it cannot be used."""
    warnings: list[str] = field(default_factory=list)
    """What will probably not work."""

    def __str__(self) -> str:
        found = [f"  error: {error}" for error in self.errors]
        found += [f"  warning: {warning}" for warning in self.warnings]
        return "\n".join([f"{self.name}: {'' if found else 'good'}".rstrip(), *found])

    def as_json(self) -> dict[str, object]:
        """The form that `config check --json` prints."""
        return {"errors": self.errors, "warnings": self.warnings}


def check_config(path: Path, overrides: Sequence[str] = ()) -> Diagnosis:
    """What is wrong with the config that `path` stands for."""
    try:
        config = load_config(path, overrides)
    except ConfigError as error:
        return Diagnosis(str(path), errors=[str(error)])
    try:
        corpus = find_corpus(config.data, offline=True)
        sizes = {name: measure(read_pairs(pairs)) for name, pairs in corpus.items() if is_trained_on(name)}
    except ResourceError:  # a corpus that is fetched later
        return Diagnosis(str(path))
    except MtCliError as error:
        return Diagnosis(str(path), warnings=[str(error)])
    return Diagnosis(str(path), warnings=list(before_training(config, _plan(config, sizes))))


def _plan(config: Config, sizes: Mapping[str, CorpusSize]) -> Plan:
    """The size of the training, estimated from text that has no tokens yet.

    `sizes` are those of the corpus's own pairs and of each set that is added to them.
    """
    training, tokenizer = config.training, config.tokenizer
    shares = {f"{MORE}{name}": added.share for name, added in config.data.more.items()}
    per_epoch = updates_per_epoch(
        sum(size.num_tokens * shares.get(name, 1.0) for name, size in sizes.items()),
        tokens_per_batch=training.tokens_per_batch,
        accumulation=training.accumulation,
    )
    total_steps = per_epoch * training.max_epochs
    entries = tokenizer.vocab_size  # of both sides, if the text has so many
    if not tokenizer.joint:
        entries += tokenizer.tgt_vocab_size or tokenizer.vocab_size
    return Plan(
        num_pairs=sum(size.num_pairs for size in sizes.values()),
        num_tokens=sum(size.num_tokens for size in sizes.values()),
        vocab_size=min(entries, sizes[TRAIN].num_words) if tokenizer.kind == "spacy" else entries,
        total_steps=min(total_steps, training.max_steps or total_steps),
        steps_per_epoch=per_epoch,
    )
