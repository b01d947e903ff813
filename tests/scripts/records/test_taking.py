"""Records of runs: complete, true to the run's files, and refused where those are not whole."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from recorded import change_json, git
from records.page import RECORDS
from records.record import Record
from records.results import add
from records.taking import configs_in, nearest_config, other_runs, take_record
from sacrebleu_command import command_intervals, command_scores
from workspace import Workspace

from mt_cli.artefacts.run_facts import ENVIRONMENT, STATUS, read_facts
from mt_cli.config import load_config
from mt_cli.errors import MtCliError, UsageError


def lines_of(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def test_record_has_the_figures_of_sacrebleus_own_command(
    own_run: Path, record: Record, tmp_path: Path
) -> None:
    assert [(each.split, each.search) for each in record.evaluations] == [
        ("test", "beam2-alpha0.5"),
        ("test", "greedy"),
    ]
    for each in record.evaluations:
        folder = own_run / "eval" / f"test-{each.search}"
        hyps, refs = lines_of(folder / "hyp.txt"), lines_of(folder / "ref.txt")
        metrics = {"BLEU": each.bleu, "chrF2": each.chrf, "TER": each.ter}
        own = {name: f"{metric.score:.10f}" for name, metric in metrics.items()}
        assert own == command_scores(tmp_path, hyps, refs)
        intervals = command_intervals(tmp_path, hyps, refs)
        widths = {name: f"{metric.half_width:.2f}" for name, metric in metrics.items()}
        assert widths == {name: re.findall(r"± ([\d.]+)", text)[0] for name, text in intervals.items()}
        assert each.n == len(refs)


def test_record_says_how_the_run_was_trained(own_run: Path, record: Record, repository: Path) -> None:
    status = json.loads((own_run / "status.json").read_bytes())
    assert record.config_name == "tiny"
    assert record.seed == load_config(repository / "configs" / "tiny.toml").runtime.seed
    assert record.status == read_facts(own_run, STATUS)
    assert record.environment == read_facts(own_run, ENVIRONMENT)
    assert (record.commit, record.commit_from) == (git(repository, "rev-parse", "HEAD"), "env.json")
    assert record.validation.step == status["best_step"]
    assert record.validation.bleu == status["best_score"]
    assert record.checkpoint == (own_run / "best.txt").read_text().strip()


def test_commit_can_be_given_for_a_run_that_names_none(own_run: Path, repository: Path) -> None:
    change_json(own_run / "env.json", commit=None)
    head = git(repository, "rev-parse", "HEAD")
    taken = take_record(own_run, root=repository, commit=head[:10])
    assert (taken.commit, taken.commit_from) == (head, "--commit")


def unfinished(own_run: Path) -> None:
    change_json(own_run / "status.json", state="stopped")


def unevaluated(own_run: Path) -> None:
    shutil.rmtree(own_run / "eval")


def damaged(own_run: Path) -> None:
    (own_run / "eval" / "test-greedy" / "hyp.txt").write_text("Another translation.\n")


def with_another_score(own_run: Path) -> None:
    path = own_run / "eval" / "test-greedy" / "scores.json"
    bleu = json.loads(path.read_bytes())["bleu"]
    change_json(path, bleu={**bleu, "score": 99.9})


def of_another_checkpoint(own_run: Path) -> None:
    change_json(own_run / "eval" / "test-greedy" / "scores.json", checkpoint="step-00000001")


def without_commit(own_run: Path) -> None:
    change_json(own_run / "env.json", commit=None)


@pytest.mark.parametrize(
    ("spoil", "complaint", "exit_code"),
    [
        (unfinished, r"its training is not finished \(stopped\); mt-cli train .*--resume", 2),
        (unevaluated, "not evaluated yet; mt-cli evaluate", 2),
        (damaged, r"test-greedy: altered or damaged: .*evaluate again: mt-cli evaluate \S+ --split test", 3),
        (with_another_score, r"BLEU is \d+\.\d+, but scores.json says 99\.9000", 3),
        (of_another_checkpoint, r"test-greedy: made by step-00000001, but step-\d+ is best", 2),
        (without_commit, r"env.json names no commit; name the one .*--commit", 2),
    ],
)
def test_run_that_is_not_whole_is_refused(
    own_run: Path, repository: Path, spoil: Callable[[Path], None], complaint: str, exit_code: int
) -> None:
    spoil(own_run)
    with pytest.raises(MtCliError, match=complaint) as caught:
        add([own_run], root=repository)
    assert caught.value.exit_code == exit_code
    assert not (repository / RECORDS).exists()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"commit": "HEAD"}, "env.json names its commit, [0-9a-f]{40}; leave --commit out"),
        ({"config_name": "tinny"}, "--config tinny: no such config; there are tiny"),
    ],
)
def test_wrong_option_is_refused(
    own_run: Path, repository: Path, options: dict[str, str], complaint: str
) -> None:
    with pytest.raises(UsageError, match=complaint):
        take_record(own_run, root=repository, **options)


def test_commit_that_nobody_knows_is_refused(own_run: Path, repository: Path) -> None:
    change_json(own_run / "env.json", commit=None)
    with pytest.raises(UsageError, match="--commit f00: no such commit"):
        take_record(own_run, root=repository, commit="f00")


def test_evaluations_of_others_are_left_out(workspace: Workspace, own_run: Path, repository: Path) -> None:
    for options in (["--checkpoint", "last"], ["--backend", "torch"]):
        assert workspace.call("evaluate", own_run, "--quiet", *options).code == 0
    assert len(list((own_run / "eval").iterdir())) == 4
    assert [each.search for each in take_record(own_run, root=repository).evaluations] == [
        "beam2-alpha0.5",
        "greedy",
    ]


def test_a_system_of_several_runs_names_the_others(
    workspace: Workspace, own_run: Path, repository: Path
) -> None:
    other = shutil.copytree(own_run, own_run.with_name("other"))
    assert workspace.call("evaluate", own_run, other, "--quiet").code == 0
    searches = [each.search for each in take_record(own_run, root=repository).evaluations]
    assert searches == ["beam2-alpha0.5", "greedy", "greedy, with other"]


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({}, ", reranked by back (0.3, 2)"),
        ({"with": [{"run": "a"}, {"run": "b"}]}, ", with a and b, reranked by back (0.3, 2)"),
    ],
)
def test_a_reranked_system_names_who_chose(members: dict[str, object], words: str) -> None:
    reranked_by = {"run": "back", "weights": {"reverse": 0.3, "length": 2}}
    assert other_runs({**members, "reranked_by": reranked_by}) == words


def test_two_systems_of_one_name_are_refused(workspace: Workspace, own_run: Path, repository: Path) -> None:
    other = shutil.copytree(own_run, own_run.with_name("other"))
    assert workspace.call("evaluate", own_run, other, "--quiet").code == 0
    (folder,) = own_run.glob("eval/test-greedy-with-*")
    folder.rename(folder.with_name("test-greedy-with-other-00000000"))
    assert workspace.call("evaluate", own_run, other, "--quiet").code == 0
    with pytest.raises(UsageError, match=r"are both greedy, with other; remove the older one"):
        take_record(own_run, root=repository)


def test_nearest_config_differs_in_the_fewest_keys(repository: Path) -> None:
    text = (repository / "configs" / "tiny.toml").read_text()
    (repository / "configs" / "wide.toml").write_text(text.replace("d_ff = 128", "d_ff = 256"))
    (repository / "configs" / "sweeps").mkdir()
    (repository / "configs" / "sweeps" / "no-config.toml").write_text("config = 1")
    published = configs_in(repository / "configs")
    own = load_config(
        repository / "configs" / "tiny.toml", ["model.d_ff=256", "training.r_drop=1", "runtime.seed=7"]
    )
    assert nearest_config(own, published) == "wide"
    between = load_config(repository / "configs" / "tiny.toml", ["model.d_ff=192"])
    with pytest.raises(UsageError, match="tiny, wide are equally near; name it with --config"):
        nearest_config(between, published)
