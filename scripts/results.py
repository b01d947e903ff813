"""From runs to docs/results.md: `add` keeps a record of each run in docs/records; the page is made
of them.

A record is small and stays when the run is gone. Without a command, only the page is written anew.
"""

import argparse
import base64
import hashlib
import json
import re
import statistics
import subprocess
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError
from sacrebleu.metrics.bleu import BLEU

from mt_cli.config.load import load_config
from mt_cli.errors import DataError, MtCliError, UsageError
from mt_cli.runs.run import number_in, open_run

ROOT = Path(__file__).resolve().parents[1]
PAGE, RECORDS = Path("docs", "results.md"), Path("docs", "records")
BEGIN = "<!-- figures of recorded trainings: made by scripts/results -->"
END = "<!-- end of the figures of recorded trainings -->"
SEARCH = re.compile(
    r"(greedy|beam\d+-alpha[\d.]+)(-norepeat\d+)?(-no-replace-unk)?(-bf16)?", re.ASCII
)
"""A search by the best checkpoint of a run; other checkpoints and backends have other names."""
VAL = "val"
MARKS = (38, 41, 43)
"""BLEU on val, as training searches: the table says how soon a training got there."""
TRIALS = 10_000
Counts = NDArray[np.int64]
"""(N, 10): of each of N sentences its length, its reference's, matches and n-grams of orders 1 to
4.
"""


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
    """`beam20-alpha1`; where other runs helped, their names follow."""
    n: int
    """Sentences."""
    bleu: Metric
    chrf: Metric
    sha256: Mapping[str, str]
    """Of `src.txt`, `ref.txt` and `hyp.txt`."""
    statistics: str
    """BLEU's counts of each sentence, packed."""

    @cached_property
    def counts(self) -> Counts:
        """BLEU's counts of each sentence."""
        columns = np.frombuffer(zlib.decompress(base64.b64decode(self.statistics)), dtype="<u2")
        kept = columns.reshape(6, self.n).T.astype(np.int64)
        return np.hstack([kept, np.maximum(kept[:, :1] - np.arange(4), 0)])


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
    parameters: int
    checkpoint: str
    weights_sha256: str
    status: Mapping[str, object]
    """status.json: updates, seconds, how it ended."""
    environment: Mapping[str, object]
    """env.json: versions, device, processor, precision of training, threads."""
    evaluations: tuple[Evaluation, ...]
    prepared_sha256: str | None = None
    validations: tuple[tuple[float, float], ...] = ()
    """Of each: seconds since training began, and BLEU."""

    @property
    def seed(self) -> int:
        """Of everything that was random in training."""
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
    def system(self) -> tuple[str, ...]:
        """Records that are seeds of one system have this in common."""
        return self.config_name, self.precision, self.init_from or ""

    def minutes_to(self, bleu: float) -> str:
        """How long it trained, from random weights, until a validation found `bleu`."""
        if self.init_from is not None:
            return "–"
        return next(
            (f"{seconds / 60:.1f}" for seconds, found in self.validations if found >= bleu), "–"
        )


def read_records(folder: Path) -> list[Record]:
    """Every record in `folder`.

    Raises:
        DataError: one is damaged, or its BLEU is not that of its counts.
    """
    records = []
    for path in sorted(folder.glob("*.json")):
        try:
            record = TypeAdapter(Record).validate_json(path.read_bytes())
        except ValidationError as error:
            raise DataError(f"{path}: not a record: {error}") from error
        for each in record.evaluations:
            if abs(bleu_of(each.counts.sum(0)) - each.bleu.score) > 1e-6:
                raise DataError(
                    f"{path}: BLEU of {each.split}, {each.search} is not that of its counts"
                )
        records.append(record)
    return records


# Taking a record


def add(runs: Iterable[Path], *, config_name: str, replaces: bool) -> None:
    """Write a record of each run, all or none."""
    taken: dict[Path, Record] = {}
    for run in runs:
        record = take_record(run, config_name)
        begun = [f"from-{Path(record.init_from).name}"] if record.init_from else []
        name = "-".join(
            [config_name.replace("/", "_"), *begun, record.precision, f"seed{record.seed}"]
        )
        path = ROOT / RECORDS / f"{name}.json"
        if path in taken:
            raise UsageError(f"{run}: {path.name} is the record of another run that was named")
        is_other = path.exists() and _json(path)["weights_sha256"] != record.weights_sha256
        if is_other and not replaces:
            raise UsageError(f"{path}: of another training; --replace replaces it")
        taken[path] = record
    for path, record in taken.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(record), indent=2) + "\n", encoding="utf-8")
        print(path)


