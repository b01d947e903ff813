"""The tables of docs/results.md that are made of records, as Markdown.

Knows records and git's answer about their commits; touches no files.
"""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence

from mt_cli.artefacts.run_facts import AFTER_STEP
from mt_cli.config import Config
from mt_cli.errors import DataError
from records.record import Evaluation, Record
from records.systems import Row, System, p_between, systems_of
from records.training_changes import TrainingChange

MissedChanges = Callable[[str], tuple[TrainingChange, ...] | None]
"""The changes of training that a commit is older than; None where that is not known."""
SHORT_HASH = 9
NO_RECORDS = "No training has been recorded yet."
EXPLANATION = """\
- Scores are against the untouched references. A row of several seeds shows the mean; for BLEU, the score of
  each seed follows, and sd is the standard deviation over the seeds.
- 95 %: half the width of BLEU's bootstrap interval, the mean over the seeds. It covers the choice of test
  sentences only.
- p: paired approximate randomisation of BLEU against the nearest row above with the same kind of search and
  the same seeds. The counts of each sentence are summed over the seeds. It swaps sentences only, so it does
  not cover the choice of seeds.
- Minutes are those of training, with all that ran beside it. Machine, cores and commit are those it began
  with; where it went on with others, a note says so, if the code that resumed it did."""
UNKNOWN = "The history of this repository does not tell whether the commit is older than a change of training"
MODIFIED = "Trained with changes that were not committed"
OTHER_DATA = "The seeds were trained on data that were prepared apart, and may differ."


def results_tables(
    records: Iterable[Record], published: Mapping[str, Config], missed_changes: MissedChanges
) -> str:
    """Everything that stands between the marks of the page.

    Raises:
        DataError: two records have different lines under one name of a test set.
    """
    systems = sorted(systems_of(records, published), key=_corpus_of)
    if not systems:
        return NO_RECORDS
    notes = _Notes(missed_changes)
    rows = _rows_by_test_set(systems)
    blocks = [EXPLANATION + "\n" + _signatures(systems)]
    blocks += [f"### {title}\n\n{_score_table(of_set, notes)}" for title, of_set in rows.items()]
    blocks.append(f"### How they were trained\n\n{_training_table(systems, notes)}")
    return "\n\n".join([*blocks, *notes.paragraphs()])


class _Notes:
    """Marks of rows that need a word, each explained once below the tables."""

    def __init__(self, missed_changes: MissedChanges) -> None:
        self._missed_changes = missed_changes
        self._numbers: dict[str, int] = {}

    def mark(self, system: System) -> str:
        """The numbers of the notes on `system`, as its name is followed by."""
        found = {text: None for record in system.records for text in self._of(record)}
        if system.differ_in_data:
            found[OTHER_DATA] = None
        numbers = [self._numbers.setdefault(text, len(self._numbers) + 1) for text in found]
        return f" ({', '.join(map(str, numbers))})" if numbers else ""

    def _of(self, record: Record) -> Iterable[str]:
        of_commits = [self._missed_changes(commit) for commit in record.commits]
        missed = {change: None for of_commit in of_commits for change in of_commit or ()}
        if None in of_commits:
            yield f"{UNKNOWN}."
        if missed:
            reasons = " ".join(f"`{each.commit[:SHORT_HASH]}`: {each.what}" for each in missed)
            yield f"**Trained by older code**: today the same config and seed give another model. {reasons}"
        if any(each.get("commit_modified") for each in (record.environment, *record.resumptions)):
            yield f"{MODIFIED}."
        for each in record.resumptions:
            changes = ", ".join(
                f"{key} {str(value)[: SHORT_HASH if key == 'commit' else None]}"
                for key, value in each.items()
                if key not in (AFTER_STEP, "commit_modified") and value is not None
            )
            if changes:
                yield f"Seed {record.seed}, from update {each.get(AFTER_STEP)} on: {changes}."

    def paragraphs(self) -> list[str]:
        """One numbered list, if there is anything to say."""
        lines = [f"{number}. {text}" for text, number in self._numbers.items()]
        return ["\n".join(lines)] if lines else []


