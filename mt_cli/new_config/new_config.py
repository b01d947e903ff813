"""`config new`: a config that suits a corpus."""

import logging
from collections.abc import Mapping
from pathlib import Path

from mt_cli.config.load import dump_config, parse_config
from mt_cli.config.messages import command_line
from mt_cli.config.schema import (
    TRAIN,
    VAL,
    Column,
    Config,
    DataConfig,
    FilesConfig,
    check_utf8,
)
from mt_cli.data.checks import log_problems
from mt_cli.data.corpora import Corpus, files_of, find_corpus
from mt_cli.data.files import named_kind, without_packing
from mt_cli.data.prepare import warn_of_leaks
from mt_cli.data.tmx import languages_of
from mt_cli.errors import MtCliError, UsageError
from mt_cli.machine.files import (
    built_beside,
    check_outside,
    check_replaceable,
    locked,
    remove,
    write_atomically,
)
from mt_cli.machine.terminal import visible
from mt_cli.new_config.corpus_size import TokenCount, count_tokens, measure
from mt_cli.new_config.held_out import EMPTY, REPEATED, cut_off
from mt_cli.new_config.recipes import Tables, model_tables, recipe_for, training_table
from mt_cli.runs.opening import open_run, run_with_tokenizer
from mt_cli.text.language import language_named

log = logging.getLogger(__name__)
TEST = "test"


def new_config(
    files: Mapping[str, FilesConfig],
    *,
    src_lang: str | None = None,
    tgt_lang: str | None = None,
    parent: Path | None = None,
    output: Path | None = None,
    overwrite: bool = False,
) -> tuple[str, dict[str, int]]:
    """Write a config for the parallel `files` by split, or for the bundled sample without any.

    Returns its text, and how many pairs each split has that was cut off the corpus: if `val` or
    `test` is missing, it is cut off the training pairs, into a folder beside `output`. With a
    `parent` run, the config continues from that run's weights, with its tokenizer.

    Raises:
        UsageError: a place is taken, a name is not UTF-8, or a flag is missing.
        DataError: the files are missing, do not align, or hold too few pairs.
    """
    if output is not None:
        _check_output(output, overwrite=overwrite)
    trained = None if parent is None else open_run(parent).config
    data = DataConfig()
    cut_sizes: dict[str, int] = {}
    if files:
        if TRAIN not in files:
            raise UsageError(
                "--val and --test need training pairs beside them; name them with --train SRC TGT"
            )
        languages = _languages(files[TRAIN], src_lang, tgt_lang)
        data = _data_config(files, languages)
        corpus = find_corpus(data)
        given = {name: pair for name, pair in corpus.items() if name in files}
        examples = log_problems(given, data)
        warn_of_leaks(given, data)
        missing = [name for name in (VAL, TEST) if name not in files]
        if missing:
            cut_files, cut_sizes = _cut_off(
                corpus, missing, languages, output=output, overwrite=overwrite
            )
            data = _data_config({**files, **cut_files}, languages)
        log.info("%s", examples)
    try:
        config, count = _sized(data, trained, parent)
    except MtCliError:
        if cut_sizes:
            remove(data.files[TRAIN].src[0].parent)
        raise
    text = f"{_header(config, count, output, cut_sizes)}\n{dump_config(config, only_set=True)}"
    if output is not None:
        write_atomically(output, text.encode())
    log.info("training: about %s updates", f"{_total_steps(config, count):,}")
    return text, cut_sizes


def _check_output(output: Path, *, overwrite: bool) -> None:
    try:
        check_utf8(output)
    except ValueError as error:
        raise UsageError(f"{output}: {error}") from error
    if output.is_dir():
        raise UsageError(f"{output} is a folder; name a file, such as {output / 'mine.toml'}")
    if output.exists() and not overwrite:
        raise UsageError(f"{output} exists; --overwrite replaces it, --output names another")


def _sized(
    data: DataConfig, trained: Config | None, parent: Path | None
) -> tuple[Config, TokenCount]:
    """A config for the pairs of `data`, or one to continue from the `parent` run."""
    corpus = find_corpus(data)
    size = measure(corpus[TRAIN].pairs())
    recipe = recipe_for(size)
    tables: Tables = {
        "data": {
            "corpus": data.corpus,
            "src_lang": data.src_lang,
            "tgt_lang": data.tgt_lang,
            **data.model_dump(mode="json", exclude_defaults=True),
        },
        "training": {},
        **model_tables(size, recipe, trained),
    }
    if trained is not None:
        tables["tokenizer"]["from_run"] = str(parent)
        tables["training"]["init_from"] = str(parent)
        tables["data"] |= {"lowercase": trained.data.lowercase, "max_len": trained.data.max_len}
    config = parse_config(tables, origin="config new")
    with_tokenizer = run_with_tokenizer(config)  # raises if a parent's does not suit
    tokenizers = None if with_tokenizer is None else with_tokenizer.tokenizers
    count = count_tokens(config, corpus, size, tokenizers)
    tables["training"] |= training_table(recipe, count, trained)
    return parse_config(tables, origin="config new"), count


