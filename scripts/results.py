"""Keep records of finished runs in docs/records, and write docs/lab/records.md from all records.

A record is small and stays when the run is gone.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from mt_cli.config.load import load_config
from mt_cli.errors import DataError, MtCliError, UsageError
from mt_cli.evaluation.kept import SPLIT, WEIGHTS
from mt_cli.machine.files import check_hashes, parsed, read_json
from mt_cli.runs.opening import open_run
from mt_cli.runs.run import SCORES, Run

ROOT = Path(__file__).resolve().parents[1]
PAGE = Path("docs", "lab", "records.md")
RECORDS = Path("docs", "records")
BEGIN = "<!-- figures of recorded trainings: made by scripts/results -->"
END = "<!-- end of the figures of recorded trainings -->"
VAL = "val"


Evaluation = dict[str, Any]
"""The scores of one test set's translations: `split`; `search`, as `beam20-alpha1.4`, and the other
runs that helped; `bleu` and `chrf`; the `sha256` of src.txt, ref.txt and hyp.txt.
"""


@dataclass(frozen=True)
class Record:
    """A finished training and its scores."""

    config_name: str
    """Path of the config that the run was made from, below `configs/` and without `.toml`."""
    config: dict[str, dict[str, Any]]
    """The whole config that the run was trained with."""
    init_from: str | None
    """The run whose weights it began with; none for random ones."""
    commit: str
    checkpoint: str
    weights_sha256: str
    status: dict[str, Any]
    """status.json: updates, seconds, how it ended."""
    environment: dict[str, Any]
    """env.json: versions, device, processor, precision of training, threads."""
    evaluations: list[Evaluation]
    prepared_sha256: str | None = None

    @property
    def seed(self) -> int:
        return int(self.config["runtime"]["seed"])

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
    def parent(self) -> str:
        """The run that it began with, whatever that one's seed; empty for random weights."""
        return parent_name(self.init_from)

    @property
    def name(self) -> str:
        """Of its file, without `.json`."""
        parts = [self.config_name.replace("/", "_")]
        parts += [f"from-{self.parent}"] if self.parent else []
        return "-".join([*parts, self.precision, f"seed{self.seed}"])


def parent_name(init_from: str | None) -> str:
    """The name of a run that another one begins with, without its seed; empty for none."""
    return re.sub(r"-seed\d+$", "", Path(init_from or "").name)


def read_records(folder: Path) -> list[Record]:
    """Every record in `folder`."""
    paths = sorted(folder.glob("*.json"))
    return [parsed(Record, path.read_bytes(), path) for path in paths]


# Taking a record


def take_record(folder: Path, config_name: str) -> Record:
    """The record of the run in `folder`, which was made from `configs/<config_name>.toml`.

    Raises:
        UsageError: the run is unfinished or not evaluated, or was made from another config.
        DataError: its files are damaged.
    """
    run = open_run(folder)
    status = run.status()
    environment = run.environment()
    if environment.get("commit_modified"):
        raise UsageError(f"{folder}: trained with changes that were not committed")
    if not run.is_finished:
        raise UsageError(f"{folder}: its training is not finished ({status.state})")
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
    weights = run.weights_sha256(checkpoint)
    evaluations = list(_evaluations(run, weights))
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
        status=status.model_dump(exclude_unset=True),
        environment=environment,
        evaluations=evaluations,
        prepared_sha256=run.manifest.prepared.sha256,
    )


def _evaluations(run: Run, weights: str) -> Iterator[Evaluation]:
    """Each kept evaluation of a split by these weights."""
    for folder in run.kept_evaluations():
        scores: dict[str, Any] = read_json(folder / SCORES)
        check_hashes(folder, scores["sha256"])
        if SPLIT in scores and scores[WEIGHTS] == weights:
            split = scores[SPLIT]
            yield {
                "split": split,
                "search": ", ".join([_search(scores), *_helpers(scores)]),
                "bleu": _metric(scores["bleu"]),
                "chrf": _metric(scores["chrf"]),
                "sha256": scores["sha256"],
            }


def _search(scores: Mapping[str, Any]) -> str:
    """The search in words, without the runs that helped."""
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
        yield f"reranked by {scores['reranked_by']['run']}"


