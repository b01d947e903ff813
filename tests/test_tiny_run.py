"""The model in tests/tiny_run: what training makes today, with clear choices."""

from pathlib import Path

import torch
from trained import ended, records, steps_of
from workspace import TINY_RUN, Workspace, train_tiny_run

from mt_cli.data.prepared import open_prepared
from mt_cli.runs.opening import open_run
from mt_cli.text import BOS_ID, EOS_ID

AGAIN = "the format has changed: .venv/bin/python tests/workspace.py"


def test_training_learns_the_pairs_and_leaves_a_run_like_the_one_in_the_repository(
    tmp_path: Path,
) -> None:
    """Each processor finds other weights; its best checkpoint need not be the last."""
    made = train_tiny_run(tmp_path / "workspace")
    assert ended(made) == ended(TINY_RUN), AGAIN
    assert steps_of(made, "validation") == steps_of(TINY_RUN, "validation")
    *_, last = records(made, "step")
    assert last["nll"] < 0.1
    assert last.keys() == records(TINY_RUN, "step")[-1].keys(), AGAIN
    files, expected = ({path.name for path in run.rglob("*.*")} for run in (made, TINY_RUN))
    assert files == expected, AGAIN
    assert open_run(made).config == open_run(TINY_RUN).config, AGAIN


def test_the_run_was_trained_on_what_prepare_makes(workspace: Workspace) -> None:
    prepared = open_prepared(workspace.prepared)
    assert open_run(TINY_RUN).manifest.prepared.sha256 == prepared.sha256, AGAIN


def test_each_token_of_the_pairs_known_by_heart_is_chosen_clearly(workspace: Workspace) -> None:
    run = open_run(TINY_RUN)
    model = run.load_model()
    sources, targets = (
        workspace.corpus(name).read_text(encoding="utf-8").splitlines()[1:]
        for name in ("train.de", "train.en")
    )
    pairs = zip(
        run.tokenizers.encode(sources, "src"), run.tokenizers.encode(targets, "tgt"), strict=True
    )
    for src, tgt in pairs:
        with torch.no_grad():
            logits = model(torch.tensor([[*src, EOS_ID]]), torch.tensor([[BOS_ID, *tgt]]))[0]
        values, tokens = logits.topk(2)  # (T, 2)
        assert tokens[:, 0].tolist() == [*tgt, EOS_ID]
        assert (values[:, 0] - values[:, 1]).min() > 1
