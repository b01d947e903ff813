"""How parameters are updated: what decays, rates by the papers' formulas, and 16 bits."""

from itertools import islice
from typing import get_args

import pytest
import torch
from tiny import random_ids, random_pairs, randomised, split_of, tiny_model
from torch import Tensor
from torch.optim import _muon

from mt_cli.config.schema import OptimizerKind, Precision, Schedule, TrainingConfig
from mt_cli.machine.device import Runtime
from mt_cli.model.model import TranslationModel
from mt_cli.training.optimizer import (
    FIRST_SCALE_LOG2,
    LossScale,
    Optimizer,
    WorkingCopy,
    learning_rate,
    orthogonal,
)
from mt_cli.training.trainer import Trainer

KINDS: tuple[OptimizerKind, ...] = get_args(OptimizerKind)
LR = 0.01
NO = torch.zeros(())


def optimizer_of(
    model: TranslationModel, *, kind: OptimizerKind = "adamw", weight_decay: float = 0.0
) -> Optimizer:
    return Optimizer(model, TrainingConfig(optimizer=kind, weight_decay=weight_decay))


def gradients(model: TranslationModel, *, seed: int) -> dict[str, Tensor]:
    """Leave in `model` the gradients of larger logits of random pairs."""
    logits = model(random_ids(2, 4, seed=seed), random_ids(2, 3, seed=seed + 1))
    logits.logsumexp(-1).sum().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def update(model: TranslationModel, optimizer: Optimizer, *, seed: int = 0) -> dict[str, Tensor]:
    """One update; gives its gradients."""
    found = gradients(model, seed=seed)
    optimizer.step(LR, skipped=NO)
    return found


def decayed_by(kind: OptimizerKind, **options: object) -> dict[str, tuple[Tensor, Tensor]]:
    """What an update of rate 0.1 without a gradient changes: each parameter before and after."""
    model = randomised(tiny_model(options=options))
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = optimizer_of(model, kind=kind, weight_decay=0.5)
    torch.autograd.backward([p.sum() * 0 for p in model.parameters()])
    optimizer.step(torch.tensor(0.1), skipped=NO)
    after = {name: p.detach() for name, p in model.named_parameters()}
    return {
        name: (before[name], each)
        for name, each in after.items()
        if not torch.equal(before[name], each)
    }


MATRICES = ("in_proj_weight", "out_proj.weight", "linear1.weight", "linear2.weight")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tie", ["none", "decoder", "all"])
def test_only_matrices_outside_embeddings_decay(kind: OptimizerKind, tie: str) -> None:
    options = {"positions": "learned", "output_bias": True, "tie": tie}
    names = dict(tiny_model(options=options).named_parameters()).keys()
    expected = {name for name in names if name.endswith(MATRICES)}
    if tie == "none":  # else it is an embedding
        expected.add("output.weight")
    assert decayed_by(kind, **options).keys() == expected


@pytest.mark.parametrize("kind", KINDS)
def test_decay_is_a_share_of_the_weight_or_a_gradient_for_adam(kind: OptimizerKind) -> None:
    before, after = decayed_by(kind)["backend.encoder.layers.0.linear1.weight"]
    # Adam's first update moves by the learning rate, whatever the size of the gradient.
    expected = before - 0.1 * before.sign() if kind == "adam" else 0.95 * before
    torch.testing.assert_close(after, expected)


