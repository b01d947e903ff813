"""Kept evaluations: whole, or as good as none."""

from pathlib import Path

import pytest
from damage import IMPOSTORS, accepted_flips, replace_by, without_seal

from mt_cli.artefacts.evaluation import Evaluation, keep_evaluation, open_evaluation, read_scores
from mt_cli.errors import DataError

KEPT = Evaluation(
    ["Ein Hund.", ""], ["A\u2028dog.", " "], ["A dog.", ""], {"n": 2, "checkpoint": "step-00000001"}
)


def test_what_is_kept_is_read_again(tmp_path: Path) -> None:
    keep_evaluation(tmp_path / "test-greedy", KEPT)
    found = open_evaluation(tmp_path / "test-greedy", run=tmp_path)
    assert found is not None
    assert (found.sources, found.refs, found.hyps) == (KEPT.sources, KEPT.refs, KEPT.hyps)
    assert found.record.items() >= KEPT.record.items()


@pytest.mark.parametrize("name", ["src.txt", "ref.txt", "hyp.txt", "scores.json"])
def test_altered_or_lost_file_makes_it_none(tmp_path: Path, name: str) -> None:
    keep_evaluation(tmp_path, KEPT)
    tmp_path.joinpath(name).write_text("{}", encoding="utf-8")
    assert open_evaluation(tmp_path, run=tmp_path) is None
    tmp_path.joinpath(name).unlink()
    assert open_evaluation(tmp_path, run=tmp_path) is None


def test_nothing_kept_is_none(tmp_path: Path) -> None:
    assert open_evaluation(tmp_path / "none", run=tmp_path) is None


def test_altered_score_makes_it_none(tmp_path: Path) -> None:
    keep_evaluation(tmp_path, KEPT)
    scores = tmp_path / "scores.json"
    scores.write_text(scores.read_text(encoding="utf-8").replace('"n": 2', '"n": 3'), encoding="utf-8")
    assert open_evaluation(tmp_path, run=tmp_path) is None


def test_no_flipped_bit_of_the_scores_goes_unnoticed(tmp_path: Path) -> None:
    keep_evaluation(tmp_path, KEPT)
    assert accepted_flips(tmp_path / "scores.json", lambda: read_scores(tmp_path, run=tmp_path)) == []


def test_scores_without_a_seal_are_read_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keep_evaluation(tmp_path / "eval" / "test-greedy", KEPT)
    without_seal(tmp_path / "eval" / "test-greedy" / "scores.json")
    assert open_evaluation(tmp_path / "eval" / "test-greedy", run=tmp_path) is not None
    (message,) = caplog.messages
    assert message.endswith(f"to check and seal it: mt-cli inspect {tmp_path} --seal")


@pytest.mark.parametrize("name", ["src.txt", "ref.txt", "hyp.txt", "scores.json"])
@pytest.mark.parametrize("kind", IMPOSTORS)
def test_only_real_files_are_one(tmp_path: Path, name: str, kind: str) -> None:
    keep_evaluation(tmp_path / "kept", KEPT)
    replace_by(kind, tmp_path / "kept" / name)
    assert open_evaluation(tmp_path / "kept", run=tmp_path) is None


def test_nothing_is_kept_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "eval").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DataError, match="run/eval: a link"):
        keep_evaluation(tmp_path / "run" / "eval" / "test", KEPT, below=tmp_path / "run")
    assert list((tmp_path / "elsewhere").iterdir()) == []
