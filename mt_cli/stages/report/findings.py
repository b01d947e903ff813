"""`Findings`: all that a report shows, of one run or of two side by side.

Knows results, not how they were found nor how a page looks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from mt_cli.stages.compare.comparison import Comparison
from mt_cli.stages.curves import Curves
from mt_cli.stages.kept_scores import KeptScore
from mt_cli.translation.scoring import Scores
from mt_cli.translation.word_differences import WordDifferences

WEIGHT_DIGITS = 3
"""Of an attention weight in JSON."""


@dataclass(frozen=True)
class RunFacts:
    """What a run is, how it was made and with what."""

    name: str
    """Of its folder; if both runs have the same, the folder's path."""
    folder: str
    checkpoint: str
    src_lang: str
    tgt_lang: str
    corpus: str
    num_parameters: int
    status: Mapping[str, object]
    """How far training came, as status.json says it."""
    settings: Mapping[str, object]
    """Keys that are not at their default, with their values."""
    config: str
    """All keys, as TOML."""
    environment: Mapping[str, object]
    """Versions and hardware of training, as env.json says it."""
    sha256: Mapping[str, str]
    """Of the checkpoint's weights, the prepared data and the files that every command loads."""
    curves: Curves | None
    no_curves: str
    """Why there are none; empty where there are."""
    kept: tuple[KeptScore, ...]
    """Scores that the run folder keeps of this checkpoint."""


@dataclass(frozen=True)
class AttentionMap:
    """Cross-attention of one sentence: how much each token of the translation looks at each of the source."""

    title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    weights: tuple[tuple[float, ...], ...]
    """A row for each token of the translation, which sums to 1."""


@dataclass(frozen=True)
class Rendering:
    """One run's translation of an example."""

    hyp: str
    chrf: float
    """chrF2 of the one sentence."""
    differences: WordDifferences
    attention: AttentionMap | None
    no_attention: str
    """Why there is no map; empty where there is one."""


@dataclass(frozen=True)
class Example:
    """A sentence of a test set."""

    line: int
    """From 1."""
    rank: int
    """From 1, the worst."""
    source: str
    ref: str
    renderings: tuple[Rendering, ...]
    """One for each run."""

    @property
    def gain(self) -> float:
        """chrF2 of the last run less that of the first."""
        return self.renderings[-1].chrf - self.renderings[0].chrf


@dataclass(frozen=True)
class ExampleGroup:
    """Neighbours in the ranking."""

    title: str
    examples: tuple[Example, ...]


@dataclass(frozen=True)
class Slice:
    """Sentences of one kind."""

    label: str
    n: int
    bleu: tuple[float, ...]
    """Of each run."""
    chrf: tuple[float, ...]


@dataclass(frozen=True)
class TestSetFindings:
    """One test set."""

    name: str
    scores: tuple[Scores, ...]
    """Of each run."""
    unk_rates: tuple[float, ...]
    symptoms: tuple[tuple[str, ...], ...]
    """What looks wrong with each run's translations."""
    comparison: Comparison | None
    """Of two runs."""
    sentence_chrf: tuple[tuple[float, ...], ...]
    """Of each run's translations, line by line."""
    by_length: tuple[Slice, ...]
    by_unseen_words: tuple[Slice, ...] | None
    """None where the training data are not known."""
    groups: tuple[ExampleGroup, ...]

    @property
    def n(self) -> int:
        """Sentences."""
        return self.scores[0].n

    def as_json(self) -> dict[str, object]:
        """A part of what `report --json` prints."""
        return {
            "scores": [each.as_json() for each in self.scores],
            "unk_rates": list(self.unk_rates),
            "symptoms": [list(each) for each in self.symptoms],
            "comparison": None if self.comparison is None else self.comparison.as_json(),
            "sentence_chrf": [list(each) for each in self.sentence_chrf],
            "by_length": [asdict(each) for each in self.by_length],
            "by_unseen_words": (
                None if self.by_unseen_words is None else [asdict(each) for each in self.by_unseen_words]
            ),
            "examples": [
                {"group": group.title, **_example_as_json(each)}
                for group in self.groups
                for each in group.examples
            ],
        }


@dataclass(frozen=True)
class Findings:
    """The whole report."""

    runs: tuple[RunFacts, ...]
    """One, or the baseline and another."""
    test_sets: tuple[TestSetFindings, ...]
    search: tuple[str, ...]
    """How each run searched for its translations, such as `greedy`."""
    version: str
    """Of mt-cli, by which the report is made."""

    def as_json(self) -> dict[str, object]:
        """The form that `report --json` prints."""
        return {
            "mt_cli": self.version,
            "runs": [_run_as_json(run, search) for run, search in zip(self.runs, self.search, strict=True)],
            "test_sets": {each.name: each.as_json() for each in self.test_sets},
        }


def _run_as_json(run: RunFacts, search: str) -> dict[str, object]:
    curves = None if run.curves is None else run.curves.as_json()
    return {**asdict(run), "search": search, "curves": curves}


def _example_as_json(example: Example) -> dict[str, object]:
    return {
        "line": example.line,
        "rank": example.rank,
        "source": example.source,
        "reference": example.ref,
        "translations": [
            {"text": each.hyp, "chrf": each.chrf, "attention": _map_as_json(each.attention)}
            for each in example.renderings
        ],
    }


def _map_as_json(attention: AttentionMap | None) -> dict[str, object] | None:
    if attention is None:
        return None
    rounded: Sequence[Sequence[float]] = [
        [round(weight, WEIGHT_DIGITS) for weight in row] for row in attention.weights
    ]
    return {"rows": attention.rows, "columns": attention.columns, "weights": rounded}
