"""`config new`: write a config that suits a corpus."""

import logging
import math
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

from mt_cli.config.load import command_line, dump_config, parse_config
from mt_cli.config.schema import (
    SIDES,
    TEST,
    TRAIN,
    VAL,
    Column,
    Config,
    DataConfig,
    FilesConfig,
    ModelConfig,
    TrainingConfig,
    is_utf8,
)
from mt_cli.data.checks import check_corpus
from mt_cli.data.corpora import Corpus, ParallelText, files_of, find_corpus, matching
from mt_cli.data.held_out import EMPTY, REPEATED, cut_off
from mt_cli.data.size import CorpusSize, TokenCount, count_tokens, measure
from mt_cli.data.text_files import named_kind, without_packing
from mt_cli.data.tmx import tmx_languages
from mt_cli.errors import DataError, UsageError
from mt_cli.machine.files import (
    built_beside,
    check_outside,
    check_replaceable,
    remove,
    write_atomically,
)
from mt_cli.machine.locks import locked
from mt_cli.machine.terminal import visible
from mt_cli.runs.opening import open_run, run_with_tokenizer
from mt_cli.text.language import language_code_in, likely_language
from mt_cli.text.normalize import decode_line, normalize

log = logging.getLogger(__name__)

LANGUAGE_LINES = 1000
"""Number of lines of a side for detecting its language."""


BYTES_PER_TOKEN = 3
"""A rough estimate before a vocabulary is learned; CJK characters have three bytes each."""
SPECIAL_ENTRIES = 260
"""Bytes and special symbols in every subword vocabulary."""
MIN_MERGES = 100
MIN_TOKENS_PER_BATCH = 256
MIN_UPDATES_PER_EPOCH = 8
"""Minimum for small corpora, so that epochs differ."""
NUM_VALIDATIONS = 20
"""Validations per training: enough to see the progress, few enough to cost little."""
FINE_TUNING = 0.25
"""Factor for the updates and the learning rate when fine-tuning a trained model."""

Tables = dict[str, dict[str, object]]
"""Keys and values, by section."""


@dataclass(frozen=True)
class Recipe:
    """Keys for corpora of up to `max_tokens`, both sides together."""

    max_tokens: float
    vocab_size: int
    d_model: int
    num_heads: int
    encoder_layers: int
    decoder_layers: int
    d_ff: int
    dropout: float
    tokens_per_batch: int
    peak_lr: float
    num_updates: int
    """Updates after which such a model hardly improves."""


# Small corpora need small vocabularies (Sennrich and Zhang 2019), so that each subword occurs often
# enough to be learned, and high dropout (measured: docs/lab/training.md).
RECIPES = (
    Recipe(60_000, 800, 128, 4, 2, 2, 512, 0.3, 1024, 3e-3, 1_500),
    Recipe(400_000, 1_000, 128, 4, 2, 2, 512, 0.3, 2048, 3e-3, 2_700),
    Recipe(3_000_000, 8_000, 192, 6, 4, 4, 512, 0.3, 2048, 2.5e-3, 7_000),
    Recipe(30_000_000, 16_000, 256, 8, 5, 5, 1024, 0.3, 4096, 1.5e-3, 18_000),
    Recipe(math.inf, 32_000, 512, 8, 6, 6, 2048, 0.1, 8192, 7e-4, 100_000),
)


def recipe_for(size: CorpusSize) -> Recipe:
    """The recipe for a corpus of this size."""
    num_tokens = size.num_bytes // BYTES_PER_TOKEN
    return next(recipe for recipe in RECIPES if num_tokens <= recipe.max_tokens)


def model_tables(size: CorpusSize, recipe: Recipe, parent: Config | None = None) -> Tables:
    """Keys of [tokenizer] and [model] for a new model, or those of the `parent` run."""
    if parent is not None:
        return {
            "tokenizer": parent.tokenizer.model_dump(mode="json", exclude_none=True),
            "model": parent.model.model_dump(mode="json", exclude_none=True),
        }
    # At most as many entries as the corpus has words, and enough to spell them.
    spelling = SPECIAL_ENTRIES + size.num_letters
    vocab_size = max(spelling + MIN_MERGES, min(recipe.vocab_size, spelling + size.num_words))
    model = {key: value for key, value in asdict(recipe).items() if key in ModelConfig.model_fields}
    return {"tokenizer": {"vocab_size": vocab_size}, "model": model}