def take_record(run: Path, config_name: str) -> Record:
    """The record of the run folder `run`, which was made from `configs/<config_name>.toml`.

    Raises:
        UsageError: the run is unfinished or not evaluated, or was made from another config.
        DataError: its files do not belong together.
    """
    command = [sys.executable, "-m", "mt_cli", "inspect", str(run), "--json", "--quiet"]
    inspected = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if inspected.returncode:
        sys.exit(inspected.returncode)
    facts = json.loads(inspected.stdout)
    manifest, status, environment = (
        _json(run / f"{name}.json") for name in ("manifest", "status", "env")
    )
    if environment.get("commit_modified"):
        raise UsageError(f"{run}: trained with changes that were not committed")
    if status.get("state") not in ("finished", "early_stop"):
        raise UsageError(f"{run}: its training is not finished ({status.get('state')})")
    config, published = (
        load_config(path).model_dump(mode="json", exclude_none=True)
        for path in (run / "config.toml", ROOT / "configs" / f"{config_name}.toml")
    )
    changed = [
        name
        for name in ("data", "tokenizer", "model", "training")
        if config[name] != published[name]
    ]
    if changed:
        raise UsageError(f"{run}: not made from configs/{config_name}.toml: another [{changed[0]}]")
    checkpoint = str(facts["run"]["checkpoint"])
    evaluations = tuple(_evaluations(run, config["data"], checkpoint))
    if not evaluations:
        raise UsageError(f"{run}: not evaluated yet; mt-cli evaluate {run}")
    weights = run / "checkpoints" / checkpoint / "model.safetensors"
    return Record(
        config_name=config_name,
        config=config,
        init_from=(manifest.get("init_from") or {}).get("folder"),
        commit=str(environment.get("commit", "unknown")),
        parameters=facts["parameters"]["total"],
        checkpoint=checkpoint,
        weights_sha256=hashlib.sha256(weights.read_bytes()).hexdigest(),
        status=status,
        environment=environment,
        evaluations=evaluations,
        prepared_sha256=manifest["prepared"]["sha256"],
        validations=tuple(
            (number_in(told, "elapsed_s", path=run), number_in(told, "bleu", path=run))
            for told in open_run(run).metrics()
            if told["kind"] == "validation"
        ),
    )


def _evaluations(run: Path, data: Mapping[str, object], checkpoint: str) -> Iterator[Evaluation]:
    """Each kept evaluation of a split by the best checkpoint."""
    splits = data["splits"]
    assert isinstance(splits, list)
    for folder in sorted(run.glob("eval/*")):
        split = next((split for split in splits if folder.name.startswith(f"{split}-")), "")
        search = re.sub(r"-(with|reranked)-.*", "", folder.name.removeprefix(f"{split}-"))
        if not split or not SEARCH.fullmatch(search):
            continue  # of another checkpoint, backend or file
        scores = _json(folder / "scores.json")
        if scores["checkpoint"] != checkpoint:
            raise UsageError(
                f"{folder}: made by {scores['checkpoint']}, not {checkpoint}; evaluate again"
            )
        files = {name: folder / name for name in ("src.txt", "ref.txt", "hyp.txt")}
        _, refs, hyps = (
            path.read_text(encoding="utf-8").split("\n")[:-1] for path in files.values()
        )
        counts = counts_of(hyps, refs, lowercase=bool(data["lowercase"]))
        if abs(bleu_of(counts.sum(0)) - scores["bleu"]["score"]) > 1e-6:
            raise DataError(
                f"{folder}: BLEU is {bleu_of(counts.sum(0)):.4f}, but scores.json says otherwise"
            )
        yield Evaluation(
            split,
            ", ".join([search, *_helpers(scores)]),
            n=len(hyps),
            bleu=_metric(scores["bleu"]),
            chrf=_metric(scores["chrf"]),
            sha256={
                name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()
            },
            statistics=base64.b64encode(
                zlib.compress(counts[:, :6].T.astype("<u2").tobytes(), 9)
            ).decode(),
        )


def _helpers(scores: Mapping[str, object]) -> Iterator[str]:
    """The other runs that a system is made of, in words."""
    members, reranker = scores.get("with"), scores.get("reranked_by")
    if isinstance(members, list):
        yield f"with {' and '.join(str(member['run']) for member in members)}"
    if isinstance(reranker, dict):
        weights = reranker["weights"]
        yield f"reranked by {reranker['run']} ({weights['reverse']:g}, {weights['length']:g})"


def _metric(details: Mapping[str, Any]) -> Metric:
    return Metric(details["score"], details.get("confidence_var"), details["signature"])


def _json(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_bytes()))


# BLEU from counts


def counts_of(hyps: Sequence[str], refs: Sequence[str], *, lowercase: bool) -> Counts:
    """BLEU's counts of each of `hyps`."""
    metric = BLEU(lowercase=lowercase, force=True)
    scores = [metric.corpus_score([hyp], [[ref]]) for hyp, ref in zip(hyps, refs, strict=True)]
    return np.array([[each.sys_len, each.ref_len, *each.counts, *each.totals] for each in scores])


