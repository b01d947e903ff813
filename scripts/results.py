"""Keep records of finished runs in docs/records, and write docs/results.md from all records.

A record is small and stays when the run is gone.
"""

import argparse
import json
import re
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from mt_cli.config.load import load_config
from mt_cli.errors import DataError, MtCliError, UsageError
from mt_cli.evaluation.kept import SPLIT, WEIGHTS
from mt_cli.machine.files import check_hashes, read_json
from mt_cli.runs.checkpoint import weights_sha256
from mt_cli.runs.opening import open_run
from mt_cli.runs.run import ENVIRONMENT, SCORES, STATUS, Run, number_in, read_metrics

ROOT = Path(__file__).resolve().parents[1]
PAGE = Path("docs", "results.md")
RECORDS = Path("docs", "records")
BEGIN = "<!-- figures of recorded trainings: made by scripts/results -->"
END = "<!-- end of the figures of recorded trainings -->"
VAL = "val"
MARKS = (38, 41, 43)
"""BLEU on val while training: the table says how soon a training reached it."""


@dataclass(frozen=True)
class Metric:
    """A corpus score as sacreBLEU gave it."""

    score: float
    half_width: float | None
    """Of the 95 % bootstrap interval."""
    signature: str


@dataclass(frozen=True)
class Evaluation:
    """The scores of one test set's translations."""

    split: str
    search: str
    """`beam20-alpha1.4`; where other runs helped, their names follow."""
    bleu: Metric
    chrf: Metric
    sha256: Mapping[str, str]
    """Of `src.txt`, `ref.txt` and `hyp.txt`."""


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
    checkpoint: str
    weights_sha256: str
    status: Mapping[str, Any]
    """status.json: updates, seconds, how it ended."""
    environment: Mapping[str, Any]
    """env.json: versions, device, processor, precision of training, threads."""
    evaluations: tuple[Evaluation, ...]
    prepared_sha256: str | None = None
    validations: tuple[tuple[float, float], ...] = ()
    """Of each: seconds since training began, and BLEU."""

    @property
    def seed(self) -> int:
        return int(str(self.config["runtime"]["seed"]))

    @property
    def precision(self) -> str:
        """Of training."""
        return str(self.environment.get("precision", "unknown"))

    @property
    def corpus(self) -> str:
        """And the direction."""
        data = self.config["data"]
        return f"{data['corpus']}, {data['src_lang']} to {data['tgt_lang']}"

    @property
    def name(self) -> str:
        """Of its file, without `.json`."""
        parts = [self.config_name.replace("/", "_")]
        if self.parent:
            parts.append(f"from-{self.parent}")
        return "-".join([*parts, self.precision, f"seed{self.seed}"])

    @property
    def parent(self) -> str:
        """The run that it began with, whatever that one's seed; empty for random weights."""
        return parent_name(self.init_from)

    def minutes_to(self, bleu: float) -> str:
        """How long it trained, from random weights, until a validation found `bleu`."""
        if self.init_from is None:
            for seconds, found in self.validations:
                if found >= bleu:
                    return f"{seconds / 60:.1f}"
        return "–"


def parent_name(init_from: str | None) -> str:
    """The name of a run that another one begins with, without its seed; empty for none."""
    return re.sub(r"-seed\d+$", "", Path(init_from or "").name)


def read_records(folder: Path) -> list[Record]:
    """Every record in `folder`."""
    records = []
    for path in sorted(folder.glob("*.json")):
        try:
            records.append(TypeAdapter(Record).validate_json(path.read_bytes()))
        except ValidationError as error:
            raise DataError(f"{path}: not a record: {error}") from error
    return records


# Taking a record


def take_record(folder: Path, config_name: str) -> Record:
    """The record of the run in `folder`, which was made from `configs/<config_name>.toml`.

    Raises:
        UsageError: the run is unfinished or not evaluated, or was made from another config.
        DataError: its files are damaged.
    """
    run = open_run(folder)
    status = run.read_facts(STATUS)
    environment = run.read_facts(ENVIRONMENT)
    if environment.get("commit_modified"):
        raise UsageError(f"{folder}: trained with changes that were not committed")
    if status.get("state") not in ("finished", "early_stop"):
        raise UsageError(f"{folder}: its training is not finished ({status.get('state')})")
    config = run.config.model_dump(mode="json", exclude_none=True)
    path = ROOT / "configs" / f"{config_name}.toml"
    published = load_config(path).model_dump(mode="json", exclude_none=True)
    init_from = config["training"].get("init_from")
    if init_from and parent_name(init_from) == parent_name(published["training"].get("init_from")):
        published["training"]["init_from"] = init_from  # another seed of the same
    for name in ("data", "tokenizer", "model", "training"):
        if config[name] != published[name]:
            raise UsageError(f"{folder}: not made from {path}: another [{name}]")
    checkpoint = run.resolve_checkpoint("best")
    weights = weights_sha256(run.checkpoint_folder(checkpoint))
    evaluations = tuple(_evaluations(run, weights))
    if not evaluations:
        raise UsageError(
            f"{folder}: its best checkpoint is not evaluated; mt-cli evaluate {folder}"
        )
    manifest = json.loads((folder / "manifest.json").read_bytes())
    return Record(
        config_name=config_name,
        config=config,
        init_from=(manifest.get("init_from") or {}).get("folder"),
        commit=str(environment.get("commit", "unknown")),
        checkpoint=checkpoint,
        weights_sha256=weights,
        status=status,
        environment=environment,
        evaluations=evaluations,
        prepared_sha256=run.prepared.sha256,
        validations=tuple(_validations(run)),
    )


