"""What is reported while a model is trained: means, warnings, a terminal that may go away."""

from pathlib import Path

import pexpect
import pytest
import torch
from trained import checkpoint, ended, sets, train
from workspace import MT_CLI, TIMEOUT_S, Workspace

from mt_cli.config.load import parse_config
from mt_cli.runs.reports import StepRecord
from mt_cli.training.advice import warning_after, warning_of_risen_loss, warnings_before
from mt_cli.training.monitor import Meter
from mt_cli.training.trainer import StepReport

NAN = float("nan")


def test_a_meter_gives_means_over_tokens_and_counts_skipped_updates_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 7.0
    monkeypatch.setattr("mt_cli.training.monitor.time.perf_counter", lambda: now)
    meter = Meter()
    assert meter.read() is None
    tensor = torch.tensor
    for step, tokens, loss, skipped in ((1, 10, 4.0, 0.0), (2, 99, NAN, 1.0), (3, 30, 2.0, 0.0)):
        measured = (tensor(loss), tensor(loss - 1), tensor(0.5), tensor(skipped))
        meter.add(StepReport(step, 1, False, step / 1000, tokens, *measured))
    now += 0.5
    assert meter.read() == StepRecord(
        step=3,
        epoch=1,
        loss=2.5,
        nll=1.5,
        lr=0.003,
        grad_norm=0.5,
        tgt_tokens_per_s=80.0,
        skipped=1,
    )


MANY = [f"Satz {i}" for i in range(20)]


@pytest.mark.parametrize(
    ("settings", "total_steps", "expected"),
    [
        ([], 300, []),
        (["training.max_steps=100"], 100, []),  # on purpose
        (["training.max_steps=500"], 299, ["only 299 updates"]),
        (["training.init_from=runs/a"], 100, []),
        (["training.warmup_steps=1000"], 1000, ["before the warm-up of 1000"]),
    ],
)
def test_few_updates_and_a_late_warm_up_are_warned_of(
    settings: list[str], total_steps: int, expected: list[str]
) -> None:
    config = parse_config({}, settings)
    warnings = list(warnings_before(config, num_pairs=50, total_steps=total_steps))
    assert len(warnings) == len(expected)
    assert all(words in warning for words, warning in zip(expected, warnings, strict=True))


@pytest.mark.parametrize(
    ("bleu", "hyps", "sources", "expected"),
    [
        (30.0, MANY, MANY, None),
        (0.9, MANY, MANY, "did not learn to translate: 0.90 BLEU"),
        (30.0, ["A.", "B."] * 10, MANY, "20 different sources have only 2"),
        (30.0, ["A."] * 20, ["Ein Hund."] * 20, None),
    ],
    ids=["good", "poor", "deaf", "one source"],
)
def test_a_model_that_learnt_nothing_is_warned_of(
    bleu: float, hyps: list[str], sources: list[str], expected: str | None
) -> None:
    warning = warning_after(bleu, hyps, sources)
    assert warning is None if expected is None else expected in str(warning)


@pytest.mark.parametrize(
    ("val", "train_nll", "expected"),
    [
        ([3.0, 2.0, 2.09], [3.0, 2.0, 1.0], None),
        ([3.0, 2.0, 2.2], [3.0, 2.0, 1.0], "overfits: its loss on val rose from 2.000 to 2.2"),
        ([3.0, 2.0, 2.2], [3.0, 2.0, 2.3], "got worse: its loss on val rose"),
    ],
)
def test_loss_on_val_that_rises_again_is_explained_by_the_loss_in_training(
    val: list[float], train_nll: list[float], expected: str | None
) -> None:
    warning = warning_of_risen_loss(list(enumerate(val)), list(enumerate(train_nll)))
    assert warning is None if expected is None else expected in str(warning)


def test_warnings_before_and_after_a_training_are_shown(workspace: Workspace, run: Path) -> None:
    outcome = train(workspace, run, *sets("training.warmup_steps=400", "training.max_epochs=2"))
    assert outcome.code == 0
    assert "most models need a thousand or more" in outcome.err
    assert "training.warmup_steps = 0.1" in outcome.err
    assert "warning: the model " in outcome.err


@pytest.mark.processes
def test_a_lost_terminal_stops_a_training_and_saves_it(workspace: Workspace, run: Path) -> None:
    words = ["train", "tiny.toml", "--run", str(run), "--set", "training.max_epochs=500"]
    with pexpect.spawn(
        MT_CLI[0],
        [*MT_CLI[1:], *words],
        cwd=str(workspace.folder),
        timeout=TIMEOUT_S,
        dimensions=(24, 80),
    ) as child:
        child.expect("val nll")  # the head of the table of validations: there is a checkpoint
        child.ptyproc.fileobj.close()  # the terminal is gone
        code = child.wait()
    state, step = ended(run)
    assert (state, code) == ("stopped", 129)
    assert checkpoint(run).name == f"step-{step:08}"
