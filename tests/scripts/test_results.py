"""`scripts/results`: records of runs, what is refused, and the page made of them."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import results
from damage import change_json, rehash
from results import BEGIN, END, PAGE, RECORDS, Record, main, page_part, read_records, take_record
from sacrebleu import corpus_bleu
from workspace import SEED, Workspace

from mt_cli.errors import MtCliError


@pytest.fixture(scope="session")
def evaluated_run(workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with two evaluations, to be left as it is."""
    run = workspace.copy_run(tmp_path_factory.mktemp("evaluated") / "tiny")
    for search in ([], ["--beam-size", 2, "--length-penalty", 0.5]):
        outcome = workspace.call("evaluate", run, "--quiet", *search)
        assert outcome.code == 0, outcome.err
    change_json(run / "env.json", commit="0" * 40, commit_modified=False)
    return run


@pytest.fixture
def run(evaluated_run: Path, tmp_path: Path) -> Path:
    """A run of one's own."""
    return Path(shutil.copytree(evaluated_run, tmp_path / "tiny"))


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


@pytest.fixture
def record(root: Path, run: Path, monkeypatch: pytest.MonkeyPatch) -> Record:
    """What is kept of the run."""
    monkeypatch.setattr("sys.argv", ["scripts/results", str(run), "--config", "tiny"])
    main()
    (record,) = read_records(root / RECORDS)
    return record


def test_record_has_what_training_and_evaluate_have_written(record: Record, run: Path) -> None:
    beam, greedy = record.evaluations
    assert (beam.split, beam.search) == ("test", "beam2-alpha0.5")
    assert (greedy.split, greedy.search) == ("test", "greedy")
    folder = run / "eval" / "test-greedy"
    hyps = (folder / "hyp.txt").read_text().splitlines()
    refs = (folder / "ref.txt").read_text().splitlines()
    assert greedy.bleu.score == pytest.approx(corpus_bleu(hyps, [refs]).score)
    assert (record.config_name, record.commit, record.seed) == ("tiny", "0" * 40, SEED)
    assert record.checkpoint == (run / "best.txt").read_text().strip()
    told = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    found = [each["bleu"] for each in told if "bleu" in each]
    assert [bleu for _, bleu in record.validations] == found


def test_page_is_written_between_its_marks(record: Record, root: Path) -> None:
    page = (root / PAGE).read_text(encoding="utf-8")
    assert page == f"# Results\n\n{BEGIN}\n\n{page_part([record])}\n\n{END}\n\nMore.\n"
    assert f"| {record.evaluations[1].bleu.score:.2f} ±" in page


def stop(run: Path) -> None:
    change_json(run / "status.json", state="stopped")


def forget_evaluations(run: Path) -> None:
    shutil.rmtree(run / "eval")


def translate_otherwise(run: Path) -> None:
    (run / "eval" / "test-greedy" / "hyp.txt").write_text("a\n")


def train_on(run: Path) -> None:
    for path in run.glob("eval/*/scores.json"):
        change_json(path, weights="0" * 64)


def change_code(run: Path) -> None:
    change_json(run / "env.json", commit_modified=True)


def change_config(run: Path) -> None:
    path = run.parent / "repository" / "configs" / "tiny.toml"
    path.write_text(path.read_text().replace("d_ff = 128", "d_ff = 256"))


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (stop, "not finished"),
        (forget_evaluations, "not evaluated"),
        (translate_otherwise, "test-greedy"),
        (train_on, "not evaluated"),
        (change_code, "not committed"),
        (change_config, r"\[model\]"),
    ],
)
def test_run_that_is_not_whole_is_refused(
    root: Path, run: Path, spoil: Callable[[Path], None], complaint: str
) -> None:
    spoil(run)
    with pytest.raises(MtCliError, match=complaint):
        take_record(run, "tiny")


def test_a_seed_may_begin_with_a_seed_of_what_the_config_names(root: Path, run: Path) -> None:
    def begin_with(config: bytes, name: str) -> bytes:
        return config.replace(b"[training]\n", f'[training]\ninit_from = "{name}"\n'.encode())

    published = root / "configs" / "tiny.toml"
    published.write_bytes(begin_with(published.read_bytes(), "runs/base"))
    own = run.joinpath("config.toml").read_bytes()
    rehash(run, "config.toml", begin_with(own, "runs/base-seed2"))
    assert take_record(run, "tiny").config["training"]["init_from"] == "runs/base-seed2"
    rehash(run, "config.toml", begin_with(own, "runs/other"))
    with pytest.raises(MtCliError, match=r"\[training\]"):
        take_record(run, "tiny")


def test_seeds_are_one_row_with_mean_and_deviation(record: Record) -> None:
    def with_score(seed: int, score: float) -> Record:
        greedy = record.evaluations[1]
        config = {**record.config, "runtime": {**record.config["runtime"], "seed": seed}}
        scored = replace(greedy, bleu=replace(greedy.bleu, score=score, half_width=2.0))
        return replace(record, config=config, evaluations=(scored,))

    part = page_part([with_score(1, 38.0), with_score(2, 40.0)])
    assert "| `tiny` | greedy | 1, 2 | – | 39.00 ±2.00 | 1.41 | " in part


def test_systems_of_several_runs_name_their_helpers(record: Record) -> None:
    search = "beam20-alpha1.4, with a and b, reranked by c (0.3, 2)"
    evaluation = replace(record.evaluations[0], search=search)
    part = page_part([replace(record, evaluations=(evaluation,))])
    assert f"| `tiny`, a, b, reranked by c (0.3, 2) | beam 20, alpha 1.4 | {SEED} |" in part


def test_page_says_how_soon_a_training_got_to_a_score(record: Record) -> None:
    found = replace(record, validations=((60.0, 37.9), (120.0, 38.0), (180.0, 37.0), (240.0, 41.5)))
    assert "| 2.0 | 4.0 | – |" in page_part([found])
    assert "| – | – | – |" in page_part([replace(found, init_from="runs/trained")])