@pytest.mark.parametrize("kind", ["adam", "adamw"])
@pytest.mark.parametrize("tie", ["none", "all"])
def test_an_update_of_every_parameter_is_the_formula_of_the_paper(
    tie: str, kind: OptimizerKind
) -> None:
    model = randomised(tiny_model(tie=tie, positions="learned"))
    before = {name: p.detach().clone().double() for name, p in model.named_parameters()}
    optimizer = optimizer_of(model, kind=kind)
    first, second = (update(model, optimizer, seed=seed) for seed in (0, 5))
    expected = {}
    for name, weight in before.items():
        # Kingma and Ba 2015, algorithm 1, of two updates.
        g, h = first[name].double(), second[name].double()
        m = (0.9 * 0.1 * g + 0.1 * h) / (1 - 0.9**2)
        v = (0.98 * 0.02 * g**2 + 0.02 * h**2) / (1 - 0.98**2)
        expected[name] = weight - 0.01 * g / (g.abs() + 1e-9) - 0.01 * m / (v.sqrt() + 1e-9)
    found = {name: p.detach().double() for name, p in model.named_parameters()}
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_muon_makes_the_updates_of_pytorchs(monkeypatch: pytest.MonkeyPatch) -> None:
    # PyTorch makes its orthogonal matrices in bf16. Ours have tests of their own.
    monkeypatch.setattr(_muon, "_zeropower_via_newtonschulz", lambda g, *_: orthogonal(g[None])[0])
    model = randomised(tiny_model())
    ours = optimizer_of(model, kind="muon", weight_decay=0.1)
    names = [
        name for name, p in model.named_parameters() if p.dim() == 2 and name.startswith("backend.")
    ]
    # A packed projection is three matrices.
    copies = {
        name: [
            part.detach().clone()
            for part in model.get_parameter(name).chunk(1 + 2 * ("in_proj" in name))
        ]
        for name in names
    }
    theirs = torch.optim.Muon(
        [part for parts in copies.values() for part in parts],
        lr=LR,
        weight_decay=0.1,
        adjust_lr_fn="match_rms_adamw",
    )
    assert len(copies) < len(theirs.param_groups[0]["params"])
    for seed in (0, 5, 10):
        found = update(model, ours, seed=seed)
        for name, parts in copies.items():
            for part, gradient in zip(parts, found[name].chunk(len(parts)), strict=True):
                part.grad = gradient
        theirs.step()  # type: ignore[no-untyped-call]
    for name, parts in copies.items():
        torch.testing.assert_close(
            model.get_parameter(name).detach(), torch.cat(parts), rtol=0, atol=1e-5
        )


@pytest.mark.parametrize("size", [1.0, 1e-6])
@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1e-4), (torch.float16, 0.03)])
@pytest.mark.parametrize("shape", [(4, 4), (4, 16), (16, 4)])
def test_orthogonal_is_five_times_the_polynomial_of_each_singular_value(
    shape: tuple[int, int], dtype: torch.dtype, error: float, size: float
) -> None:
    draws = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    u, _, v = torch.linalg.svd(draws, full_matrices=False)
    values = size * torch.tensor([1.0, 0.3, 0.03, 0.003], dtype=torch.float64)
    matrix = ((u * values) @ v).float()
    values /= values.norm() + 1e-7
    for _ in range(5):
        values = 3.4445 * values - 4.775 * values**3 + 2.0315 * values**5
    found = orthogonal(torch.stack([matrix, -matrix]), matmul_dtype=dtype).double()
    expected = (u * values) @ v
    torch.testing.assert_close(found, torch.stack([expected, -expected]), rtol=0, atol=error)


def test_what_is_no_matrix_of_a_layer_is_updated_as_by_adamw() -> None:
    models = [randomised(tiny_model(tie="none", positions="learned")) for _ in range(2)]
    for model, kind in zip(models, KINDS[1:3], strict=True):
        update(model, optimizer_of(model, kind=kind, weight_decay=0.1))
    for (name, first), second in zip(
        models[0].named_parameters(), models[1].parameters(), strict=True
    ):
        is_like_adamw = torch.equal(first, second)
        assert is_like_adamw == (first.dim() < 2 or not name.startswith("backend.")), name


# Schedules


@pytest.mark.parametrize(
    ("schedule", "warmup_steps", "step", "expected"),
    [
        *[(each, 10, 9, 0.9) for each in get_args(Schedule)],
        *[(each, 10, 10, 1.0) for each in get_args(Schedule)],
        *[(each, 0, 1, 1.0) for each in get_args(Schedule)],
        *[(each, 100, 29, 0.29) for each in get_args(Schedule)],
        ("inverse_sqrt", 10, 40, 0.5),
        ("cosine", 10, 15, 0.8535533906),  # a quarter of the way: (1 + cos 45°) / 2
        ("cosine", 10, 25, 0.1464466094),
        ("cosine", 10, 30, 0.0),
        ("constant", 10, 29, 1.0),
    ],
)
def test_hand_worked_rates(
    schedule: Schedule, warmup_steps: int, step: int, expected: float
) -> None:
    rate = learning_rate(
        step, schedule=schedule, peak_lr=1.0, warmup_steps=warmup_steps, total_steps=29
    )
    # Cosine's first update is on its way down where there is no warm-up.
    assert rate == pytest.approx(expected, rel=1e-8 if warmup_steps else 0.01)


