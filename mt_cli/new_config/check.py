"""`config check`: what will probably go wrong in a training of a config."""

from mt_cli.config.schema import TRAIN, Config
from mt_cli.data.corpora import find_corpus
from mt_cli.errors import ConfigError, MtCliError, ResourceError, UsageError
from mt_cli.new_config.corpus_size import count_tokens, measure
from mt_cli.runs.opening import run_with_tokenizer
from mt_cli.training.warnings import warnings_before


def check_config(config: Config) -> list[str]:
    """Warnings for a training of `config`; a sample of the corpus is tokenized to find them.

    A corpus that is not downloaded yet gives none.

    Raises:
        ConfigError, UsageError: it cannot be used.
    """
    try:
        parent = run_with_tokenizer(config)
        corpus = find_corpus(config.data, offline=True)
        size = measure(corpus[TRAIN].pairs(), lowercase=config.data.lowercase)
        count = count_tokens(config, corpus, size, None if parent is None else parent.tokenizers)
    except ResourceError:  # a corpus that is fetched later
        return []
    except (ConfigError, UsageError):
        raise
    except MtCliError as error:
        return [str(error)]
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
    return list(warnings)
