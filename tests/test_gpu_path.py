# ruff: noqa: ANN401
"""The GPU path on the `meta` device, which every machine has: an update and a search wait for
nothing and leave no tensor on the CPU.

A tensor on `meta` has a shape and no values, so whatever asks for a value would wait for a GPU.
What kernels refuse, races, memory and speed are left to the tests marked `gpu`.
"""

import traceback
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import random_pairs, split_of, tiny_model
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import mt_cli
from mt_cli.config.schema import DecodingConfig, Precision, TrainingConfig
from mt_cli.decoding import search
from mt_cli.machine.device import Runtime
from mt_cli.model.model import TranslationModel
from mt_cli.training import loss
from mt_cli.training.trainer import Trainer
from mt_cli.training.validator import mean_nll
from mt_cli.translation import torch_engine
from mt_cli.translation.torch_engine import TorchEngine

META = torch.device("meta")
PACKAGE = str(Path(mt_cli.__file__).parent)
TABLES: tuple[dict[str, int], ...] = (
    loss.PIECE_LOGITS,
    loss.BLOCK_LOGITS,
    search.STEPS_BETWEEN_CHECKS,
    torch_engine.MAX_HYPS,
    torch_engine.MAX_SENTENCES,
    torch_engine.MAX_TOKENS,
)
"""Numbers that depend on the device: `meta` gets those of a GPU."""
PAIRS = random_pairs(60)
TRAINING = TrainingConfig(
    max_epochs=1, tokens_per_batch=60, warmup_steps=3, peak_lr=0.01, r_drop=1.0
)
STEPS = 16
SOURCES = [[4 + (i + j) % 7 for j in range(8)] for i in range(12)]
MAX_WAITS_OF_A_SEARCH = 16
"""Its start, its end, and two checks of which sentences are finished."""


class Watch(TorchDispatchMode):
    """Counts waits for the device; refuses tensors of the CPU among its own."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.waits: Counter[str] = Counter()

    def __torch_dispatch__(
        self, call: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        """Note what `call` asks of the device; every number that comes from it is `STEPS`."""
        kwargs = kwargs or {}
        tensors = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
        if all(each.device != META for each in tensors):
            return call(*args, **kwargs)
        name = call._schema.name.removeprefix("aten::")
        if name == "_local_scalar_dense":
            self.waits[place(name)] += 1
            return torch.tensor(STEPS, dtype=args[0].dtype).item()
        if name == "nonzero":
            self.waits[place(name)] += 1
            return args[0].new_empty((0, args[0].dim()), dtype=torch.long)
        if name == "_to_copy":
            if kwargs.get("device") not in (None, META):  # to the host
                self.waits[place(name)] += 1
                return torch.full(args[0].shape, STEPS, dtype=args[0].dtype)
        elif name != "copy_" and any(each.device != META and each.dim() > 0 for each in tensors):
            raise RuntimeError(f"{place(name)}: a tensor of the CPU among those of the device")
        return call(*args, **kwargs)


def place(name: str) -> str:
    """`name` and the line of the package that is running."""
    for frame in reversed(traceback.extract_stack()):
        if frame.filename.startswith(PACKAGE):
            return f"{name} at {Path(frame.filename).name}:{frame.lineno}"
    return name


@pytest.fixture(autouse=True)
def _as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the paths of a GPU; `meta` has no autocast."""
    for table in TABLES:
        monkeypatch.setitem(table, "meta", table["cuda"])
    monkeypatch.setattr(torch, "inference_mode", torch.no_grad)  # it hides what calls consist of
    monkeypatch.setattr(Tensor, "is_cuda", property(lambda tensor: tensor.device == META))
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda _device="cuda": False)


def model_of(backend: str = "scratch") -> TranslationModel:
    return tiny_model(backend, tie="all", max_len=64, dropout=0.3).to(META)


@pytest.mark.parametrize(
    ("backend", "precision", "options"),
    [
        ("scratch", "fp16", {}),
        ("torch", "bf16", {}),
        ("scratch", "bf16", {"accumulation": 2}),
        ("scratch", "bf16", {"optimizer": "muon"}),
        ("scratch", "bf16", {"distil_share": 0.5}),
    ],
    ids=str,
)
def test_an_update_waits_for_nothing_and_leaves_nothing_on_the_cpu(
    backend: str, precision: Precision, options: dict[str, object]
) -> None:
    config, runtime = TRAINING.model_copy(update=options), Runtime(META, precision)
    trainer = Trainer(model_of(backend), split_of(PAIRS), config, runtime=runtime, seed=1)
    if "distil_share" in options:
        trainer.learn_from([model_of()])
    reports = trainer.run()
    next(reports)
    with Watch() as watch:
        next(reports)
    assert watch.waits == {}


@pytest.mark.parametrize(
    "options",
    [{}, {"beam_size": 5}, {"no_repeat_ngram": 2}, {"temperature": 1.0, "top_k": 3}],
    ids=["greedy", "beam", "no repeats", "sampling"],
)
def test_a_search_waits_seldom_and_leaves_nothing_on_the_cpu(
    options: dict[str, float],
) -> None:
    config = DecodingConfig(max_len_factor=0, max_len_extra=STEPS).model_copy(update=options)
    one = TorchEngine(model_of(), config, runtime=Runtime(META, "fp32"), forbidden_ids=())
    with Watch() as watch:
        found = one.search(SOURCES, is_scored=False)
    assert [len(hyps[0].ids) for hyps in found] == [STEPS] * len(SOURCES)
    assert watch.waits.total() <= MAX_WAITS_OF_A_SEARCH


def test_a_validation_waits_once() -> None:
    runtime = Runtime(META, "fp32")
    with Watch() as watch:
        mean_nll(model_of(), split_of(PAIRS), tokens_per_batch=60, runtime=runtime)
    assert watch.waits.total() == 1


def test_a_tensor_that_was_left_on_the_cpu_is_found() -> None:
    with Watch(), pytest.raises(RuntimeError, match="a tensor of the CPU"):
        torch.nn.functional.linear(torch.ones(3, 2), torch.ones(2, 2, device=META))