def training_table(
    recipe: Recipe, count: TokenCount, parent: Config | None = None
) -> dict[str, object]:
    """Keys of [training] for this many tokens, or for fine-tuning the `parent` run."""
    num_updates = recipe.num_updates
    peak_lr = recipe.peak_lr
    if parent is not None:
        num_updates = round(num_updates * FINE_TUNING)
        peak_lr = parent.training.peak_lr * FINE_TUNING
    # A multiple of 64 that gives enough batches per epoch in a small corpus.
    tokens_per_batch = count.num_tokens // 2 // MIN_UPDATES_PER_EPOCH // 64 * 64
    tokens_per_batch = max(MIN_TOKENS_PER_BATCH, min(recipe.tokens_per_batch, tokens_per_batch))
    per_epoch = count.updates(tokens_per_batch)
    max_epochs = max(3, math.ceil(num_updates / per_epoch))
    total = max_epochs * per_epoch
    return {
        "max_epochs": max_epochs,
        "tokens_per_batch": tokens_per_batch,
        "peak_lr": float(f"{peak_lr:.2g}"),
        "validate_every": max(50, total // NUM_VALIDATIONS // 10 * 10),
        "log_every": min(TrainingConfig().log_every, max(10, total // 100)),
    }


def new_config(
    files: Mapping[str, FilesConfig],
    *,
    src_lang: str | None = None,
    tgt_lang: str | None = None,
    parent: Path | None = None,
    output: Path | None = None,
    overwrite: bool = False,
) -> tuple[str, dict[str, int]]:
    """Write a config for the parallel `files`, by split, or without files for the bundled sample.

    Missing `val` and `test` splits are split off the training pairs, into a folder next to
    `output`. Returns the config's text, and the number of pairs per new split. With a `parent` run,
    the config continues from that run's weights, with its tokenizer.

    Raises:
        UsageError: a file already exists, a name is not UTF-8, or a flag is missing.
        DataError: the files are missing, do not align, or have too few pairs.
    """
    if output is not None:
        _check_output(output, overwrite=overwrite)
    trained = None if parent is None else open_run(parent).config
    data = DataConfig()
    cut_sizes: dict[str, int] = {}
    undo = ExitStack()
    if files:
        if TRAIN not in files:
            raise UsageError("--val and --test need training pairs: --train SRC TGT")
        for pair in files.values():
            for path in matching((*(pair.src or ()), *(pair.tgt or ()))):
                if not path.exists():
                    raise DataError(f"{path}: no such file")
        languages = _languages(files[TRAIN], src_lang, tgt_lang)
        files = {name: _by_language(pair, languages) for name, pair in files.items()}
        data = _data_config(files, languages)
        corpus = find_corpus(data)
        check_corpus({name: pair for name, pair in corpus.items() if name in files}, data)
        missing = [name for name in (VAL, TEST) if name not in files]
        if missing:
            cut_files, cut_sizes = _cut_off(
                corpus, missing, languages, output=output, overwrite=overwrite
            )
            data = _data_config({**files, **cut_files}, languages)
            undo.callback(remove, data.files[TRAIN].src[0].parent)
    with undo:
        config, count = _sized(data, trained, parent)
        undo.pop_all()
    text = f"{_header(config, count, output, cut_sizes)}\n{dump_config(config, only_set=True)}"
    if output is not None:
        write_atomically(output, text.encode())
    log.info("training: about %s updates", f"{_total_steps(config, count):,}")
    return text, cut_sizes


def named_as(train: FilesConfig) -> Path:
    """A config in the current folder, named after the first file of the training pairs."""
    return Path(without_packing(train.src[0]).name).with_suffix(".toml")


def _check_output(output: Path, *, overwrite: bool) -> None:
    if not is_utf8(output):
        raise UsageError(f"{output}: the file's name is not UTF-8; rename it")
    if output.is_dir():
        raise UsageError(f"{output} is a folder; use a file, such as {output / 'mine.toml'}")
    if output.exists() and not overwrite:
        raise UsageError(
            f"{output} already exists; --overwrite replaces it, --output FILE writes another"
        )


def _sized(
    data: DataConfig, trained: Config | None, parent: Path | None
) -> tuple[Config, TokenCount]:
    """A config for the pairs of `data`, or one to continue from the `parent` run."""
    corpus = find_corpus(data)
    size = measure(corpus[TRAIN].pairs(), lowercase=trained is not None and trained.data.lowercase)
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
    with_tokenizer = run_with_tokenizer(config)  # raises if a parent's tokenizer does not fit
    tokenizers = None if with_tokenizer is None else with_tokenizer.tokenizers
    count = count_tokens(config, size, tokenizers)
    tables["training"] |= training_table(recipe, count, trained)
    return parse_config(tables, origin="config new"), count


def _data_config(files: Mapping[str, FilesConfig], languages: tuple[str, str]) -> DataConfig:
    """[data] for `files`; a missing `val` is the training pairs until it is split off."""
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
    """The given languages, or those in the names of files or columns, or detected from the text.

    Raises:
        UsageError: a language is neither given nor named, and cannot be detected.
    """
    named = {
        "src": src_lang or _language_of(train.src[0], train.src_column, place=0),
        "tgt": tgt_lang or _language_of(train.tgt[0], train.tgt_column, place=1),
    }
    unnamed = [side for side in SIDES if named[side] is None]
    if unnamed:
        text = ParallelText.of(train)
        for side in unnamed:
            lines = (text.src if side == "src" else text.tgt).lines()
            sample = normalize(" ".join(map(decode_line, islice(lines, LANGUAGE_LINES))))
            named[side] = likely_language(sample)
    src = named["src"]
    tgt = named["tgt"]
    if src is None or tgt is None or (unnamed and src == tgt):
        flags = {"src": "--src-lang de", "tgt": "--tgt-lang en"}
        advice = " ".join(flags[side] for side in unnamed)
        raise UsageError(
            f"{train.src[0]}: cannot tell the languages from file names or text; add {advice}"
        )
    if unnamed:
        log.info("detected %s and %s; if wrong, set --src-lang and --tgt-lang", src, tgt)
    return src, tgt


def _by_language(files: FilesConfig, languages: tuple[str, str]) -> FilesConfig:
    """`files`, where a translation memory gets its languages as columns, in either order."""
    if named_kind(files.src[0]) != "tmx" or files.src_column is not None:
        return files
    src_lang, tgt_lang = languages
    return files.model_copy(update={"src_column": src_lang, "tgt_column": tgt_lang})


def _language_of(path: Path, column: Column | None, *, place: int) -> str | None:
    """The language in the name of a column (`translation.es`) or of a file (`train.es.gz`).

    For a translation memory, it is the language at index `place` in its first unit.
    """
    if column is None and named_kind(path) == "tmx":
        return next(iter(tmx_languages(path)[place:]), None)
    return language_code_in(column if isinstance(column, str) else without_packing(path).name)


def _cut_off(
    corpus: Corpus,
    missing: list[str],
    languages: tuple[str, str],
    *,
    output: Path | None,
    overwrite: bool,
) -> tuple[dict[str, FilesConfig], dict[str, int]]:
    """Split `missing` off the training pairs; returns the files and sizes of all new splits."""
    if output is None:
        flags = " and ".join(f"--{name} SRC TGT" for name in missing)
        raise UsageError(
            f"{' and '.join(missing)} must be split off: say where with --output, or give {flags}"
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
        kind="a folder of splits made by config new",
        ways_out="--overwrite replaces it, --output FILE writes elsewhere",
    )
    check_outside(folder, files_of(corpus).values(), way_out="choose another place with --output")
    with locked(folder), built_beside(folder) as partial:
        paths = {}
        for split, (src_name, tgt_name) in names.items():
            paths[split] = (partial / src_name, partial / tgt_name)
        counts = cut_off(corpus[TRAIN], paths)
    sizes = {split: counts[split] for split in names}
    log.info("%s  %s", folder, "  ".join(f"{name} {n:,} pairs" for name, n in sizes.items()))
    for reason in (REPEATED, EMPTY):
        if counts[reason]:
            log.info("skipped %d pairs %s", counts[reason], reason)
    cut_files = {}
    for split, (src_name, tgt_name) in names.items():
        cut_files[split] = FilesConfig(src=(folder / src_name,), tgt=(folder / tgt_name,))
    return cut_files, sizes


def _was_cut_off(folder: Path) -> bool:
    """Whether `folder` has only files of splits, with both sides of `train`."""
    if not folder.is_dir():
        return False
    stems = [path.stem for path in folder.iterdir()]
    return stems.count(TRAIN) == 2 and all(stem in (TRAIN, VAL, TEST) for stem in stems)


def _total_steps(config: Config, count: TokenCount) -> int:
    training = config.training
    per_epoch = count.updates(training.tokens_per_batch)
    return per_epoch * training.max_epochs


def _header(
    config: Config, count: TokenCount, output: Path | None, cut_sizes: Mapping[str, int]
) -> str:
    """Comment lines that say what the config is for and how to use it."""
    place = output or Path("mine.toml")
    lines = [
        f"{config.data.src_lang} to {config.data.tgt_lang}, sized by mt-cli config new for "
        f"{count.num_pairs:,} training pairs:",
        f"about {count.num_tokens:,} tokens, {_total_steps(config, count):,} updates.",
    ]
    if cut_sizes:
        splits = ", ".join(f"{name} {size:,}" for name, size in cut_sizes.items())
        lines.append(f"The splits come from one corpus: {splits} pairs.")
    lines.append("docs/config.md explains every key. To use it:")
    for command in ("prepare", "train"):
        lines.append(f"  {command_line(command, place)}")
    return "".join(f"# {visible(line)}\n" for line in lines)