def _validations(run: Run) -> Iterator[tuple[float, float]]:
    path = run.metrics_path
    for record in read_metrics(path):
        if record["kind"] == "validation":
            yield number_in(record, "elapsed_s", path=path), number_in(record, "bleu", path=path)


def _evaluations(run: Run, weights: str) -> Iterator[Evaluation]:
    """Each kept evaluation of a split by these weights."""
    for folder in run.kept_evaluations():
        scores: dict[str, Any] = read_json(folder / SCORES)
        check_hashes(folder, scores["sha256"])
        if SPLIT in scores and scores[WEIGHTS] == weights:
            split = scores[SPLIT]
            yield Evaluation(
                split,
                ", ".join([_search(scores, folder), *_helpers(scores)]),
                bleu=_metric(scores["bleu"]),
                chrf=_metric(scores["chrf"]),
                sha256=scores["sha256"],
            )


def _search(scores: Mapping[str, Any], folder: Path) -> str:
    """The search in words, without the runs that helped."""
    if "search" not in scores:  # kept by an older version, which named the folder in full
        name = folder.name.removeprefix(f"{scores[SPLIT]}-")
        return re.split("-(?:with|reranked)-", name)[0]
    facts = dict(scores["search"])
    beam_size = facts.pop("beam_size")
    if beam_size == 1:
        name = "greedy"
    else:
        name = f"beam{beam_size}-alpha{facts.pop('length_penalty', 0):g}"
    return "-".join([name, *(f"{key}={value}" for key, value in facts.items())])


def _helpers(scores: Mapping[str, Any]) -> Iterator[str]:
    """The other runs that a system is made of, in words."""
    if "with" in scores:
        yield "with " + " and ".join(member["run"] for member in scores["with"])
    if "reranked_by" in scores:
        reranker = scores["reranked_by"]
        weights = reranker["weights"]
        yield f"reranked by {reranker['run']} ({weights['reverse']:g}, {weights['length']:g})"


def _metric(details: Mapping[str, Any]) -> Metric:
    return Metric(details["score"], details.get("confidence_var"), details["signature"])


# The page

EXPLANATION = """\
- ± is half of BLEU's 95 % bootstrap interval: chance of test sentences, not of seeds. sd is over
  seeds. `mt-cli compare` tests differences.
- "To 38" are the minutes until a validation while training found that BLEU on val, validations
  included. –: none did, the record does not say, or it began with trained weights."""


@dataclass(frozen=True)
class Row:
    """One system with one search."""

    model: str
    """With other runs that helped."""
    search: str
    seeds: dict[int, dict[str, Evaluation]]
    """By seed and split."""

    def of(self, split: str) -> list[Evaluation]:
        """One for each seed; none if one lacks it."""
        found = [self.seeds[seed].get(split) for seed in sorted(self.seeds)]
        return [each for each in found if each] if all(found) else []

    def mean(self, split: str) -> float:
        """BLEU over the seeds; 0 if one lacks the split."""
        return statistics.mean([each.bleu.score for each in self.of(split)] or [0.0])

    def cells(self, tests: Sequence[str]) -> list[str]:
        """The row of the table; most columns are of the first test."""
        of_first = self.of(tests[0])
        deviation = chrf = "–"
        if len(of_first) > 1:
            deviation = f"{statistics.stdev(each.bleu.score for each in of_first):.2f}"
        if of_first:
            chrf = f"{statistics.mean(each.chrf.score for each in of_first):.2f}"
        first, *others = [self._with_interval(test) for test in tests]
        return [
            self.model,
            re.sub(r"beam(\d+)-alpha", r"beam \1, alpha ", self.search),
            ", ".join(map(str, sorted(self.seeds))),
            f"{self.mean(VAL):.2f}" if self.of(VAL) else "–",
            first,
            deviation,
            chrf,
            *others,
        ]

    def _with_interval(self, split: str) -> str:
        if not self.of(split):
            return "–"
        widths = [each.bleu.half_width for each in self.of(split) if each.bleu.half_width]
        width = f" ±{statistics.mean(widths):.2f}" if widths else ""
        return f"{self.mean(split):.2f}{width}"