def bleu_of(counts: Counts) -> float:
    """BLEU of summed counts (10,)."""
    length, ref_length, *grams = counts.tolist()
    return float(
        BLEU.compute_bleu(grams[:4], grams[4:], length, ref_length, smooth_method="exp").score
    )


def p_value(one: Counts, other: Counts) -> float:
    """How often chance makes a difference of BLEU as large (Riezler and Maxwell 2005)."""
    rng = np.random.default_rng(12345)
    first, second = one.sum(0), other.sum(0)
    observed = abs(bleu_of(first) - bleu_of(second))
    swapped = rng.integers(2, size=(TRIALS, len(one))) @ (other - one)  # (TRIALS, 10)
    count = sum(abs(bleu_of(first + each) - bleu_of(second - each)) >= observed for each in swapped)
    return (count + 1) / (TRIALS + 1)


# The page

EXPLANATION = """\
- ± is half of BLEU's 95 % bootstrap interval: chance of test sentences, not of seeds. sd is over seeds.
- p is of paired approximate randomisation on the first test set, against the nearest row above with as many
  beams and the same seeds.
- "To 38" are the minutes until a validation while training found that BLEU on val, validations
  included. –: none did, the record does not say, or it began with trained weights."""
OTHER_DATA = "[1] The seeds were trained on data that were prepared apart, and may differ."


@dataclass(frozen=True)
class Row:
    """One system, searched in one way."""

    name: str
    """With the marks of its notes."""
    helpers: str
    """Other runs that helped."""
    search: str
    seeds: Mapping[int, Mapping[str, Evaluation]]
    """By seed and split."""

    @property
    def kind(self) -> tuple[object, ...]:
        """Rows that have this in common are compared."""
        return re.sub(r"-alpha[\d.]+", "", self.search), self.helpers, sorted(self.seeds)

    def of(self, split: str) -> list[Evaluation]:
        """One for each seed; none if one lacks it."""
        found = [evaluations.get(split) for _, evaluations in sorted(self.seeds.items())]
        return [each for each in found if each] if all(found) else []

    def mean(self, split: str) -> float:
        """BLEU over the seeds; 0 if one lacks the split."""
        return statistics.mean([each.bleu.score for each in self.of(split)] or [0.0])

    def cells(self, val: str, tests: Sequence[str], above: Sequence["Row"]) -> list[str]:
        """The row of the table; `above` are those above it."""
        first, *others = tests
        each = self.of(first)
        scores = [evaluation.bleu.score for evaluation in each]
        like = [row for row in above if row.kind == self.kind and row.of(first)]
        p = p_value(_summed(like[-1].of(first)), _summed(each)) if like and each else None
        return [
            ", ".join(filter(None, [self.name, self.helpers])),
            re.sub(r"beam(\d+)-alpha", r"beam \1, alpha ", self.search),
            ", ".join(map(str, sorted(self.seeds))),
            f"{self.mean(val):.2f}" if self.of(val) else "–",
            self._with_interval(first),
            f"{statistics.stdev(scores):.2f}" if len(scores) > 1 else "–",
            "–" if p is None else f"{p:.4f}",
            f"{statistics.mean(e.chrf.score for e in each):.2f}" if each else "–",
            *map(self._with_interval, others),
        ]

    def _with_interval(self, split: str) -> str:
        widths = [
            each.bleu.half_width for each in self.of(split) if each.bleu.half_width is not None
        ]
        width = f" ±{statistics.mean(widths):.2f}" if widths else ""
        return f"{self.mean(split):.2f}{width}" if self.of(split) else "–"


def _summed(evaluations: Sequence[Evaluation]) -> Counts:
    """The counts of each sentence, summed over the seeds."""
    total: Counts = np.sum([each.counts for each in evaluations], axis=0)
    return total


def page_part(records: Sequence[Record]) -> str:
    """Everything that stands between the marks of the page."""
    if not records:
        return "No training has been recorded yet."
    data: dict[tuple[str, ...], set[str | None]] = {}
    for record in records:
        data.setdefault(record.system, set()).add(record.prepared_sha256)
    marks = {
        system: f"`{system[0]}`" + " [1]" * (len(found - {None}) > 1)
        for system, found in data.items()
    }
    evaluations = [each for record in records for each in record.evaluations]
    signatures = {
        "BLEU": sorted({each.bleu.signature for each in evaluations}),
        "chrF2": sorted({each.chrf.signature for each in evaluations}),
    }
    explained = [
        f"- {name}'s signature: `{'` or `'.join(each)}`" for name, each in signatures.items()
    ]
    blocks = ["\n".join([EXPLANATION, *explained])]
    for corpus, of_corpus in groupby(
        sorted(records, key=lambda each: each.corpus), lambda each: each.corpus
    ):
        blocks.append(f"### {corpus}\n\n{_score_table(list(of_corpus), marks)}")
    blocks.append(_training_table(records, marks))
    blocks += [OTHER_DATA] if any("[1]" in mark for mark in marks.values()) else []
    return "\n\n".join(blocks)