def test_warmup_is_a_number_of_updates_or_a_share_of_them() -> None:
    assert TrainingConfig(warmup_steps=400).num_warmup_steps(36) == 400
    assert TrainingConfig(warmup_steps=0.25).num_warmup_steps(36) == 9
    assert TrainingConfig().num_warmup_steps(2000) == 200
    assert TrainingConfig(warmup_steps=1).num_warmup_steps(2000) == 1


# 16 bits


CPU = torch.device("cpu")
PAIRS = random_pairs(40)
TRAINING = TrainingConfig(max_epochs=4, tokens_per_batch=60, warmup_steps=3, peak_lr=0.01)


def trainer_in(precision: Precision, **options: object) -> Trainer:
    config = TRAINING.model_copy(update=options)
    return Trainer(
        randomised(tiny_model()), split_of(PAIRS), config, runtime=Runtime(CPU, precision), seed=1
    )


def test_what_is_too_small_for_sixteen_bits_is_learned_all_the_same() -> None:
    model = tiny_model()
    working = WorkingCopy(model, torch.bfloat16)
    name = next(name for name, _ in model.named_parameters() if name.startswith("backend."))
    master, copied = model.get_parameter(name), working.model.get_parameter(name)
    with torch.no_grad():
        master.fill_(1.0)
        for _ in range(8):
            master.add_(2.0**-10)  # a quarter of the distance to the next number of bf16
            working.copy_weights_from_master()
    assert copied.flatten()[0].item() == 1.0 + 2.0**-7


@pytest.mark.parametrize("overflows", [[0, 0, 0, 0], [1, 1, 0, 1], [0, 0, 1, 0, 0, 0]])
def test_the_scale_moves_as_that_of_pytorch(
    monkeypatch: pytest.MonkeyPatch, overflows: list[int]
) -> None:
    monkeypatch.setattr("mt_cli.training.optimizer.UPDATES_BEFORE_GROWTH", 2)
    scale = LossScale(torch.float16, device=CPU)
    reference = torch.amp.GradScaler("cpu", init_scale=2.0**FIRST_SCALE_LOG2, growth_interval=2)
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=0.0)
    for overflowed in overflows:
        reference.scale(weight.sum() * (float("inf") if overflowed else 1.0)).backward()  # type: ignore[no-untyped-call]
        reference.step(optimizer)
        reference.update()
        optimizer.zero_grad()
        scale.update(overflowed=torch.tensor(float(overflowed)))
        assert scale.factor.item() == reference.get_scale()


def test_losses_and_gradients_in_fp16_are_close_to_those_of_fp32() -> None:
    low, exact = ([*islice(trainer_in(each).run(), 8)] for each in ("fp16", "fp32"))
    assert [float(r.loss) for r in low] == pytest.approx([float(r.loss) for r in exact], rel=0.01)
    assert float(low[0].grad_norm) == pytest.approx(float(exact[0].grad_norm), rel=0.01)


def test_a_resumed_training_in_fp16_has_the_scale_it_had() -> None:
    whole = trainer_in("fp16")
    whole.state_dict()["scale:factor"].fill_(2.0**20)
    reports = whole.run()
    list(islice(reports, 6))
    second = trainer_in("fp16")
    second.model.load_state_dict(whole.model.state_dict())
    saved = {name: tensor.clone() for name, tensor in whole.state_dict().items()}
    second.restore(whole.step, saved)
    assert [r.loss.item() for r in second.run()] == [r.loss.item() for r in reports]
    third = trainer_in("fp16")  # from a training in another precision, which has no scale
    third.restore(whole.step, {n: t for n, t in saved.items() if not n.startswith("scale:")})
    assert third.state_dict()["scale:factor"].item() == 2.0**FIRST_SCALE_LOG2
