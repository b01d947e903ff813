"""Training and decoding in bf16, on any machine, and the one answer of fp32."""

import json
from pathlib import Path

import pytest
import torch
from tiny import BACKENDS, CPU, random_pairs, randomised, split_of, tiny_model
from workspace import Workspace

from mt_cli.config.schema import TrainingConfig
from mt_cli.machine.device import Runtime
from mt_cli.training.trainer import Trainer
from mt_cli.training.validator import mean_nll

BF16 = Runtime(torch.device("cpu"), "bf16")
PAIRS = random_pairs(40)
TRAINING = TrainingConfig(
    max_epochs=3, tokens_per_batch=60, warmup_steps=3, peak_lr=0.01, clip_norm=0.5, accumulation=2
)
each_backend = pytest.mark.parametrize("backend", BACKENDS)


@each_backend
def test_losses_of_training_and_validation_are_close_to_those_of_fp32(backend: str) -> None:
    losses = []
    for runtime in (BF16, CPU):
        model = randomised(tiny_model(backend))
        trainer = Trainer(model, split_of(PAIRS), TRAINING, runtime=runtime, seed=1)
        losses.append([report.loss.item() for report in trainer.run()])
    low, exact = losses
    assert low == pytest.approx(exact, rel=0.03)
    assert low != exact
    model = randomised(tiny_model(backend))
    low_nll, exact_nll = (
        mean_nll(model, split_of(PAIRS), tokens_per_batch=40, runtime=each) for each in (BF16, CPU)
    )
    assert low_nll == pytest.approx(exact_nll, rel=0.01)


@pytest.fixture(scope="module")
def run(workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was trained in bf16."""
    folder = tmp_path_factory.mktemp("bf16") / "run"
    options = ("--precision", "bf16", "--max-steps", 40, "--quiet")
    outcome = workspace.call("train", "tiny.toml", "--run", folder, *options)
    assert outcome.code == 0, outcome.err
    return folder


def test_validation_while_training_in_bf16_is_in_fp32_and_other_scores_are_kept_apart(
    workspace: Workspace, run: Path
) -> None:
    assert json.loads((run / "env.json").read_bytes())["precision"] == "bf16"
    on_val = ("evaluate", run, "--split", "val", "--data", workspace.prepared)
    outcome = workspace.call(*on_val, "--json")
    best_score = json.loads((run / "status.json").read_bytes())["best_score"]
    assert json.loads(outcome.out)["splits"]["val"]["bleu"]["score"] == best_score
    assert workspace.call(*on_val, "--precision", "bf16").code == 0
    kept = sorted(path.name for path in run.joinpath("eval").glob("val-greedy*"))
    assert (len(kept), kept[0]) == (2, "val-greedy")


def test_decoding_is_in_fp32_whatever_the_machine_likes(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: True)
    translate = ("translate", workspace.run, "-i", "corpus/train.de", "--with-score")
    usual = workspace.call(*translate).lines
    assert workspace.call(*translate, "--precision", "fp32").lines == usual
    assert workspace.call(*translate, "--precision", "bf16").lines != usual