def _score_table(records: Sequence[Record], marks: Mapping[tuple[str, ...], str]) -> str:
    found: dict[tuple[str, str, str], dict[int, dict[str, Evaluation]]] = {}
    texts: dict[str, set[str]] = {}
    for record in records:
        for each in record.evaluations:
            search, _, helpers = each.search.partition(", ")
            helpers = helpers.removeprefix("with ").replace(" and ", ", ")
            key = marks[record.system], helpers, search
            found.setdefault(key, {}).setdefault(record.seed, {})[each.split] = each
            texts.setdefault(each.split, set()).add(each.sha256["src.txt"] + each.sha256["ref.txt"])
    if different := [split for split, hashes in texts.items() if len(hashes) > 1]:
        raise DataError(f"{different[0]}: records of different texts have this name")
    tests = sorted(texts.keys() - {VAL}) or [VAL]
    rows = [Row(name, helpers, search, seeds) for (name, helpers, search), seeds in found.items()]
    rows.sort(key=lambda row: (bool(row.helpers), row.search != "greedy", -row.mean(tests[0])))
    heads = ["model", "search", "seeds", VAL, tests[0], "sd", "p", "chrF2", *tests[1:]]
    return _table(heads, [row.cells(VAL, tests, rows[:place]) for place, row in enumerate(rows)])


def _training_table(records: Sequence[Record], marks: Mapping[tuple[str, ...], str]) -> str:
    rows = []
    for record in sorted(records, key=lambda each: (each.system, each.seed)):
        minutes = float(str(record.status["elapsed_s"])) / 60
        resumptions = record.environment.get("resumed", [])
        assert isinstance(resumptions, list)
        commits = [
            record.commit,
            *(str(each["commit"]) for each in resumptions if "commit" in each),
        ]
        shown = ", ".join(f"`{commit[:9]}`" for commit in commits)
        reached = [record.minutes_to(mark) for mark in MARKS]
        rows.append(
            [
                marks[record.system],
                str(record.seed),
                f"{minutes:.0f}",
                *reached,
                _machine(record),
                shown,
            ]
        )
    precisions = " or ".join(sorted({record.precision for record in records}))
    heads = [
        "model",
        "seed",
        "minutes",
        *(f"to {mark}" for mark in MARKS),
        f"{precisions} on",
        "commit",
    ]
    return _table(heads, rows)


def _machine(record: Record) -> str:
    facts = record.environment
    processor = str(facts.get("gpu", facts.get("processor", "unknown")))
    name = " ".join(re.sub(r"\(R\)|\(TM\)|Processor", "", processor).split())
    cores = f"{facts.get('threads')} core{'s' * (facts.get('threads') != 1)}"
    parts = [name] if "gpu" in facts else [name, *(["AMX"] if facts.get("amx") else []), cores]
    return ", ".join(parts)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *rows))


def results_page() -> str:
    """The whole page, its marked part made anew."""
    page = (ROOT / PAGE).read_text(encoding="utf-8")
    before, has_begin, rest = page.partition(BEGIN)
    _, has_end, after = rest.partition(END)
    if not has_begin or not has_end:
        raise DataError(f"{ROOT / PAGE}: no line '{BEGIN}' with a line '{END}' after it")
    return f"{before}{BEGIN}\n\n{page_part(read_records(ROOT / RECORDS))}\n\n{END}{after}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/results", description=__doc__)
    parser.add_argument("--dry-run", action="store_true", help="print the page, and write nothing")
    adding = parser.add_subparsers(dest="command", metavar="add").add_parser(
        "add", help="keep records"
    )
    adding.add_argument(
        "runs", type=Path, nargs="+", metavar="RUN", help="finished, evaluated run folder"
    )
    adding.add_argument(
        "--config", required=True, metavar="NAME", help="it was made from configs/NAME.toml"
    )
    adding.add_argument(
        "--replace", action="store_true", help="replace the record of another training"
    )
    args = parser.parse_args()
    try:
        if args.command == "add":
            add(args.runs, config_name=args.config, replaces=args.replace)
        if args.dry_run:
            print(results_page(), end="")
        else:
            (ROOT / PAGE).write_text(results_page(), encoding="utf-8")
            print(ROOT / PAGE)
    except MtCliError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
