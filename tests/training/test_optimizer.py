"""The optimizer: what decays, by how much, and how its state is kept."""

import pytest
import torch
from tiny import random_ids, randomised, tiny_model
from torch import Tensor
from torch.optim import _muon

from mt_cli.config.schema import OptimizerKind, TrainingConfig
from mt_cli.model.model import TranslationModel
from mt_cli.training.optimizer import Optimizer, orthogonal

KINDS: tuple[OptimizerKind, ...] = ("adam", "adamw", "muon")
LR = 0.01
NO = torch.zeros(())


def optimizer_of(
    model: TranslationModel, *, kind: OptimizerKind = "adamw", weight_decay: float = 0.0
) -> Optimizer:
    config = TrainingConfig(optimizer=kind, betas=(0.9, 0.98), eps=1e-9, weight_decay=weight_decay)
    return Optimizer(model, config)


def gradients(model: TranslationModel, *, seed: int) -> dict[str, Tensor]:
    """Leave in `model` the gradients of larger logits of random pairs."""
    model(random_ids(2, 4, seed=seed), random_ids(2, 3, seed=seed + 1)).logsumexp(
        -1
    ).sum().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def update(model: TranslationModel, optimizer: Optimizer, *, seed: int = 0) -> dict[str, Tensor]:
    """One update; gives its gradients."""
    found = gradients(model, seed=seed)
    optimizer.step(LR, skipped=NO)
    return found


def after_an_update_without_gradient(kind: OptimizerKind, **options: object) -> dict[str, Tensor]:
    """How many times its old value each parameter has, after an update of pure decay."""
    model = randomised(tiny_model(options=options))
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = optimizer_of(model, kind=kind, weight_decay=0.5)
    torch.autograd.backward([p.sum() * 0 for p in model.parameters()])
    optimizer.step(0.1, skipped=NO)
    return {name: p.detach() / before[name] for name, p in model.named_parameters()}


def decayed(ratios: dict[str, Tensor]) -> set[str]:
    return {name for name, ratio in ratios.items() if not torch.allclose(ratio, torch.ones(1))}


def test_adam_takes_decay_for_a_gradient() -> None:
    # Its first update moves by the learning rate, whatever the size of the gradient.
    model = randomised(tiny_model())
    matrix = model.get_parameter("output.weight")
    before = matrix.detach().clone()
    optimizer = optimizer_of(model, kind="adam", weight_decay=0.5)
    torch.autograd.backward([p.sum() * 0 for p in model.parameters()])
    optimizer.step(0.1, skipped=NO)
    torch.testing.assert_close(matrix.detach(), before - 0.1 * before.sign())


@pytest.mark.parametrize("kind", KINDS)
def test_only_matrices_outside_embeddings_decay(kind: OptimizerKind) -> None:
    ratios = after_an_update_without_gradient(kind, positions="learned", output_bias=True)
    in_layers = ("in_proj_weight", "out_proj.weight", "linear1.weight", "linear2.weight")
    expected = {name for name in ratios if name.endswith(in_layers)} | {"output.weight"}
    assert decayed(ratios) == expected


@pytest.mark.parametrize("tie", ["decoder", "all"])
def test_a_tied_output_layer_is_an_embedding_and_does_not_decay(tie: str) -> None:
    ratios = after_an_update_without_gradient("adamw", tie=tie)
    assert not {name for name in decayed(ratios) if "embedding" in name or "output" in name}


@pytest.mark.parametrize("kind", KINDS)
def test_a_restored_optimizer_goes_on_as_the_first_would(kind: OptimizerKind) -> None:
    model = randomised(tiny_model())
    optimizer = optimizer_of(model, kind=kind, weight_decay=0.1)
    update(model, optimizer)
    state = {name: tensor.clone() for name, tensor in optimizer.state_dict().items()}
    other = tiny_model()
    other.load_state_dict(model.state_dict())
    restored = optimizer_of(other, kind=kind, weight_decay=0.1)
    restored.load_state_dict(state)
    update(model, optimizer, seed=5)
    update(other, restored, seed=5)
    torch.testing.assert_close(list(other.parameters()), list(model.parameters()), rtol=0, atol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_incomplete_state_is_refused(kind: OptimizerKind) -> None:
    model = tiny_model()
    optimizer = optimizer_of(model, kind=kind)
    update(model, optimizer)
    state = optimizer.state_dict()
    missing, _ = state.popitem()
    with pytest.raises(KeyError, match=missing):
        optimizer_of(model, kind=kind).load_state_dict(state)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spoiled", [float("nan"), float("inf")])
def test_skipped_update_leaves_weights_and_state_untouched(
    kind: OptimizerKind, spoiled: float
) -> None:
    model = randomised(tiny_model())
    optimizer = optimizer_of(model, kind=kind, weight_decay=0.1)
    update(model, optimizer)
    weights = [p.detach().clone() for p in model.parameters()]
    state = {name: tensor.clone() for name, tensor in optimizer.state_dict().items()}
    gradients(model, seed=5)
    model.output.weight.grad = torch.full_like(model.output.weight, spoiled)
    optimizer.step(LR, skipped=torch.ones(()))
    torch.testing.assert_close(list(model.parameters()), weights, rtol=0, atol=0)
    torch.testing.assert_close(optimizer.state_dict(), state, rtol=0, atol=0)
    assert all(p.grad is None for p in model.parameters())


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


@pytest.mark.parametrize("shape", [(4, 4), (4, 16), (16, 4)])
def test_orthogonal_is_five_times_the_polynomial_of_each_singular_value(
    shape: tuple[int, int],
) -> None:
    draws = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    u, _, v = torch.linalg.svd(draws, full_matrices=False)
    values = torch.tensor([1.0, 0.3, 0.03, 0.003], dtype=torch.float64)
    matrix = (u * values) @ v
    values /= values.norm()
    for _ in range(5):
        values = 3.4445 * values - 4.775 * values**3 + 2.0315 * values**5
    torch.testing.assert_close(
        orthogonal(matrix.float()[None])[0].double(), (u * values) @ v, rtol=0, atol=1e-4
    )


def test_what_is_no_matrix_of_a_layer_is_updated_as_by_adamw() -> None:
    models = [randomised(tiny_model(tie="none", positions="learned")) for _ in range(2)]
    for model, kind in zip(models, KINDS[1:], strict=True):
        update(model, optimizer_of(model, kind=kind, weight_decay=0.1))
    for (name, first), second in zip(
        models[0].named_parameters(), models[1].parameters(), strict=True
    ):
        is_like_adamw = torch.equal(first, second)
        assert is_like_adamw == (first.dim() < 2 or not name.startswith("backend.")), name


@pytest.mark.parametrize("size", [1.0, 1e-6])
@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1e-4), (torch.float16, 0.005)])
@pytest.mark.parametrize("shape", [(8, 8), (4, 16), (16, 4)])
def test_orthogonal_keeps_directions_and_evens_out_their_lengths(
    shape: tuple[int, int], dtype: torch.dtype, error: float, size: float
) -> None:
    matrices = size * torch.randn(3, *shape, generator=torch.Generator().manual_seed(1))
    found = orthogonal(matrices, matmul_dtype=dtype)
    u, _, v = torch.linalg.svd(matrices, full_matrices=False)
    in_their_directions = u.mT @ found @ v.mT
    lengths = in_their_directions.diagonal(dim1=1, dim2=2)
    assert 0.6 < lengths.min() < lengths.max() < 1.3
    torch.testing.assert_close(in_their_directions, torch.diag_embed(lengths), rtol=0, atol=error)
