"""`config check`: what will probably go wrong in a training of a config."""

from collections.abc import Iterator
from pathlib import Path

from mt_cli.config.schema import TRAIN, Config
from mt_cli.data.corpora import PairSource, find_corpus, monolingual_text
from mt_cli.errors import ConfigError, DataError, MtCliError, ResourceError, UsageError
from mt_cli.new_config.corpus_size import count_tokens, measure
from mt_cli.runs.opening import open_run, run_with_tokenizer
from mt_cli.training.trackers import check_tracker
from mt_cli.training.warnings import warnings_before


def check_config(config: Config) -> list[str]:
    """Warnings for a training of `config`; a sample of the corpus is tokenized to find them.

    What is not there yet, such as a run or a file, gives a warning; a corpus that is not downloaded
    yet gives none.

    Raises:
        ConfigError, UsageError: it cannot be used.
    """
    missing = list(_missing(config))
    try:
        parent = run_with_tokenizer(config)
        corpus = find_corpus(config.data, offline=True)
        for name, split in corpus.items():
            if name != TRAIN:
                _read_through(split)
        size = measure(corpus[TRAIN].pairs(), lowercase=config.data.lowercase)
        count = count_tokens(config, corpus, size, None if parent is None else parent.tokenizers)
    except ResourceError:  # a corpus that is fetched later
        return missing
    except (ConfigError, UsageError):
        raise
    except MtCliError as error:
        return [*missing, str(error)]
    training = config.training
    per_epoch = count.updates(training.tokens_per_batch, training.accumulation)
    total_steps = per_epoch * training.max_epochs
    if training.max_steps is not None:
        total_steps = min(total_steps, training.max_steps)
    warnings = warnings_before(
        config,
        num_pairs=count.num_pairs,
        num_tokens=count.num_tokens,
        vocab_size=count.vocab_size,
        total_steps=total_steps,
    )
    return [*missing, *warnings]


def _missing(config: Config) -> Iterator[str]:
    """What the config names besides its corpus and cannot be used now: runs, texts, a package."""
    try:
        check_tracker(config.runtime.track)
    except MtCliError as error:
        yield str(error)
    runs = [config.training.init_from, *(config.training.distil_from or ())]
    for name, more in config.data.more.items():
        if more.translate_with is None:
            continue
        runs.append(more.translate_with)
        try:
            monolingual_text(config.data, name, source=None, offline=True)
        except ResourceError:  # captions that are fetched later
            pass
        except DataError as error:
            yield str(error)
    for run in dict.fromkeys(runs):
        if run is not None:
            yield from _why_unusable(run)


def _why_unusable(run: Path) -> Iterator[str]:
    try:
        open_run(run)
    except MtCliError as error:
        yield str(error)


def _read_through(split: PairSource) -> None:
    """Raise a DataError if the sides of a split do not align."""
    for _ in split.pairs():
        pass
