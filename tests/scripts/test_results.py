"""`scripts/results`: records of runs, what is refused, and the page made of them."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import results
from damage import change_json
from results import BEGIN, END, PAGE, RECORDS, Record, main, page_part, read_records, take_record
from sacrebleu import corpus_bleu
from workspace import SEED, Workspace

from mt_cli.errors import MtCliError


@pytest.fixture
def run(workspace: Workspace, tmp_path: Path) -> Path:
    """A run of one's own with two evaluations."""
    run = workspace.copy_run(tmp_path / "tiny")
    for search in ([], ["--beam-size", 2, "--length-penalty", 0.5]):
        outcome = workspace.call("evaluate", run, "--quiet", *search)
        assert outcome.code == 0, outcome.err
    change_json(run / "env.json", commit="0" * 40, commit_modified=False)
    return run


@pytest.fixture
def root(workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a config and a page, which the script takes for its own."""
    root = tmp_path / "repository"
    (root / "configs").mkdir(parents=True)
    (root / PAGE).parent.mkdir(parents=True)
    shutil.copy(workspace.folder / "tiny.toml", root / "configs" / "tiny.toml")
    (root / PAGE).write_text(f"# Results\n\n{BEGIN}\n\nold\n\n{END}\n\nMore.\n", encoding="utf-8")
    monkeypatch.setattr(results, "ROOT", root)
    return root


@pytest.fixture
def record(root: Path, run: Path, monkeypatch: pytest.MonkeyPatch) -> Record:
    """What is kept of the run."""
    monkeypatch.setattr("sys.argv", ["scripts/results", str(run), "--config", "tiny"])
    main()
    (record,) = read_records(root / RECORDS)
    return record


def test_record_has_what_training_and_evaluate_have_written(record: Record, run: Path) -> None:
    beam, greedy = record.evaluations
    assert (beam["split"], beam["search"]) == ("test", "beam2-alpha0.5")
    assert (greedy["split"], greedy["search"]) == ("test", "greedy")
    folder = run / "eval" / "test-greedy"
    hyps = (folder / "hyp.txt").read_text().splitlines()
    refs = (folder / "ref.txt").read_text().splitlines()
    assert greedy["bleu"]["score"] == pytest.approx(corpus_bleu(hyps, [refs]).score)
    assert (record.config_name, record.commit, record.seed) == ("tiny", "0" * 40, SEED)
    assert record.checkpoint == (run / "best.txt").read_text().strip()


def test_a_reranked_evaluation_names_the_run_that_chose(run: Path, root: Path) -> None:
    reverse = {"run": "runs/reverse", "checkpoint": "step-1", "sha256": "0" * 64}
    change_json(run / "eval" / "test-greedy" / "scores.json", reranked_by=reverse)
    _, reranked = take_record(run, "tiny").evaluations
    assert reranked["search"] == "greedy, reranked by runs/reverse"


def test_page_is_written_between_its_marks(record: Record, root: Path) -> None:
    page = (root / PAGE).read_text(encoding="utf-8")
    assert page == f"# Results\n\n{BEGIN}\n\n{page_part([record])}\n\n{END}\n\nMore.\n"
    score = record.evaluations[1]["bleu"]["score"]
    assert f"| {score:.2f} ±" in page


def stop(run: Path) -> None:
    change_json(run / "status.json", state="stopped")


def train_on(run: Path) -> None:
    for path in run.glob("eval/*/scores.json"):
        change_json(path, weights="0" * 64)


def change_config(run: Path) -> None:
    path = run.parent / "repository" / "configs" / "tiny.toml"
    path.write_text(path.read_text().replace("d_ff = 64", "d_ff = 256"))


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (stop, "not finished"),
        (train_on, "not evaluated"),
        (change_config, r"\[model\]"),
    ],
)
def test_run_that_is_not_whole_is_refused(
    root: Path, run: Path, spoil: Callable[[Path], None], complaint: str
) -> None:
    spoil(run)
    with pytest.raises(MtCliError, match=complaint):
        take_record(run, "tiny")


def test_seeds_are_one_row_with_mean_and_deviation(record: Record) -> None:
    def with_score(seed: int, score: float) -> Record:
        greedy = record.evaluations[1]
        config = {**record.config, "runtime": {**record.config["runtime"], "seed": seed}}
        scored = {**greedy, "bleu": {**greedy["bleu"], "score": score, "half_width": 2.0}}
        return replace(record, config=config, evaluations=[scored])

    part = page_part([with_score(1, 38.0), with_score(2, 40.0)])
    assert "| `tiny` | greedy | 1, 2 | – | 39.00 ±2.00 | 1.41 | " in part