def _rows_by_test_set(systems: Sequence[System]) -> dict[str, list[Row]]:
    """Rows by the title of their test set: greedy search first, and of a kind of search the best first."""
    sets: dict[str, list[Row]] = {}
    for system in systems:
        found: dict[tuple[str, str], dict[int, Evaluation]] = {}
        for record in system.records:
            for each in record.evaluations:
                found.setdefault((_title(record, each), each.search), {})[record.seed] = each
        for (title, search), evaluations in found.items():
            sets.setdefault(title, []).append(Row(system, search, evaluations))
    for title, rows in sets.items():
        texts = {(e.sha256["src.txt"], e.sha256["ref.txt"]) for row in rows for e in row.evaluations.values()}
        if len(texts) > 1:
            raise DataError(f"{title}: records of {len(texts)} different texts have this name")
        rows.sort(key=lambda row: (row.kind != "greedy", row.kind, -row.mean_bleu))
    return dict(sorted(sets.items()))


def _title(record: Record, evaluation: Evaluation) -> str:
    data = record.config["data"]
    return f"{data['corpus']}, {evaluation.split}, {data['src_lang']} to {data['tgt_lang']}"


def _corpus_of(system: System) -> tuple[str, str]:
    return str(system.records[0].config["data"]["corpus"]), system.config_name


def _score_table(rows: Sequence[Row], notes: _Notes) -> str:
    lines = []
    for place, row in enumerate(rows):
        like = [above for above in rows[:place] if (above.kind, above.seeds) == (row.kind, row.seeds)]
        p = p_between(like[-1], row) if like else None
        each = list(row.evaluations.values())
        lines.append(
            [
                row.system.name + notes.mark(row.system),
                _search(row.search),
                _numbers(row.evaluations),
                _bleu(row),
                "–" if row.deviation is None else f"{row.deviation:.2f}",
                _interval([e.bleu.half_width for e in each]),
                "–" if p is None else f"{p:.4f}",
                _mean([e.chrf.score for e in each]),
                _mean([e.ter.score for e in each]),
            ]
        )
    return _table(["model", "search", "seeds", "BLEU", "sd", "95 %", "p", "chrF2", "TER"], lines)


def _training_table(systems: Sequence[System], notes: _Notes) -> str:
    lines = [
        [
            system.name + notes.mark(system),
            str(record.seed),
            f"{record.parameters:,}",
            f"{_number(record.status.get('step')):,.0f}",
            f"{_number(record.status.get('elapsed_s')) / 60:.0f}",
            _machine(record),
            f"PyTorch {record.environment.get('torch')}",
            f"`{record.commit[:SHORT_HASH]}`",
        ]
        for system in systems
        for record in system.records
    ]
    heads = ["model", "seed", "parameters", "updates", "minutes", "machine", "with", "commit"]
    return _table(heads, lines)


def _machine(record: Record) -> str:
    facts = record.environment
    processes = facts.get("processes", 1)
    if "gpu" in facts:
        return str(facts["gpu"]) + (f" × {processes}" if processes != 1 else "")
    extras = [name for key, name in (("avx512", "AVX-512"), ("amx", "AMX")) if facts.get(key)]
    processor = facts.get("processor", facts.get("cpu", "unknown processor"))
    threads = facts.get("threads")
    used = f"{threads} of {facts.get('cores')} cores" + (f" in each of {processes}" if processes != 1 else "")
    return ", ".join([str(processor), *extras, used])


def _signatures(systems: Sequence[System]) -> str:
    """A line for each metric with every signature that a score was made with."""
    lines = []
    for name, attribute in (("BLEU", "bleu"), ("chrF2", "chrf"), ("TER", "ter")):
        metrics = (getattr(e, attribute) for s in systems for record in s.records for e in record.evaluations)
        found = sorted({metric.signature for metric in metrics})
        lines.append(f"- {name}'s signature: {' or '.join(f'`{each}`' for each in found)}")
    return "\n".join(lines)


def _bleu(row: Row) -> str:
    each = f" ({', '.join(f'{score:.2f}' for score in row.of_seeds)})" if len(row.of_seeds) > 1 else ""
    return f"{row.mean_bleu:.2f}{each}"


def _search(name: str) -> str:
    """`beam5-alpha1` in words."""
    beam, alpha, rest = name.partition("-alpha")
    return f"{beam.replace('beam', 'beam ')}, alpha {rest}" if alpha else name


def _interval(half_widths: Sequence[float | None]) -> str:
    mean = _mean(half_widths)
    return mean if mean == "–" else f"± {mean}"


def _mean(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{statistics.mean(known):.2f}" if known else "–"


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _numbers(seeds: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(seeds)))


def _table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *lines))