def _metric(details: Mapping[str, Any]) -> dict[str, Any]:
    """A score and half of its 95 % bootstrap interval."""
    half_width = details.get("confidence_var")
    return {
        "score": details["score"],
        "half_width": half_width,
        "signature": details["signature"],
    }


# The page

EXPLANATION = """\
- ± is half of BLEU's 95 % bootstrap interval: chance of test sentences, not of seeds. sd is over
  seeds. `mt-cli compare` tests differences."""
Row = dict[int, dict[str, Evaluation]]
"""One system with one search: by seed and split."""


def page_part(records: Sequence[Record]) -> str:
    """Everything that stands between the marks of the page."""
    if not records:
        return "No training has been recorded yet."
    evaluations = [each for record in records for each in record.evaluations]
    blocks = [EXPLANATION]
    for name, key in (("BLEU", "bleu"), ("chrF2", "chrf")):
        signatures = sorted({f"`{each[key]['signature']}`" for each in evaluations})
        blocks[0] += f"\n- {name}'s signature: {' or '.join(signatures)}"
    for corpus in sorted({record.corpus for record in records}):
        of_corpus = [record for record in records if record.corpus == corpus]
        blocks.append(f"### {corpus}\n\n{_score_table(of_corpus)}")
    blocks.append(_training_table(records))
    return "\n\n".join(blocks)


def _score_table(records: Sequence[Record]) -> str:
    rows: dict[tuple[str, str, str, str], Row] = {}  # by model, search, precision and parent
    texts: dict[str, str] = {}
    for record in records:
        for each in record.evaluations:
            search, _, helpers = each["search"].partition(", ")
            helpers = helpers.removeprefix("with ").replace(" and ", ", ")
            model = ", ".join(filter(None, [f"`{record.config_name}`", helpers]))
            row = rows.setdefault((model, search, record.precision, record.parent), {})
            row.setdefault(record.seed, {})[each["split"]] = each
            text = each["sha256"]["src.txt"] + each["sha256"]["ref.txt"]
            if texts.setdefault(each["split"], text) != text:
                raise DataError(f"{each['split']}: records of different texts have this name")
    tests = sorted(texts.keys() - {VAL}) or [VAL]

    def order(key: tuple[str, str, str, str]) -> tuple[bool, bool, float]:
        model, search, *_ = key
        return "," in model, search != "greedy", -mean(_scores(rows[key], tests[0]) or [0.0])

    heads = ["model", "search", "seeds", VAL, tests[0], "sd", "chrF2", *tests[1:]]
    lines = []
    for key in sorted(rows, key=order):
        model, search, *_ = key
        lines.append([model, re.sub(r"beam(\d+)-alpha", r"beam \1, alpha ", search)])
        lines[-1] += _cells(rows[key], tests)
    return markdown(heads, lines)


def _cells(row: Row, tests: Sequence[str]) -> list[str]:
    """The figures of a row; most are of the first test."""
    first = _scores(row, tests[0])
    chrf = _scores(row, tests[0], key="chrf")
    val = _scores(row, VAL)
    return [
        ", ".join(map(str, sorted(row))),
        f"{mean(val):.2f}" if val else "–",
        _with_interval(row, tests[0]),
        f"{stdev(first):.2f}" if len(first) > 1 else "–",
        f"{mean(chrf):.2f}" if chrf else "–",
        *(_with_interval(row, test) for test in tests[1:]),
    ]


def _scores(row: Row, split: str, *, key: str = "bleu", what: str = "score") -> list[float]:
    """One for each seed; none if one of them lacks it."""
    found = [row[seed][split][key][what] for seed in sorted(row) if split in row[seed]]
    return found if len(found) == len(row) else []


def _with_interval(row: Row, split: str) -> str:
    scores = _scores(row, split)
    widths = list(filter(None, _scores(row, split, what="half_width")))
    if not scores:
        return "–"
    return f"{mean(scores):.2f}" + (f" ±{mean(widths):.2f}" if widths else "")


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
                _machine(record.environment),
                ", ".join(f"`{commit[:9]}`" for commit in commits),
            ]
        )
    precisions = " or ".join(sorted({record.precision for record in records}))
    return markdown(["model", "seed", "minutes", f"{precisions} on", "commit"], rows)


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
