"""Training in 16 bits: the copy that computes, its gradients, and the scale of the loss."""

from itertools import islice

import pytest
import torch
from tiny import random_pairs, randomised, split_of, tiny_model

from mt_cli.config.schema import Precision, TrainingConfig
from mt_cli.machine.device import Runtime
from mt_cli.training.optimizer import FIRST_SCALE_LOG2, LossScale, WorkingCopy
from mt_cli.training.trainer import Trainer

CPU = torch.device("cpu")
PAIRS = random_pairs(40)
TRAINING = TrainingConfig(max_epochs=4, tokens_per_batch=60, warmup_steps=3, peak_lr=0.01)


def trainer_in(precision: Precision, **options: object) -> Trainer:
    config = TRAINING.model_copy(update=options)
    return Trainer(
        randomised(tiny_model()), split_of(PAIRS), config, runtime=Runtime(CPU, precision), seed=1
    )


@pytest.mark.parametrize("tie", ["none", "decoder", "all"])
@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_layers_are_copied_and_all_else_is_shared(tie: str, positions: str) -> None:
    model = tiny_model(tie=tie, positions=positions)
    copied = WorkingCopy(model, torch.bfloat16).model
    assert copied.dtype == torch.bfloat16
    assert model.dtype == torch.float32
    own = dict(model.named_parameters())
    for name, parameter in copied.named_parameters():
        assert (parameter is own[name]) == (not name.startswith("backend.")), name
        assert parameter.dtype == (torch.bfloat16 if name.startswith("backend.") else torch.float32)
    assert (copied.output.weight is copied.tgt_embedding.weight) == (tie != "none")


def test_in_fp32_the_copy_is_the_model_itself() -> None:
    model = tiny_model()
    assert WorkingCopy(model, torch.float32).model is model


def test_gradients_add_up_in_fp32() -> None:
    model = tiny_model()
    working = WorkingCopy(model, torch.bfloat16)
    (name, master), *_ = ((n, p) for n, p in model.named_parameters() if n.startswith("backend."))
    copied = working.model.get_parameter(name)
    for value in (256.0, 1.0):  # their sum has no place in bf16
        for parameter in working.model.parameters():
            parameter.grad = torch.full_like(parameter, value)
        working.add_gradients_to_master()
    assert master.grad is not None
    assert set(master.grad.flatten().tolist()) == {257.0}
    assert copied.grad is None


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


def test_only_fp16_scales_its_loss() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        scale = LossScale(dtype, device=CPU)
        scale.update(overflowed=torch.ones(()))
        assert scale.factor.item() == 1.0
        assert not scale.state_dict()


def test_losses_and_gradients_in_fp16_are_close_to_those_of_fp32() -> None:
    low, exact = ([*islice(trainer_in(each).run(), 8)] for each in ("fp16", "fp32"))
    assert [float(r.loss) for r in low] == pytest.approx([float(r.loss) for r in exact], rel=0.01)
    assert float(low[0].grad_norm) == pytest.approx(float(exact[0].grad_norm), rel=0.01)


def test_a_scale_that_is_too_large_is_halved_until_nothing_overflows() -> None:
    trainer = trainer_in("fp16")
    trainer.state_dict()["scale:factor"].fill_(2.0**30)
    skipped = [bool(report.skipped) for report in trainer.run()]
    assert all(skipped[:5])
    assert not any(skipped[-5:])


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
