"""Kept evaluations: whole, or as good as none."""

from pathlib import Path

from mt_cli.runs.run import Evaluation, keep_evaluation, open_evaluation

KEPT = Evaluation(
    ["Ein Hund.", ""], ["A\u2028dog.", " "], ["A dog.", ""], {"n": 2, "checkpoint": "step-00000001"}
)


def test_what_is_kept_is_read_again(tmp_path: Path) -> None:
    keep_evaluation(tmp_path / "test-greedy", KEPT)
    found = open_evaluation(tmp_path / "test-greedy", run=tmp_path)
    assert found is not None
    assert (found.sources, found.refs, found.hyps) == (KEPT.sources, KEPT.refs, KEPT.hyps)
    assert found.record.items() >= KEPT.record.items()


def test_nothing_kept_is_none(tmp_path: Path) -> None:
    assert open_evaluation(tmp_path / "none", run=tmp_path) is None
