"""Training and decoding in bf16, on any machine, and the one answer of fp32."""

import json
from itertools import islice, pairwise
from pathlib import Path

import pytest
import torch
from processor import pretend_processor
from tiny import BACKENDS, random_ids, random_pairs, randomised, split_of, tiny_model, with_bos
from torch import Tensor
from workspace import Workspace

from mt_cli.config.schema import TrainingConfig
from mt_cli.machine.device import Runtime
from mt_cli.model.model import TranslationModel
from mt_cli.training.trainer import Trainer
from mt_cli.training.validator import mean_nll
from mt_cli.translation.translator import Translator

BF16 = Runtime(torch.device("cpu"), "bf16")
FP32 = Runtime(torch.device("cpu"), "fp32")
PAIRS = random_pairs(40)
DROPPING = {"dropout": 0.2, "attention_dropout": 0.1, "activation_dropout": 0.1}
TRAINING = TrainingConfig(
    max_epochs=3, tokens_per_batch=60, warmup_steps=3, peak_lr=0.01, clip_norm=0.5, accumulation=2
)
each_backend = pytest.mark.parametrize("backend", BACKENDS)


def trainer_of(model: TranslationModel, runtime: Runtime = BF16, **options: object) -> Trainer:
    config = TRAINING.model_copy(update=options)
    return Trainer(model, split_of(PAIRS), config, runtime=runtime, seed=1)


def losses(trainer: Trainer, *, most: int | None = None) -> list[float]:
    return [report.loss.item() for report in islice(trainer.run(), most)]


def operations(loss: Tensor) -> set[str]:
    """Names of the operations through which gradients flow back from `loss`."""
    found, left = set(), [loss.grad_fn]
    while left:
        node = left.pop()
        if node is not None and node not in found:
            found.add(node)
            left += [inner for inner, _ in node.next_functions]
    return {node.name() for node in found}


@pytest.mark.parametrize(
    ("runtime", "is_fused"), [(FP32, True), (BF16, False)], ids=["fp32", "bf16"]
)
def test_the_fused_attention_whose_backward_pass_is_slow_is_left_out(
    runtime: Runtime, is_fused: bool
) -> None:
    model = tiny_model("torch").compute_in(runtime.dtype).train()
    loss = model(random_ids(2, 5), with_bos(random_ids(2, 4))).sum()
    assert any("FlashAttention" in name for name in operations(loss)) == is_fused


@each_backend
def test_losses_are_close_to_those_of_fp32(backend: str) -> None:
    low, exact = (
        losses(trainer_of(randomised(tiny_model(backend)), runtime)) for runtime in (BF16, FP32)
    )
    assert low == pytest.approx(exact, rel=0.03)
    assert low != exact


@each_backend
def test_validation_loss_is_close_to_that_of_fp32(backend: str) -> None:
    model = randomised(tiny_model(backend))
    low, exact = (
        mean_nll(model, split_of(PAIRS), tokens_per_batch=40, runtime=each) for each in (BF16, FP32)
    )
    assert low == pytest.approx(exact, rel=0.01)


@each_backend
@pytest.mark.parametrize("r_drop", [0.0, 2.0], ids=["plain", "R-Drop"])
def test_a_resumed_training_equals_one_that_never_stopped(backend: str, r_drop: float) -> None:
    def fresh(seed: int) -> Trainer:
        return trainer_of(tiny_model(backend, seed=seed, options=DROPPING), r_drop=r_drop)

    whole = fresh(0)
    expected = losses(whole)
    assert all(loss != following for loss, following in pairwise(expected))
    first = fresh(0)
    before = losses(first, most=3)
    second = fresh(9)
    second.model.load_state_dict(first.model.state_dict())
    tensors = {name: tensor.clone() for name, tensor in first.state_dict().items()}
    second.restore(first.step, tensors)
    torch.manual_seed(999)
    assert before + losses(second) == expected
    torch.testing.assert_close(second.model.state_dict(), whole.model.state_dict(), rtol=0, atol=0)


@pytest.fixture(scope="module")
def run(workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was trained in bf16."""
    folder = tmp_path_factory.mktemp("bf16") / "run"
    options = ("--precision", "bf16", "--max-steps", 40, "--quiet")
    outcome = workspace.call("train", "tiny.toml", "--run", folder, *options)
    assert outcome.code == 0, outcome.err
    return folder


def test_validation_while_training_in_bf16_is_in_fp32(workspace: Workspace, run: Path) -> None:
    assert json.loads((run / "env.json").read_bytes())["precision"] == "bf16"
    outcome = workspace.call(
        "evaluate", run, "--split", "val", "--data", workspace.prepared, "--json"
    )
    best_score = json.loads((run / "status.json").read_bytes())["best_score"]
    assert json.loads(outcome.out)["splits"]["val"]["bleu"]["score"] == best_score


def test_scores_in_bf16_are_kept_apart(workspace: Workspace, run: Path) -> None:
    for flags in ((), ("--precision", "bf16")):
        outcome = workspace.call(
            "evaluate", run, "--split", "val", "--data", workspace.prepared, *flags
        )
        assert outcome.code == 0, outcome.err
    kept = sorted(path.name for path in run.joinpath("eval").glob("val-greedy*"))
    assert len(kept) == 2
    assert kept[0] == "val-greedy"


@pytest.mark.parametrize("amx", [True, False])
def test_decoding_is_in_fp32_whatever_the_machine_likes(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, amx: bool
) -> None:
    pretend_processor(monkeypatch, amx=amx)
    assert ": greedy on cpu" in repr(Translator.load(workspace.run, device="cpu", threads=1))
    asked = Translator.load(workspace.run, device="cpu", threads=1, precision="bf16")
    assert ": greedy precision=bf16 on cpu" in repr(asked)


def test_usual_translations_are_those_of_fp32(workspace: Workspace) -> None:
    translate = (
        "translate",
        workspace.run,
        "-i",
        "corpus/train.de",
        "--threads",
        1,
        "--with-score",
    )
    usual = workspace.call(*translate).lines
    assert workspace.call(*translate, "--precision", "fp32").lines == usual
    assert workspace.call(*translate, "--precision", "bf16").lines != usual
