"""Records that are seeds of one system: the same config, changes and precision of training.

Knows records and configs, not how they are shown.
"""

import json
import re
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from mt_cli.config import Config, parse_config
from records.record import Evaluation, Record
from records.sentence_statistics import Counts, p_value, unpack
from records.taking import model_differences

MOST_IN_A_NAME = 80
"""Characters of the changed keys in a file's name."""


@dataclass(frozen=True)
class System:
    """A config, trained with one seed or several."""

    config_name: str
    is_published: bool
    """Whether `configs/` still has the config."""
    changes: Mapping[str, object]
    """Keys of model and training that were set otherwise than that config sets them today."""
    precision: str
    """Of training."""
    init_from: str | None
    seeds: Mapping[int, Record]

    @property
    def records(self) -> list[Record]:
        """One for each seed, in order."""
        return [self.seeds[seed] for seed in sorted(self.seeds)]

    @property
    def name(self) -> str:
        """Markdown: the config, what was changed of it, and the precision of training."""
        path = f"configs/{self.config_name}.toml"
        parts = [f"`{path}`" if self.is_published else f"`{self.config_name}` (a config that is gone)"]
        if self.changes:
            parts.append(
                f"with {', '.join(f'`{key} = {json.dumps(value)}`' for key, value in self.changes.items())}"
            )
        if self.init_from is not None:
            parts.append(f"begun with the weights of `{self.init_from}`")
        return f"{' '.join(parts)}, {self.precision}"


@dataclass(frozen=True)
class Row:
    """One system, searched in one way, on one test set."""

    system: System
    search: str
    evaluations: Mapping[int, Evaluation]
    """By seed."""

    @property
    def mean_bleu(self) -> float:
        """Over the seeds."""
        return statistics.mean(self._of_seeds)

    @property
    def spread(self) -> float | None:
        """Standard deviation of BLEU over the seeds; none of a single one."""
        return statistics.stdev(self._of_seeds) if len(self._of_seeds) > 1 else None

    @property
    def _of_seeds(self) -> list[float]:
        return [each.bleu.score for each in self.evaluations.values()]

    @property
    def kind(self) -> str:
        """The search without its length penalty, which is chosen for each system; rows of a kind compare."""
        return re.sub(r"-alpha-?[\d.]+", "", self.search)

    @cached_property
    def counts(self) -> Mapping[int, Counts]:
        """BLEU's counts of each sentence, by seed."""
        return {seed: unpack(each.statistics, n=each.n) for seed, each in self.evaluations.items()}


def systems_of(records: Iterable[Record], published: Mapping[str, Config]) -> list[System]:
    """The systems that `records` are seeds of; `published` are the configs of today."""
    groups: dict[tuple[object, ...], list[Record]] = {}
    for record in records:
        key = (
            record.config_name,
            json.dumps(changes_of(record, published)),
            record.precision,
            record.init_from,
        )
        groups.setdefault(key, []).append(record)
    return [
        System(
            first.config_name,
            first.config_name in published,
            changes_of(first, published),
            first.precision,
            first.init_from,
            {each.seed: each for each in (first, *others)},
        )
        for first, *others in groups.values()
    ]


def changes_of(record: Record, published: Mapping[str, Config]) -> dict[str, object]:
    """What the run set otherwise than its config does today; nothing if that config is gone."""
    if record.config_name not in published:
        return {}
    own = parse_config(record.config, origin=f"record of {record.config_name}")
    return model_differences(published[record.config_name], own)


def file_name(record: Record, published: Mapping[str, Config]) -> str:
    """What the record's file is called, such as `multi30k-strong-r_drop-1.0-bf16-seed1.json`."""
    changes = changes_of(record, published).items()
    words = "-".join(f"{key.rpartition('.')[2]}-{value}" for key, value in changes)
    parts = [record.config_name, words[:MOST_IN_A_NAME], record.precision, f"seed{record.seed}"]
    return re.sub(r"[^\w.-]+", "_", "-".join(filter(None, parts))) + ".json"


def p_between(above: Row, below: Row) -> float | None:
    """The p-value of the difference of BLEU between two rows of one test set.

    The counts of a sentence are summed over the seeds that both have: chance swaps sentences, not seeds.
    None where no seed is common, or there is nothing to test.
    """
    common = sorted(above.evaluations.keys() & below.evaluations.keys())
    if not common:
        return None
    first, second = (
        sum((row.counts[seed] for seed in common[1:]), row.counts[common[0]]) for row in (above, below)
    )
    return p_value(first, second)
