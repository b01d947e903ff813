"""What the GPU path asks of a GPU, on pretended CUDA: prints JSON, an entry for each scenario.

It is a process of its own, because PyTorch has to be loaded after the pretended device.
"""

import json
from collections.abc import Iterator
from itertools import islice

from pretended_cuda import CUDA, counted, moved, pretended_cuda

import torch  # isort: skip
from tiny import BACKENDS, CPU, random_pairs, split_of, tiny_model
from torch import Tensor, nn

from mt_cli.config.schema import DecodingConfig, Precision, TrainingConfig
from mt_cli.decoding import Sampling
from mt_cli.machine.device import Runtime
from mt_cli.model.translation_model import TranslationModel
from mt_cli.training.trainer import Trainer, mean_nll
from mt_cli.translation.searcher import Searcher

LAYERS = {"encoder_layers": 4, "decoder_layers": 4, "tie": "all", "max_len": 64, "dropout": 0.3}
"""As many as configs/multi30k-strong.toml has; launches do not depend on the width."""
FEW_LAYERS = {**LAYERS, "decoder_layers": 2}
"""As many as configs/multi30k-tiny-student.toml has in its decoder."""
PAIRS = random_pairs(60)
TRAINING = TrainingConfig(
    max_epochs=20, tokens_per_batch=60, warmup_steps=3, peak_lr=0.01, r_drop=1.0
)
UPDATES, MANY_UPDATES, SENTENCES, STEPS = 1, 20, 12, 16


def trainer(model: TranslationModel, runtime: Runtime, **options: object) -> Trainer:
    config = TRAINING.model_copy(update=options)
    return Trainer(model, split_of(PAIRS), config, runtime=runtime, seed=1)


def update(
    backend: str, precision: Precision, *, graphs: bool = False, **options: object
) -> dict[str, object]:
    """The average of a few updates, after the first ones."""
    runtime = Runtime(CUDA, precision, graphs=graphs)
    model = moved(tiny_model(backend, options=LAYERS))
    updates = trainer(model, runtime, **options).run()
    for _ in range(MANY_UPDATES if graphs else 1):
        next(updates)
    with counted() as counts:
        reports = list(islice(updates, UPDATES))
    assert len(reports) == UPDATES
    return {"launches": counts.launches.total() / UPDATES, "waits": dict(counts.waits)}


def losses(backend: str, precision: Precision, *, graphs: bool = False) -> dict[str, object]:
    """Of many updates without dropout, on the device and on the CPU."""
    on_cpu, on_device = tiny_model(backend), moved(tiny_model(backend))
    runtimes = Runtime(CUDA, precision, graphs=graphs), Runtime(CPU.device, precision)
    trainers = [trainer(m, r) for m, r in zip((on_device, on_cpu), runtimes, strict=True)]
    with counted() as counts:
        found = [[float(r.loss) for r in islice(each.run(), MANY_UPDATES)] for each in trainers]
    return {"device": found[0], "cpu": found[1], "replays": counts.launches["graph"]}


def search(
    *, precision: Precision = "fp32", sampling: Sampling | None = None, **options: int
) -> dict[str, object]:
    """The average of all steps of a search, start and end included; every sentence takes all."""
    exactly = {"max_len_factor": 0, "max_len_extra": STEPS, "min_len": STEPS}
    config = DecodingConfig.model_validate({**exactly, **options})
    sources = [[4 + (i + j) % 7 for j in range(8)] for i in range(SENTENCES)]
    found = []
    for runtime, model in (
        (Runtime(CUDA, precision), moved(tiny_model(options=FEW_LAYERS))),
        (Runtime(CPU.device, precision), tiny_model(options=FEW_LAYERS)),
    ):
        searcher = Searcher(model, config, runtime=runtime, forbidden_ids=(), sampling=sampling)
        with counted() as counts:
            found.append(searcher.best(sources))
        if runtime.device == CUDA:
            measured = {"launches": counts.launches.total() / STEPS, "waits": dict(counts.waits)}
    assert all(len(ids) == STEPS for ids in found[0])
    return {**measured, "device": found[0], "cpu": found[1]}


def validation() -> dict[str, object]:
    """The loss on a split."""
    model = moved(tiny_model(options=LAYERS))
    with counted() as counts:
        nll = mean_nll(model, split_of(PAIRS), tokens_per_batch=60, runtime=Runtime(CUDA, "fp32"))
    expected = mean_nll(
        tiny_model(options=LAYERS), split_of(PAIRS), tokens_per_batch=60, runtime=CPU
    )
    return {"waits": dict(counts.waits), "device": nll, "cpu": expected}


def planted() -> dict[str, object]:
    """What is told of a wait and of a tensor on the CPU that are planted in an update."""

    def wait(_module: nn.Module, _inputs: tuple[Tensor, ...], output: Tensor) -> None:
        output.sum().item()

    def mix(_module: nn.Module, _inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        return output + torch.ones(output.shape)

    told: dict[str, object] = {}
    for plant in (wait, mix):
        model = moved(tiny_model())
        updates = trainer(model, Runtime(CUDA, "fp32")).run()
        next(
            module for module in model.modules() if isinstance(module, nn.LayerNorm)
        ).register_forward_hook(plant)
        with counted() as counts:
            try:
                next(updates)
            except RuntimeError as error:
                told[plant.__name__] = str(error)
            else:
                told[plant.__name__] = list(counts.waits)
    return told


def scenarios() -> Iterator[tuple[str, dict[str, object]]]:
    """The name of each, and what was measured."""
    for precision in ("fp32", "bf16", "fp16"):
        yield f"update, scratch, {precision}", update("scratch", precision)
    yield "update, torch, bf16", update("torch", "bf16")
    yield "losses, scratch, fp32", losses("scratch", "fp32")
    yield "losses, scratch, bf16", losses("scratch", "bf16")
    for backend in BACKENDS:
        yield f"losses, {backend}, graphs", losses(backend, "fp32", graphs=True)
    yield "update, graph", update("scratch", "bf16", graphs=True)
    yield "update, two batches", update("scratch", "bf16", accumulation=2)
    yield "update, muon", update("scratch", "bf16", optimizer="muon")
    yield "update, muon, graph", update("scratch", "bf16", optimizer="muon", graphs=True)
    yield "greedy", search()
    yield "greedy, bf16", search(precision="bf16")
    yield "beam", search(beam_size=5)
    yield "sampling", search(sampling=Sampling(top_k=3))
    yield "no repeats", search(no_repeat_ngram=2)
    yield "validation", validation()
    yield "planted", planted()


torch.set_num_threads(1)
with pretended_cuda():
    print(json.dumps(dict(scenarios())))
