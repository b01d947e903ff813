"""What is kept of a finished training once its run is gone: one small, sealed JSON file.

Knows the file and what is in it, not how a run is read or a table written.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from mt_cli.artefacts.json_files import read_sealed, sealed, write_json
from mt_cli.artefacts.run_facts import resumptions
from mt_cli.errors import DataError

FORMAT = 1


@dataclass(frozen=True)
class Metric:
    """A corpus score as sacreBLEU gave it."""

    score: float
    half_width: float | None
    """Of the 95 % bootstrap interval; none where `evaluate` gave none."""
    signature: str


@dataclass(frozen=True)
class Evaluation:
    """The scores of one test set's translations."""

    split: str
    search: str
    """As `evaluate` names its folder: `greedy`, `beam5-alpha1`; other precisions than fp32 are in it.

    Where other runs helped, they follow in words: `beam20-alpha1, reranked by multi30k-reverse (0.3, 0.25)`.
    """
    n: int
    """Sentences."""
    bleu: Metric
    chrf: Metric
    ter: Metric
    sentences_per_s: float | None
    sha256: Mapping[str, str]
    """Of `src.txt`, `ref.txt` and `hyp.txt`."""
    statistics: str
    """BLEU's counts of each sentence, packed: see `sentence_statistics`."""


@dataclass(frozen=True)
class Validation:
    """The best checkpoint's score while it was trained."""

    step: int
    bleu: float
    bleu_signature: str
    nll: float


@dataclass(frozen=True)
class Record:
    """A finished training and its scores."""

    config_name: str
    """Path of the config that the run was made from, below `configs/` and without `.toml`."""
    config: Mapping[str, Mapping[str, object]]
    """The whole config that the run was trained with."""
    init_from: str | None
    """The run whose weights it began with; none for random ones."""
    commit: str
    commit_from: str
    """Who named the commit: `env.json`, or `--commit` for a run whose env.json does not."""
    parameters: int
    checkpoint: str
    weights_sha256: str
    status: Mapping[str, object]
    """status.json: updates, seconds, how it ended."""
    environment: Mapping[str, object]
    """env.json: versions, device, processor, precision of training, threads."""
    validation: Validation
    evaluations: tuple[Evaluation, ...]
    prepared_sha256: str | None = None
    """Of the manifest of the prepared data, which names every file; none in records of November 2026."""

    @property
    def seed(self) -> int:
        """Of everything that was random in training."""
        return int(str(self.config["runtime"]["seed"]))

    @property
    def precision(self) -> str:
        """Of training."""
        return str(self.environment.get("precision", "unknown"))

    @property
    def resumptions(self) -> list[dict[str, object]]:
        """What differed each time that training was resumed with other code or on another machine."""
        return list(resumptions(self.environment))

    @property
    def commits(self) -> list[str]:
        """Of all the code that trained it."""
        return [self.commit, *(str(each["commit"]) for each in self.resumptions if "commit" in each)]

    @property
    def device(self) -> str:
        """Kind of device it was trained on: `cpu` or `cuda`."""
        return str(self.environment.get("device", "cpu")).partition(":")[0]


def write_record(path: Path, record: Record) -> None:
    """Write `record`, sealed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, sealed({"format": FORMAT, **asdict(record)}))


def read_record(path: Path) -> Record:
    """The record in `path`.

    Raises:
        DataError: it is damaged, was edited, or is no record.
    """
    content = read_sealed(path, early_keys=(), below=path.parent, warns=False)
    if content.pop("format", None) != FORMAT:
        raise DataError(f"{path}: not a record of format {FORMAT}")
    try:
        return TypeAdapter(Record).validate_python(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise DataError(f"{path}: not a record: {where}: {first['msg']}") from error


def read_records(folder: Path) -> dict[Path, Record]:
    """Every record in `folder`, by its path."""
    return {path: read_record(path) for path in sorted(folder.glob("*.json"))}