def _data_config(files: Mapping[str, FilesConfig], languages: tuple[str, str]) -> DataConfig:
    """[data] for `files`; the training pairs stand for `val` until it is cut off them."""
    named = {TRAIN: files[TRAIN], VAL: files[TRAIN], **files}
    src_lang, tgt_lang = languages
    data = {
        "corpus": "files",
        "splits": list(named),
        "files": {name: pair.model_dump(mode="json") for name, pair in named.items()},
        "src_lang": src_lang,
        "tgt_lang": tgt_lang,
    }
    return parse_config({"data": data}, origin="config new").data


def _languages(train: FilesConfig, src_lang: str | None, tgt_lang: str | None) -> tuple[str, str]:
    """The languages given, or else those in the names of files or columns.

    Raises:
        UsageError: one is neither given nor named.
    """
    src = src_lang or _language_of(train.src[0], train.src_column, place=0)
    tgt = tgt_lang or _language_of(train.tgt[0], train.tgt_column, place=1)
    if src is not None and tgt is not None:
        return src, tgt
    advice = []
    if src is None:
        advice.append("--src-lang de")
    if tgt is None:
        advice.append("--tgt-lang en")
    path = train.src[0] if src is None else train.tgt[0]
    raise UsageError(
        f"{path}: cannot tell the language from its name (expected an ending such as .de or "
        f".hsb); add for example {' '.join(advice)}"
    )


def _language_of(path: Path, column: Column | None, *, place: int) -> str | None:
    """The language in a column's name, as `translation.es`, or in a file's, as `train.es.gz`.

    Of a translation memory, it is the language of its first unit in this `place`.
    """
    if column is None and named_kind(path) == "tmx":
        return next(iter(languages_of(path)[place:]), None)
    return language_named(column if isinstance(column, str) else without_packing(path).name)


def _cut_off(
    corpus: Corpus,
    missing: list[str],
    languages: tuple[str, str],
    *,
    output: Path | None,
    overwrite: bool,
) -> tuple[dict[str, FilesConfig], dict[str, int]]:
    """The files of the splits that the training pairs are cut into, and how many pairs each has."""
    if output is None:
        flags = " and ".join(f"--{name} SRC TGT" for name in missing)
        raise UsageError(
            f"{' and '.join(missing)} are cut off the training pairs and need a place; name the "
            f"config's file with --output, or the pairs with {flags}"
        )
    folder = output.with_name(f"{output.stem}-corpus")
    src, tgt = languages
    if src == tgt:
        src, tgt = "src", "tgt"
    names = {split: (f"{split}.{src}", f"{split}.{tgt}") for split in (TRAIN, *missing)}
    check_replaceable(
        folder,
        is_wanted=overwrite,
        is_own=_was_cut_off,
        kind="a folder of splits that were cut off",
        ways_out="--overwrite replaces it, --output names another place",
    )
    check_outside(folder, files_of(corpus).values(), way_out="name another place with --output")
    with locked(folder), built_beside(folder) as partial:
        paths = {}
        for split, (src_name, tgt_name) in names.items():
            paths[split] = (partial / src_name, partial / tgt_name)
        counts = cut_off(corpus[TRAIN], paths)
    sizes = {split: counts[split] for split in names}
    log.info("%s  %s", folder, "  ".join(f"{name} {n:,} pairs" for name, n in sizes.items()))
    for reason in (REPEATED, EMPTY):
        if counts[reason]:
            log.info("%d pairs left out, %s", counts[reason], reason)
    cut_files = {}
    for split, (src_name, tgt_name) in names.items():
        cut_files[split] = FilesConfig(src=(folder / src_name,), tgt=(folder / tgt_name,))
    return cut_files, sizes


def _was_cut_off(folder: Path) -> bool:
    """Whether `folder` has two files of splits or more, whichever those were, and nothing else."""
    if not folder.is_dir():
        return False
    stems = [path.stem for path in folder.iterdir()]
    return stems.count(TRAIN) == 2 and all(stem in (TRAIN, VAL, TEST) for stem in stems)


def _total_steps(config: Config, count: TokenCount) -> int:
    training = config.training
    per_epoch = count.updates(training.tokens_per_batch, training.accumulation)
    return per_epoch * training.max_epochs


def _header(
    config: Config, count: TokenCount, output: Path | None, cut_sizes: Mapping[str, int]
) -> str:
    """Comment lines that say what the config is for and how to use it."""
    place = output or Path("mine.toml")
    lines = [
        f"{config.data.src_lang} to {config.data.tgt_lang}, sized by mt-cli config new for "
        f"{count.num_pairs:,} training pairs",
        f"with about {count.num_tokens:,} tokens: about {_total_steps(config, count):,} updates.",
    ]
    if cut_sizes:
        splits = ", ".join(f"{name} {size:,}" for name, size in cut_sizes.items())
        lines.append(f"The splits were cut off one corpus: {splits} pairs.")
    lines += [
        "docs/config.md explains every key. To use it:",
        f"  {command_line('prepare', place)}",
        f"  {command_line('train', place)}",
        f"  {command_line('evaluate', Path('runs') / place.stem, '--split', 'test')}",
    ]
    return "".join(f"# {visible(line)}\n" for line in lines)
