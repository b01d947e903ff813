"""`config new` and `config check`: a config that suits a corpus, and what is wrong with one.

Which vocabulary, model and training suit a corpus of some size are rules of thumb, each with its
reason.
"""

import logging
import math
import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mt_cli.config.load import commented_toml, parse_config
from mt_cli.config.schema import (
    MORE,
    TRAIN,
    VAL,
    Column,
    Config,
    DataConfig,
    FilesConfig,
    ModelConfig,
    TrainingConfig,
    check_utf8,
)
from mt_cli.data.batching import plan_epoch
from mt_cli.data.corpora import (
    Corpus,
    ParallelText,
    RawPair,
    Text,
    files_of,
    find_corpus,
    read_pairs,
)
from mt_cli.data.filter import text_options
from mt_cli.data.oddities import log_oddities
from mt_cli.data.prepare import encode_pairs, survey_pairs, warn_of_leaks
from mt_cli.data.prepared import EncodedSplit
from mt_cli.errors import DataError, MtCliError, ResourceError, UsageError, command_line, shortage
from mt_cli.machine.files import (
    built_beside,
    check_outside,
    check_replaceable,
    locked,
    remove,
    write_atomically,
)
from mt_cli.machine.terminal import in_words
from mt_cli.runs.run import build_model, open_run, run_with_tokenizer
from mt_cli.text.language import language_named
from mt_cli.text.normalize import Hashes, decode_line, hash_texts, normalize, strip_line_end
from mt_cli.text.tokenizer import Tokenizers, learn_tokenizers, sampled
from mt_cli.training.monitor import before_training

log = logging.getLogger(__name__)
BYTES_PER_TOKEN = 3
"""About, before a vocabulary is learned. Chinese and Japanese letters have three bytes each."""
MOST_WORDS = 50_000
"""Distinct words that are counted; more make no difference to any key, and take memory."""


@dataclass(frozen=True)
class CorpusSize:
    """The size of some training pairs with text on both sides."""

    num_pairs: int
    num_bytes: int
    """Of both sides, normalised, in UTF-8."""
    num_words: int
    """Distinct words of both sides, `MOST_WORDS` at most."""
    num_letters: int
    """Distinct characters of both sides."""


def measure(pairs: Iterable[RawPair]) -> CorpusSize:
    """Read `pairs` once and count."""
    num_pairs = num_bytes = 0
    words: set[str] = set()
    letters: set[str] = set()
    for pair in pairs:
        src, tgt = (normalize(decode_line(raw), lowercase=False) for raw in pair)
        if src and tgt:
            num_pairs += 1
            num_bytes += len(src.encode()) + len(tgt.encode())
            letters.update(src, tgt)
            if len(words) < MOST_WORDS:
                words.update(src.split(), tgt.split())
    return CorpusSize(num_pairs, num_bytes, min(len(words), MOST_WORDS), len(letters - {" "}))


Tables = dict[str, dict[str, object]]
"""Keys and values by section."""


