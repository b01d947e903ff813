"""The `config check` command: what is wrong with a config, and what will probably not work.

Reads the training files where they are at hand; prepares and trains nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mt_cli.artefacts.corpora import MORE, TRAIN, find_corpus, is_trained_on, read_pairs
from mt_cli.config import Config, TokenizerConfig, load_config
from mt_cli.errors import ConfigError, MtCliError, ResourceError
from mt_cli.stages.configure.corpus_size import CorpusSize, measure
from mt_cli.stages.configure.sizing import updates_per_epoch
from mt_cli.stages.train.advice import Plan, before_training


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
    return Diagnosis(str(path), warnings=before_training(config, _plan(config, sizes)))


def _vocab_size(tokenizer: TokenizerConfig, size: CorpusSize) -> int:
    """Entries of both sides, if the text has so many."""
    tgt_size = 0 if tokenizer.joint else tokenizer.tgt_vocab_size or tokenizer.vocab_size
    both = tokenizer.vocab_size + tgt_size
    return min(both, size.num_words) if tokenizer.kind == "spacy" else both


def _plan(config: Config, sizes: Mapping[str, CorpusSize]) -> Plan:
    """The size of the training, estimated from text that has no tokens yet.

    `sizes` are those of the corpus's own pairs and of each set that is added to them.
    """
    training = config.training
    shares = {f"{MORE}{name}": added.share for name, added in config.data.more.items()}
    per_epoch = updates_per_epoch(
        sum(size.num_tokens * shares.get(name, 1.0) for name, size in sizes.items()),
        tokens_per_batch=training.tokens_per_batch,
        accumulation=training.accumulation,
    )
    total_steps = per_epoch * training.max_epochs
    return Plan(
        num_pairs=sum(size.num_pairs for size in sizes.values()),
        num_tokens=sum(size.num_tokens for size in sizes.values()),
        vocab_size=_vocab_size(config.tokenizer, sizes[TRAIN]),
        total_steps=min(total_steps, training.max_steps or total_steps),
        steps_per_epoch=per_epoch,
    )
