"""Records that are seeds of one system: the same config, changes, precision and kind of device.

Knows records and configs, not how they are shown.
"""

import hashlib
import json
import re
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath

from mt_cli.config import Config, parse_config, table_differences
from mt_cli.errors import DataError
from records.record import Evaluation, Record
from records.sentence_statistics import Counts, p_value, unpack
from records.taking import model_differences, of_the_model

MOST_IN_A_NAME, DIGITS = 80, 8
"""Characters of the changed keys in a file's name, and of the hash that tells apart those that have more."""


@dataclass(frozen=True)
class System:
    """A config, trained with one seed or several."""

    config_name: str
    is_published: bool
    """Whether `configs/` still has the config."""
    changes: Mapping[str, object]
    """Keys set otherwise than the config sets them today; where it is gone, than in its first record."""
    precision: str
    """Of training."""
    device: str
    """Kind of device it was trained on."""
    init_from: str | None
    seeds: Mapping[int, Record]

    @property
    def records(self) -> list[Record]:
        """One for each seed, in order."""
        return [self.seeds[seed] for seed in sorted(self.seeds)]

    @property
    def name(self) -> str:
        """Markdown: the config, what was changed of it, precision of training, and device if it is no CPU."""
        path = f"configs/{self.config_name}.toml"
        parts = [f"`{path}`" if self.is_published else f"`{self.config_name}` (a config that is gone)"]
        if self.changes:
            parts.append(
                f"with {', '.join(f'`{key} = {json.dumps(value)}`' for key, value in self.changes.items())}"
            )
        if self.init_from is not None:
            parts.append(f"begun with the weights of `{self.init_from}`")
        return f"{' '.join(parts)}, {self.precision}{'' if self.device == 'cpu' else f' on {self.device}'}"

    @property
    def differ_in_data(self) -> bool:
        """Whether the seeds were trained on data of their own, as far as the records tell."""
        return len({each.prepared_sha256 for each in self.records} - {None}) > 1


@dataclass(frozen=True)
class Row:
    """One system, searched in one way, on one test set."""

    system: System
    search: str
    evaluations: Mapping[int, Evaluation]
    """By seed."""

    @property
    def seeds(self) -> list[int]:
        """Of the trainings, in order."""
        return sorted(self.evaluations)

    @property
    def mean_bleu(self) -> float:
        """Over the seeds."""
        return statistics.mean(self.of_seeds)

    @property
    def deviation(self) -> float | None:
        """Standard deviation of BLEU over the seeds; none of a single one."""
        return statistics.stdev(self.of_seeds) if len(self.of_seeds) > 1 else None

    @property
    def of_seeds(self) -> list[float]:
        """BLEU of each seed, in their order."""
        return [self.evaluations[seed].bleu.score for seed in sorted(self.evaluations)]

    @property
    def kind(self) -> str:
        """The search without its length penalty, which is chosen for each system; rows of a kind compare."""
        return re.sub(r"-alpha[\d.]+", "", self.search)

    @cached_property
    def counts(self) -> Mapping[int, Counts]:
        """BLEU's counts of each sentence, by seed."""
        return {seed: unpack(each.statistics, n=each.n) for seed, each in self.evaluations.items()}


def systems_of(records: Iterable[Record], published: Mapping[str, Config]) -> list[System]:
    """The systems that `records` are seeds of; `published` are the configs of today.

    Raises:
        DataError: two records are of one seed of a system.
    """
    records = list(records)
    first_ones = {each.config_name: each for each in reversed(records)}

    def changes(record: Record) -> dict[str, object]:
        if record.config_name in published:
            return changes_of(record, published)
        return of_the_model(table_differences(first_ones[record.config_name].config, record.config))

    groups: dict[tuple[object, ...], list[Record]] = {}
    for record in records:
        key = (
            record.config_name,
            json.dumps(changes(record)),
            record.precision,
            record.device,
            record.init_from,
        )
        groups.setdefault(key, []).append(record)
    return [
        System(
            first.config_name,
            first.config_name in published,
            changes(first),
            first.precision,
            first.device,
            first.init_from,
            _by_seed([first, *others]),
        )
        for first, *others in groups.values()
    ]


def _by_seed(records: Iterable[Record]) -> dict[int, Record]:
    seeds: dict[int, Record] = {}
    for record in records:
        if seeds.setdefault(record.seed, record) is not record:
            raise DataError(
                f"two records are of {record.config_name} with seed {record.seed}, trained with the same "
                "settings; remove one of them"
            )
    return seeds


def changes_of(record: Record, published: Mapping[str, Config]) -> dict[str, object]:
    """What the run set otherwise than its config does today."""
    own = parse_config(record.config, origin=f"record of {record.config_name}")
    return model_differences(published[record.config_name], own)


def file_name(record: Record, published: Mapping[str, Config]) -> str:
    """What the record's file is called, such as `multi30k-strong-r_drop-1.0-bf16-seed1.json`."""
    changes = changes_of(record, published).items()
    words = "-".join(f"{key.rpartition('.')[2]}-{value}" for key, value in changes)
    if len(words) > MOST_IN_A_NAME:
        words = f"{words[:MOST_IN_A_NAME]}-{hashlib.sha256(words.encode()).hexdigest()[:DIGITS]}"
    parts = [
        record.config_name,
        words,
        record.init_from and f"from-{PurePath(record.init_from).name}",
        record.precision,
        "" if record.device == "cpu" else record.device,
        f"seed{record.seed}",
    ]
    return re.sub(r"[^\w.-]+", "_", "-".join(filter(None, parts))) + ".json"


def p_between(above: Row, below: Row) -> float | None:
    """The p-value of the difference of BLEU between two rows of one test set.

    The counts of a sentence are summed over the seeds: chance swaps sentences, not seeds. None where the rows
    have other seeds, or there is nothing to test.
    """
    if above.evaluations.keys() != below.evaluations.keys():
        return None
    one, *others = sorted(above.evaluations)
    first, second = (sum((row.counts[seed] for seed in others), row.counts[one]) for row in (above, below))
    return p_value(first, second)