@dataclass(frozen=True)
class Recipe:
    """Keys for corpora of up to `most_tokens`, both sides together."""

    most_tokens: float
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
    """Updates after which such a model has mostly learnt what there is."""

    def of_student(self) -> "Recipe":
        """Keys for a small, fast model that learns from a teacher's translations (Kim and Rush
        2016).

        They are simpler than people's, so that less of a model learns them, and needs less dropout.
        Most of its layers are in the encoder, which reads a sentence once (Kasai et al. 2021). Of
        the third recipe, configs/multi30k-tiny-student.toml comes out.
        """
        d_model = max(128, self.d_model * 2 // 3 // 64 * 64)
        return replace(
            self,
            d_model=d_model,
            num_heads=d_model * self.num_heads // self.d_model,
            encoder_layers=self.encoder_layers + 2,
            decoder_layers=self.decoder_layers // 2,
            dropout=0.1,
        )


# The third row is configs/multi30k-strong.toml, the last the base model of Vaswani et al. (2017).
# Few pairs want few subwords (Sennrich and Zhang 2019), each of which must occur often enough to be
# learnt, and much dropout (measured: docs/experiments.md).
RECIPES = (
    Recipe(60_000, 800, 128, 4, 2, 2, 512, 0.3, 1024, 3e-3, 1_500),
    Recipe(400_000, 1_000, 128, 4, 2, 2, 512, 0.3, 2048, 3e-3, 2_700),
    Recipe(3_000_000, 8_000, 192, 6, 4, 4, 512, 0.3, 2048, 2.5e-3, 7_000),
    Recipe(30_000_000, 16_000, 256, 8, 5, 5, 1024, 0.3, 4096, 1.5e-3, 18_000),
    Recipe(float("inf"), 32_000, 512, 8, 6, 6, 2048, 0.1, 8192, 7e-4, 100_000),
)
SPARE_ENTRIES = 260
"""Bytes and special symbols, which every subword vocabulary has."""
FEWEST_MERGES = 100
FEWEST_TOKENS_PER_BATCH = 256
UPDATES_PER_EPOCH = 8
"""At least so many batches make an epoch of a small corpus, so that they differ."""
VALIDATIONS = 20
"""So many are made in a training: enough to see how it goes, and few enough to cost little."""
FINE_TUNING = 0.25
"""Share of the updates, and of the learning rate, that a trained model gets on further data."""


def recipe_for(size: CorpusSize) -> Recipe:
    """Keys for a corpus of a size."""
    return next(
        recipe for recipe in RECIPES if size.num_bytes // BYTES_PER_TOKEN <= recipe.most_tokens
    )


def suited_model(size: CorpusSize, recipe: Recipe, parent: Config | None = None) -> Tables:
    """Keys of [tokenizer] and [model] for a new model, or those of a `parent`, whose weights fix
    them.
    """
    if parent is not None:
        return {
            name: getattr(parent, name).model_dump(mode="json", exclude_none=True)
            for name in ("tokenizer", "model")
        }
    # No more entries than the corpus has words, and enough to spell them.
    letters = SPARE_ENTRIES + size.num_letters
    vocab_size = max(letters + FEWEST_MERGES, min(recipe.vocab_size, letters + size.num_words))
    model = {key: value for key, value in asdict(recipe).items() if key in ModelConfig.model_fields}
    return {"tokenizer": {"vocab_size": vocab_size}, "model": model}


def suited_training(
    recipe: Recipe, pairs: "EncodedSample", config: Config, parent: Config | None = None
) -> dict[str, object]:
    """Keys of [training] for `config`'s model on `pairs`, or to go on from `parent`'s weights."""
    num_updates, peak_lr = recipe.num_updates, recipe.peak_lr
    if parent is not None:
        num_updates, peak_lr = (
            round(num_updates * FINE_TUNING),
            parent.training.peak_lr * FINE_TUNING,
        )
    of_epoch = int(pairs.num_tokens) // 2 // UPDATES_PER_EPOCH // 64 * 64
    tokens_per_batch = max(FEWEST_TOKENS_PER_BATCH, min(recipe.tokens_per_batch, of_epoch))
    training = config.training.model_copy(update={"tokens_per_batch": tokens_per_batch})
    per_epoch = pairs.updates_per_epoch(config.model_copy(update={"training": training}))
    max_epochs = max(3, -(-num_updates // per_epoch))
    return {
        "max_epochs": max_epochs,
        "tokens_per_batch": tokens_per_batch,
        "peak_lr": float(f"{peak_lr:.2g}"),
        "validate_every": max(50, max_epochs * per_epoch // VALIDATIONS // 10 * 10),
        "log_every": min(TrainingConfig().log_every, max(10, max_epochs * per_epoch // 100)),
    }


# What training will do: known from tokens


MOST_ENCODED = 50_000
"""Pairs that are tokenised; of a larger corpus, a sample."""
UNTIMED, TIMED_S, MOST_S = 3, 1.0, 10.0
"""The first updates, which choose kernels and take memory, are not timed; the others are, for a
second or so. All together may take about ten.
"""


@dataclass(frozen=True)
class EncodedSample:
    """Training pairs as tokens: all of a small corpus, or a sample."""

    tokenizers: Tokenizers
    split: EncodedSplit
    times: float
    """How many such samples an epoch has."""

    @staticmethod
    def of(config: Config, corpus: Corpus, given: Tokenizers | None = None) -> "EncodedSample":
        """Tokenise the pairs that `config` trains on; without `given` tokenizers, learn them as it
        says.
        """
        data = config.data
        options = text_options(data)
        sample = sampled(read_pairs(corpus[TRAIN]), MOST_ENCODED, seed=0)
        found = survey_pairs(
            sample, options=options, filtered=data.filter, keeps_pairs=given is None
        )
        if given is None:
            given = learn_tokenizers(found.pairs, config.tokenizer, options)
        kept = [pair for pair, drop in zip(sample, found.drops.tolist(), strict=True) if not drop]
        split = encode_pairs(kept, tokenizers=given, max_len=data.max_len).split
        if not len(split):
            raise DataError(
                f"{corpus[TRAIN].src}: no pair is left to train on: each is empty, longer than "
                f"data.max_len = {data.max_len} tokens, or left out by data.filter"
            )
        shares = {TRAIN: 1.0, **{f"{MORE}{name}": more.share for name, more in data.more.items()}}
        whole = sum(
            share * sum(1 for _ in read_pairs(corpus[name]))
            for name, share in shares.items()
            if name in corpus
        )
        return EncodedSample(given, split, whole / len(sample))

    @property
    def num_pairs(self) -> float:
        """Of an epoch."""
        return len(self.split) * self.times

    @property
    def num_tokens(self) -> float:
        """Of an epoch, both sides together."""
        return (len(self.split.src.ids) + len(self.split.tgt.ids)) * self.times

    @property
    def vocab_size(self) -> int:
        """Entries of both sides."""
        src, tgt = self.tokenizers.src.vocab_size, self.tokenizers.tgt.vocab_size
        return src if self.tokenizers.joint else src + tgt

    def updates_per_epoch(self, config: Config) -> int:
        """Updates that `config` makes of an epoch."""
        rng = np.random.default_rng([config.runtime.seed, 0])
        batches = plan_epoch(
            self.split,
            tokens_per_batch=config.training.tokens_per_batch,
            max_width=config.model.max_len,
            rng=rng,
        )
        return max(
            1, math.ceil(sum(1 for _ in batches) * self.times / config.training.accumulation)
        )

    def seconds_an_update(self, config: Config) -> float | None:
        """Train for a moment, and take the time; None if the moment is too short to tell."""
        from mt_cli.machine.device import choose_runtime, set_up_process
        from mt_cli.training.trainer import Trainer

        asked = config.runtime
        set_up_process(threads=asked.threads)
        runtime = choose_runtime(device=asked.device, precision=asked.precision)
        model = build_model(config.model, self.tokenizers, seed=asked.seed).to(runtime.device)
        training = config.training.model_copy(update={"max_epochs": 1})
        trainer = Trainer(model, self.split, training, runtime=runtime, seed=asked.seed)
        ends = [time.perf_counter()]
        for report in trainer.run():
            float(report.loss)  # waits for the device
            ends.append(time.perf_counter())
            if (len(ends) > UNTIMED and ends[-1] - ends[UNTIMED] > TIMED_S) or ends[-1] - ends[
                0
            ] > MOST_S:
                break
        seconds = np.diff(ends)[UNTIMED:]
        return float(np.median(seconds)) if len(seconds) else None


# A config for a corpus

TEST = "test"


def new_config(
    files: Mapping[str, FilesConfig],
    *,
    src_lang: str | None = None,
    tgt_lang: str | None = None,
    parent: Path | None = None,
    teacher: Path | None = None,
    output: Path | None = None,
    overwrite: bool = False,
) -> tuple[str, dict[str, int]]:
    """Write a config for the parallel `files` by split, or for the bundled sample if there are
    none.

    Gives its text, and how many pairs each split has that was cut off the corpus: if `val` or
    `test` is missing, it is cut off the training pairs, into a folder beside `output`. With a
    `parent` run, the config goes on from that run's weights, with its tokenizer. With the lines
    that a `teacher` wrote for the training sources, the model is a student of it, and sees its
    pairs as often as the others.

    Raises:
        UsageError: a place is taken, a name is not UTF-8, or a flag is missing.
        DataError: the files are missing, do not align, or hold too few pairs.
    """
    if output is not None:
        try:
            check_utf8(output)
        except ValueError as error:
            raise UsageError(f"{output}: {error}") from error
        if output.exists() and not overwrite:
            raise UsageError(f"{output} exists; --overwrite replaces it, --output names another")
    trained = None if parent is None else open_run(parent).config
    data, pairs = DataConfig(), dict[str, int]()
    if teacher is not None and parent is not None:
        raise UsageError(
            "--teacher makes a small model and --init-from keeps the run's; give one of them"
        )
    if teacher is not None and not files.keys() >= {TRAIN, VAL, TEST}:
        raise UsageError(
            "--teacher needs --train, --val and --test SRC TGT: it has translated what would be "
            "cut off; config new without it cuts the pairs"
        )
    if files:
        if TRAIN not in files:
            raise UsageError(
                "--val and --test need training pairs beside them; name them with --train SRC TGT"
            )
        train = files[TRAIN]
        languages = _languages(train, src_lang, tgt_lang)
        data = _data_config(files, languages, teacher)
        given = {
            name: pair for name, pair in find_corpus(data).items() if name in files or MORE in name
        }
        examples = log_oddities(given, data)
        warn_of_leaks(given)
        if missing := [name for name in (VAL, TEST) if name not in files]:
            cut, pairs = _cut_off(
                find_corpus(data), missing, languages, output=output, overwrite=overwrite
            )
            data = _data_config({**files, **cut}, languages)
        log.info("%s", examples)
    try:
        config, sample = _sized(data, trained, parent)
    except MtCliError:
        if pairs:
            remove(data.files[TRAIN].src[0].parent)
        raise
    per_epoch = sample.updates_per_epoch(config)
    total_steps = per_epoch * config.training.max_epochs
    text = commented_toml(config, header=_header(config, sample, per_epoch, output, pairs))
    if output is not None:
        write_atomically(output, text.encode())
    log.info("training: %s updates%s", f"{total_steps:,}", _expected(sample, config, total_steps))
    return text, pairs


def _sized(
    data: DataConfig, trained: Config | None, parent: Path | None
) -> tuple[Config, EncodedSample]:
    """A config for the pairs of `data`, or to go on from the `parent` run, whose config `trained`
    is.
    """
    corpus = find_corpus(data)
    size = measure(read_pairs(corpus[TRAIN]))
    recipe = recipe_for(size).of_student() if data.more else recipe_for(size)
    tables: Tables = {
        "data": data.model_dump(mode="json", exclude_none=True),
        **suited_model(size, recipe, trained),
    }
    if trained is not None:
        tables["tokenizer"]["from_run"] = str(parent)
        tables["training"] = {"init_from": str(parent)}
        tables["data"] |= {"lowercase": trained.data.lowercase, "max_len": trained.data.max_len}
    config = parse_config(tables, origin="config new")
    tokenized_by = run_with_tokenizer(config)  # which says if a parent's does not suit
    sample = EncodedSample.of(
        config, corpus, None if tokenized_by is None else tokenized_by.tokenizers
    )
    tables["training"] = {
        **tables.get("training", {}),
        **suited_training(recipe, sample, config, trained),
    }
    return parse_config(tables, origin="config new"), sample


def _expected(sample: EncodedSample, config: Config, total_steps: int) -> str:
    """How long training will take, as far as that can be tried here."""
    try:
        seconds = sample.seconds_an_update(config)
    except Exception as error:
        if isinstance(error, MtCliError) or shortage(error):  # it may be for a larger machine
            return ""
        raise
    return (
        ""
        if seconds is None
        else f", about {in_words(seconds * total_steps)} here, without validations"
    )


def _data_config(
    files: Mapping[str, FilesConfig], languages: tuple[str, str], teacher: Path | None = None
) -> DataConfig:
    """[data] for `files`, of which the training pairs stand for `val` until it is cut off them."""
    named = {TRAIN: files[TRAIN], VAL: files[TRAIN], **files}
    tables: Tables = {
        "data": {
            "corpus": "files",
            "splits": list(named),
            "files": {name: pair.model_dump(mode="json") for name, pair in named.items()},
            "src_lang": languages[0],
            "tgt_lang": languages[1],
        }
    }
    if teacher is not None:
        own = files[TRAIN].model_dump(mode="json", include={"src", "src_column"}, exclude_none=True)
        tables["data"]["more"] = {"teacher": {**own, "tgt": str(teacher)}}
    return parse_config(tables, origin="config new").data


def _languages(train: FilesConfig, src_lang: str | None, tgt_lang: str | None) -> tuple[str, str]:
    """The languages that are given, or else those that the files' or the columns' names say.

    Raises:
        UsageError: one is neither given nor named.
    """
    found = (
        src_lang or _language_of(train.src[0], train.src_column),
        tgt_lang or _language_of(train.tgt[0], train.tgt_column),
    )
    src, tgt = found
    if src is None or tgt is None:
        path = train.src[0] if src is None else train.tgt[0]
        flags = [f"--src-lang {src or 'de'}", f"--tgt-lang {tgt or 'en'}"]
        missing = [flag for flag, lang in zip(flags, found, strict=True) if lang is None]
        raise UsageError(
            f"{path}: cannot tell the language from its name (expected an ending such as .de or "
            f".hsb); add for example {' '.join(missing)}"
        )
    return src, tgt


def _language_of(path: Path, column: Column | None) -> str | None:
    """The language named by a column, as `translation.es`, or by a file's ending, as `train.es.gz`."""
    name = column if isinstance(column, str) else re.sub(r"\.(gz|zst|xz|bz2)$", "", path.name)
    return language_named(name)


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
        raise UsageError(
            f"{' and '.join(missing)} are cut off the training pairs and need a place; name the "
            "config's file with --output, or the pairs with "
            f"{' and '.join(f'--{name} SRC TGT' for name in missing)}"
        )
    folder = output.with_name(f"{output.stem}-corpus")
    src, tgt = languages if len(set(languages)) == 2 else ("src", "tgt")
    names = {split: (f"{split}.{src}", f"{split}.{tgt}") for split in (TRAIN, *missing)}
    own_files = [name for pair in names.values() for name in pair]
    check_replaceable(
        folder,
        is_wanted=overwrite,
        own_files=own_files,
        kind=f"a folder of {', '.join(own_files)}",
        ways_out="--overwrite replaces it, --output names another place",
    )
    check_outside(folder, files_of(corpus).values(), way_out="name another place with --output")
    with locked(folder), built_beside(folder) as partial:
        counts = cut_off(
            corpus[TRAIN], {n: (partial / src, partial / tgt) for n, (src, tgt) in names.items()}
        )
    pairs = {name: counts[name] for name in names}
    log.info(
        "%s  %s", folder, "  ".join(f"{name} {count:,} pairs" for name, count in pairs.items())
    )
    for reason in (REPEATED, EMPTY):
        if counts[reason]:
            log.info("%d pairs left out, %s", counts[reason], reason)
    cut = {
        name: FilesConfig(src=(folder / src,), tgt=(folder / tgt,))
        for name, (src, tgt) in names.items()
    }
    return cut, pairs


def _header(
    config: Config,
    sample: EncodedSample,
    per_epoch: int,
    output: Path | None,
    pairs: Mapping[str, int],
) -> str:
    place = output or Path("mine.toml")
    cut = f" The splits were cut off one corpus: {', '.join(f'{n} {c:,}' for n, c in pairs.items())} pairs."
    size = f"{sample.num_pairs:,.0f} training pairs, about {sample.num_tokens:,.0f} tokens"
    return (
        f"{config.data.src_lang} to {config.data.tgt_lang}, sized by mt-cli config new for "
        f"{size}.{cut if pairs else ''}\nAbout {per_epoch * config.training.max_epochs:,} updates, "
        f"{per_epoch} an epoch. To use it:\n  {command_line('prepare', place)}\n  "
        f"{command_line('train', place)}\n  "
        f"{command_line('evaluate', Path('runs') / place.stem, '--split', 'test')}"
    )


SHARE = 0.05
FEWEST, MOST = 50, 2000
"""Pairs of a split: fewer give a score that says little, more cost training pairs and time."""
MOST_OF_A_SMALL_CORPUS = 0.1
SMALLEST_CORPUS = 20
"""Pairs that differ on both sides, without which there is nothing to cut off."""


REPEATED, EMPTY = "whose source or target is in a held-out pair", "because a side is empty"
"""Why pairs are left out."""


def cut_off(corpus: ParallelText, files: Mapping[str, tuple[Path, Path]]) -> Counter[str]:
    """Write the pairs of `corpus` to the `files` of `train` and of the other, new splits; count
    each split's.

    A pair stays out of training if its source or its target is that of a held-out pair, whatever
    its case and spaces. Pairs that are left out are counted as `REPEATED` or `EMPTY`.

    Raises:
        DataError: the corpus is too small, or its files do not align.
    """
    lines = (line for pair in read_pairs(corpus) for line in pair)
    hashes = hash_texts(normalize(decode_line(line), lowercase=True) for line in lines).reshape(
        -1, 2
    )  # (N, 2)
    is_filled = (hashes != hash_texts([""])).all(axis=1)
    place_of = _choose(
        hashes, is_filled, [name for name in files if name != TRAIN], origin=corpus.src
    )
    held_out = hashes[sorted(place_of)]
    repeats = np.isin(hashes[:, 0], held_out[:, 0]) | np.isin(hashes[:, 1], held_out[:, 1])
    counts = Counter[str]()
    with ExitStack() as stack:
        opened = {
            name: [stack.enter_context(path.open("wb")) for path in paths]
            for name, paths in files.items()
        }
        for index, pair in enumerate(read_pairs(corpus)):
            name = (
                place_of.get(index, REPEATED if repeats[index] else TRAIN)
                if is_filled[index]
                else EMPTY
            )
            counts[name] += 1
            for file, line in zip(opened.get(name, ()), pair, strict=False):
                file.write(strip_line_end(line) + b"\n")
    if not counts[TRAIN]:
        raise DataError(
            f"{corpus.src}: every pair repeats a held-out one; nothing is left to train on"
        )
    return counts


def _choose(
    hashes: Hashes, is_filled: NDArray[np.bool_], names: Sequence[str], *, origin: Text
) -> dict[int, str]:
    """The split of each pair that is held out: pairs of which no two share a side, as if drawn at
    random.
    """
    num_different = min(len(np.unique(side)) for side in hashes[is_filled].T)
    size = num_held_out(num_different)
    chosen: dict[int, str] = {}
    seen: set[tuple[int, int]] = set()
    # In order of hash, source first, then target: the choice does not depend on the file's order.
    for index in np.lexsort((hashes[:, 1], hashes[:, 0])).tolist():
        sides = set(enumerate(hashes[index].tolist()))
        if len(chosen) == size * len(names):
            break
        if is_filled[index] and seen.isdisjoint(sides):
            seen |= sides
            chosen[index] = names[len(chosen) // size]
    if num_different < SMALLEST_CORPUS or len(chosen) < size * len(names):
        raise DataError(
            f"{origin}: only {num_different} different pairs, too few to cut off "
            f"{' and '.join(names)}; {SMALLEST_CORPUS} at least are needed"
        )
    return chosen


def num_held_out(num_pairs: int) -> int:
    """Pairs of a held-out split, of `num_pairs` that differ."""
    wanted = min(MOST, max(FEWEST, round(num_pairs * SHARE)))
    return max(1, min(wanted, int(num_pairs * MOST_OF_A_SMALL_CORPUS)))


def check_config(config: Config) -> list[str]:
    """Warnings for a training of `config`; the corpus, or a sample of it, is tokenised to find
    them.

    A corpus that is not downloaded yet gives none.
    """
    try:
        parent = run_with_tokenizer(config)
        corpus = find_corpus(config.data, offline=True)
        sample = EncodedSample.of(config, corpus, None if parent is None else parent.tokenizers)
    except ResourceError:  # a corpus that is fetched later
        return []
    except MtCliError as error:
        return [str(error)]
    total_steps = sample.updates_per_epoch(config) * config.training.max_epochs
    warnings = before_training(
        config,
        num_pairs=round(sample.num_pairs),
        num_tokens=round(sample.num_tokens),
        vocab_size=sample.vocab_size,
        total_steps=min(total_steps, config.training.max_steps or total_steps),
    )
    return list(warnings)