def page_part(records: Sequence[Record]) -> str:
    """Everything that stands between the marks of the page."""
    if not records:
        return "No training has been recorded yet."
    evaluations = [each for record in records for each in record.evaluations]
    bleus = " or ".join(sorted({f"`{each.bleu.signature}`" for each in evaluations}))
    chrfs = " or ".join(sorted({f"`{each.chrf.signature}`" for each in evaluations}))
    signatures = f"- BLEU's signature: {bleus}\n- chrF2's signature: {chrfs}"
    blocks = [f"{EXPLANATION}\n{signatures}"]
    for corpus in sorted({record.corpus for record in records}):
        of_corpus = [record for record in records if record.corpus == corpus]
        blocks.append(f"### {corpus}\n\n{_score_table(of_corpus)}")
    blocks.append(_training_table(records))
    return "\n\n".join(blocks)


def _score_table(records: Sequence[Record]) -> str:
    rows: dict[tuple[str, ...], Row] = {}
    texts: dict[str, str] = {}
    for record in records:
        for each in record.evaluations:
            search, _, helpers = each.search.partition(", ")
            helpers = helpers.removeprefix("with ").replace(" and ", ", ")
            model = ", ".join(filter(None, [f"`{record.config_name}`", helpers]))
            key = (model, search, record.precision, record.parent)
            row = rows.setdefault(key, Row(model, search, {}))
            row.seeds.setdefault(record.seed, {})[each.split] = each
            text = each.sha256["src.txt"] + each.sha256["ref.txt"]
            if texts.setdefault(each.split, text) != text:
                raise DataError(f"{each.split}: records of different texts have this name")
    tests = sorted(texts.keys() - {VAL}) or [VAL]

    def order(row: Row) -> tuple[bool, bool, float]:
        has_helpers = "," in row.model
        return has_helpers, row.search != "greedy", -row.mean(tests[0])

    heads = ["model", "search", "seeds", VAL, tests[0], "sd", "chrF2", *tests[1:]]
    return markdown(heads, [row.cells(tests) for row in sorted(rows.values(), key=order)])


def _training_table(records: Sequence[Record]) -> str:
    rows = []
    for record in sorted(records, key=lambda each: (each.config_name, each.name)):
        commits = [record.commit]
        for resumption in record.environment.get("resumed", []):
            if "commit" in resumption:
                commits.append(resumption["commit"])
        rows.append(
            [
                f"`{record.config_name}`",
                str(record.seed),
                f"{record.status['elapsed_s'] / 60:.0f}",
                *(record.minutes_to(mark) for mark in MARKS),
                _machine(record.environment),
                ", ".join(f"`{commit[:9]}`" for commit in commits),
            ]
        )
    precisions = " or ".join(sorted({record.precision for record in records}))
    reached = [f"to {mark}" for mark in MARKS]
    return markdown(["model", "seed", "minutes", *reached, f"{precisions} on", "commit"], rows)


def _machine(facts: Mapping[str, Any]) -> str:
    processor = str(facts.get("gpu", facts.get("processor", "unknown")))
    parts = [" ".join(re.sub(r"\(R\)|\(TM\)|Processor", "", processor).split())]
    if "gpu" not in facts:
        if facts.get("amx"):
            parts.append("AMX")
        parts.append("1 core" if facts["threads"] == 1 else f"{facts['threads']} cores")
    return ", ".join(parts)


def markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def results_page() -> str:
    """The whole page, its marked part made anew."""
    page = (ROOT / PAGE).read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    _, has_end, after = rest.partition(END)
    if not has_end:
        raise DataError(f"{ROOT / PAGE}: no line '{BEGIN}' with a line '{END}' after it")
    return f"{before}{BEGIN}\n\n{page_part(read_records(ROOT / RECORDS))}\n\n{END}{after}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/results", description=__doc__)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="evaluated run folder")
    parser.add_argument(
        "--config", required=True, metavar="NAME", help="the runs were made from configs/NAME.toml"
    )
    args = parser.parse_args()
    try:
        records = [take_record(run, args.config) for run in args.runs]
        for record in records:
            path = ROOT / RECORDS / f"{record.name}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(asdict(record), indent=2) + "\n", encoding="utf-8")
            print(path)
        (ROOT / PAGE).write_text(results_page(), encoding="utf-8")
    except MtCliError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
