"""`scripts/results`: records of runs, refused where a run is not whole, and the page made of them."""

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import results
from results import (
    BEGIN,
    END,
    PAGE,
    RECORDS,
    Record,
    bleu_of,
    counts_of,
    main,
    p_value,
    page_part,
    read_records,
)
from sacrebleu import corpus_bleu
from workspace import Workspace

REFS = [
    f"a man {verb} in a {place} ." for verb in ("sleeps", "walks", "sits") for place in "abcdefgh"
]
HYPS = [ref.replace("in a", "in the").replace("walks", "runs") for ref in REFS]


@pytest.fixture(scope="session")
def evaluated_run(workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with two evaluations, to be left as it is."""
    run = workspace.copy_run(tmp_path_factory.mktemp("evaluated") / "tiny")
    for search in ([], ["--beam-size", 2, "--length-penalty", 0.5]):
        outcome = workspace.call("evaluate", run, "--quiet", *search)
        assert outcome.code == 0, outcome.err
    return run


@pytest.fixture
def run(evaluated_run: Path, tmp_path: Path) -> Path:
    """A run of one's own."""
    run = Path(shutil.copytree(evaluated_run, tmp_path / "tiny"))
    change_json(run / "env.json", commit="0" * 40, commit_modified=False)
    return run


@pytest.fixture
def root(workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a config and a page, which the script takes for its own."""
    root = tmp_path / "repository"
    (root / "configs").mkdir(parents=True)
    (root / PAGE).parent.mkdir()
    shutil.copy(workspace.folder / "tiny.toml", root / "configs" / "tiny.toml")
    (root / PAGE).write_text(f"# Results\n\n{BEGIN}\n\nold\n\n{END}\n\nMore.\n", encoding="utf-8")
    monkeypatch.setattr(results, "ROOT", root)
    return root


Call = Callable[..., int]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch) -> Call:
    def call(*args: object) -> int:
        monkeypatch.setattr(sys, "argv", ["scripts/results", *map(str, args)])
        try:
            main()
        except SystemExit as end:
            return int(str(end.code))
        return 0

    return call


@pytest.fixture
def record(call: Call, root: Path, run: Path) -> Record:
    """What is kept of the run."""
    assert call("add", run, "--config", "tiny") == 0
    (record,) = read_records(root / RECORDS)
    return record


def change_json(path: Path, **changes: object) -> None:
    content: dict[str, Any] = json.loads(path.read_bytes()) | changes
    path.write_text(json.dumps(content), encoding="utf-8")


def test_record_has_what_training_and_evaluate_have_written(record: Record, run: Path) -> None:
    assert [(each.split, each.search) for each in record.evaluations] == [
        ("test", "beam2-alpha0.5"),
        ("test", "greedy"),
    ]
    greedy = record.evaluations[1]
    folder = run / "eval" / "test-greedy"
    hyps, refs = ((folder / name).read_text().splitlines() for name in ("hyp.txt", "ref.txt"))
    assert greedy.bleu.score == pytest.approx(corpus_bleu(hyps, [refs]).score)
    assert greedy.n == len(refs)
    assert (record.config_name, record.commit, record.seed) == ("tiny", "0" * 40, 4)
    assert record.checkpoint == (run / "best.txt").read_text().strip()


def test_page_is_written_between_its_marks(record: Record, root: Path) -> None:
    page = (root / PAGE).read_text(encoding="utf-8")
    assert page == f"# Results\n\n{BEGIN}\n\n{page_part([record])}\n\n{END}\n\nMore.\n"
    assert f"| {record.evaluations[1].bleu.score:.2f} ±" in page


def test_dry_run_writes_nothing(call: Call, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--dry-run") == 0
    assert "No training has been recorded yet." in capsys.readouterr().out
    assert "\n\nold\n\n" in (root / PAGE).read_text(encoding="utf-8")


def test_record_is_replaced_by_the_same_weights_and_no_others(
    call: Call, root: Path, run: Path, record: Record
) -> None:
    shutil.rmtree(run / "eval" / "test-greedy")
    assert call("add", run, "--config", "tiny") == 0
    (path,) = (root / RECORDS).iterdir()
    assert len(read_records(path.parent)[0].evaluations) == 1
    change_json(path, weights_sha256="0" * 64)
    assert call("add", run, "--config", "tiny") == 2
    assert call("add", run, "--config", "tiny", "--replace") == 0
    assert read_records(path.parent)[0].weights_sha256 == record.weights_sha256


def unfinished(run: Path) -> None:
    change_json(run / "status.json", state="stopped")


def unevaluated(run: Path) -> None:
    shutil.rmtree(run / "eval")


def translated_otherwise(run: Path) -> None:
    path = run / "eval" / "test-greedy" / "hyp.txt"
    path.write_text("a\n" * len(path.read_text().splitlines()))


def of_another_checkpoint(run: Path) -> None:
    change_json(run / "eval" / "test-greedy" / "scores.json", checkpoint="step-00000001")


def with_changes(run: Path) -> None:
    change_json(run / "env.json", commit_modified=True)


def of_another_config(run: Path) -> None:
    path = run.parent / "repository" / "configs" / "tiny.toml"
    path.write_text(path.read_text().replace("d_ff = 128", "d_ff = 256"))


@pytest.mark.parametrize(
    ("spoil", "code", "complaint"),
    [
        (unfinished, 2, "its training is not finished (stopped)"),
        (unevaluated, 2, "not evaluated yet"),
        (translated_otherwise, 3, "scores.json says otherwise"),
        (of_another_checkpoint, 2, "made by step-00000001"),
        (with_changes, 2, "not committed"),
        (of_another_config, 2, "another [model]"),
    ],
)
def test_run_that_is_not_whole_is_refused(
    call: Call, root: Path, run: Path, spoil: Callable[[Path], None], code: int, complaint: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    spoil(run)
    assert call("add", run, "--config", "tiny") == code
    assert complaint in capsys.readouterr().err
    assert not (root / RECORDS).exists()


def test_one_unfit_run_keeps_all_from_being_recorded(
    call: Call, root: Path, run: Path, tmp_path: Path
) -> None:
    other = shutil.copytree(run, tmp_path / "other")
    unevaluated(other)
    assert call("add", run, other, "--config", "tiny") == 2
    assert not (root / RECORDS).exists()


def test_record_whose_score_was_typed_is_refused(call: Call, root: Path, record: Record) -> None:
    (path,) = (root / RECORDS).iterdir()
    path.write_text(path.read_text().replace('"score": ', '"score": 1'))
    assert call() == 3


def test_seeds_are_one_row_with_mean_and_deviation(record: Record) -> None:
    def with_score(seed: int, score: float) -> Record:
        greedy = record.evaluations[1]
        config = {**record.config, "runtime": {**record.config["runtime"], "seed": seed}}
        scored = replace(greedy, bleu=replace(greedy.bleu, score=score, half_width=2.0))
        return replace(record, config=config, evaluations=(scored,))

    part = page_part([with_score(1, 38.0), with_score(2, 40.0)])
    assert "| `tiny` | greedy | 1, 2 | – | 39.00 ±2.00 | 1.41 | – |" in part


def test_systems_of_several_runs_name_their_helpers(record: Record) -> None:
    search = "beam20-alpha1.4, with a and b, reranked by c (0.3, 2)"
    part = page_part(
        [replace(record, evaluations=(replace(record.evaluations[0], search=search),))]
    )
    assert "| `tiny`, a, b, reranked by c (0.3, 2) | beam 20, alpha 1.4 | 4 |" in part


def test_page_says_how_soon_a_training_got_to_a_score(record: Record, run: Path) -> None:
    told = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [bleu for _, bleu in record.validations] == [
        each["bleu"] for each in told if "bleu" in each
    ]
    found = replace(record, validations=((60.0, 37.9), (120.0, 38.0), (180.0, 37.0), (240.0, 41.5)))
    assert "| 2.0 | 4.0 | – |" in page_part([found])
    assert "| – | – | – |" in page_part([replace(found, init_from="runs/trained")])


def test_counts_give_bleu_as_sacrebleu_does() -> None:
    score = corpus_bleu(HYPS, [REFS]).score
    assert bleu_of(counts_of(HYPS, REFS, lowercase=False).sum(0)) == pytest.approx(score)


def test_p_is_small_for_a_real_difference_and_large_for_none() -> None:
    good, bad = (counts_of(hyps, REFS, lowercase=False) for hyps in (REFS, HYPS))
    assert p_value(good, bad) < 0.001
    mixed, other = np.where(np.arange(len(REFS))[:, None] % 2, good, bad), np.roll(good, 1, axis=0)
    assert p_value(mixed, np.where(np.arange(len(REFS))[:, None] % 2, bad, good)) > 0.2
    assert p_value(good, other) == 1.0
