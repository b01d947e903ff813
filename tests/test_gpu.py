"""What a CUDA device must do as a CPU does: marked `gpu`, run by hand or by scripts/gpu.

`--gpu-device cpu` runs the same tests on a CPU, to try the tests themselves.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import BACKENDS, CPU, random_pairs, split_of, tiny_model
from trained import records
from workspace import Workspace

from mt_cli.config.schema import Precision, TrainingConfig
from mt_cli.machine.device import Runtime, set_up_process
from mt_cli.model.model import TranslationModel
from mt_cli.training.trainer import Trainer

pytestmark = pytest.mark.gpu

PAIRS = random_pairs(60)
DROPPING: dict[str, Any] = {"dropout": 0.2, "attention_dropout": 0.1, "activation_dropout": 0.1}
TRAINING = TrainingConfig(
    max_epochs=6, tokens_per_batch=60, warmup_steps=3, peak_lr=0.01, accumulation=2
)
each_backend = pytest.mark.parametrize("backend", BACKENDS)


@pytest.fixture(scope="module")
def device(request: pytest.FixtureRequest) -> torch.device:
    name = request.config.getoption("--gpu-device")
    if name is None and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    set_up_process()
    return torch.device(name or "cuda")  # where it was asked for and is not there, the tests fail


def trainer_on(
    device: torch.device,
    backend: str,
    *,
    precision: Precision = "fp32",
    r_drop: float = 0.0,
    graphs: bool | None = None,
    teachers: Sequence[TranslationModel] = (),
    **model: object,
) -> Trainer:
    """A trainer that always begins with the same weights; told of `graphs`, its updates have one
    batch.
    """
    started = tiny_model(backend, d_model=32, d_ff=64, options=model).to(device)
    accumulation = 2 if graphs is None else 1
    config = TRAINING.model_copy(update={"r_drop": r_drop, "accumulation": accumulation})
    runtime = Runtime(device, precision, graphs=bool(graphs))
    trainer = Trainer(started, split_of(PAIRS), config, runtime=runtime, seed=1)
    if teachers:
        trainer.learn_from(teachers)
    return trainer


def losses(trainer: Trainer, most: int | None = None) -> list[float]:
    return [float(report.loss) for report in islice(trainer.run(), most)]


@each_backend
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_resumed_training_is_bitwise_the_uninterrupted_one(
    device: torch.device,
    backend: str,
    precision: Precision,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Fused attention may add up in any order.
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    request.addfinalizer(lambda: torch.use_deterministic_algorithms(False))
    whole = trainer_on(device, backend, precision=precision, **DROPPING)
    expected = losses(whole)
    first = trainer_on(device, backend, precision=precision, **DROPPING)
    before = losses(first, 7)
    second = trainer_on(device, backend, precision=precision, **DROPPING)
    second.model.load_state_dict(first.model.state_dict())
    second.restore(first.step, first.state_dict())
    assert before + losses(second) == expected
    torch.testing.assert_close(second.model.state_dict(), whole.model.state_dict(), rtol=0, atol=0)


@each_backend
@pytest.mark.parametrize("r_drop", [0.0, 1.0], ids=["one-pass", "r-drop"])
def test_training_has_the_losses_of_a_cpu(
    device: torch.device, backend: str, r_drop: float
) -> None:
    on_device, on_cpu = (
        losses(trainer_on(each, backend, r_drop=r_drop)) for each in (device, CPU.device)
    )
    assert on_device == pytest.approx(on_cpu, rel=1e-3)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("num_teachers", [0, 2])
def test_captured_updates_have_the_losses_of_others(
    device: torch.device, precision: Precision, num_teachers: int
) -> None:
    found = []
    for graphs in (False, device.type == "cuda"):
        teachers = [tiny_model(backend, d_model=32) for backend in BACKENDS[:num_teachers]]
        trainer = trainer_on(
            device, "scratch", precision=precision, graphs=graphs, r_drop=1.0, teachers=teachers
        )
        found.append(losses(trainer, 60))
    assert found[1] == pytest.approx(found[0], rel=1e-5 if precision == "fp32" else 0.01)


@pytest.mark.parametrize("search", [(), ("--beam-size", 4, "--n-best", 4)], ids=["greedy", "beam"])
@each_backend
def test_lines_in_fp32_are_those_of_a_cpu(
    device: torch.device, workspace: Workspace, search: tuple[object, ...], backend: str
) -> None:
    source = workspace.corpus("train.de")
    command = ("translate", workspace.run, "-i", source, "--backend", backend, *search)
    here, on_cpu = (workspace.call(*command, "--device", each) for each in (device.type, "cpu"))
    assert here.code == 0, here.err
    assert here.out == on_cpu.out
    assert len(here.lines) > 20


@pytest.mark.parametrize(
    "options",
    [
        ("--sample", "--seed", 3, "--top-k", 5),
        ("--with-alignment",),
        ("--no-repeat-ngram", 2),
        ("--beam-size", 3, "--no-repeat-ngram", 2, "--with-score"),
        ("--precision", "bf16"),
        ("--precision", "bf16", "--beam-size", 3),
    ],
    ids=lambda options: " ".join(map(str, options)),
)
@pytest.mark.parametrize("num_runs", [1, 2])
def test_every_way_to_translate_gives_a_line_for_each_line(
    device: torch.device, workspace: Workspace, options: tuple[object, ...], num_runs: int
) -> None:
    source = workspace.corpus("train.de")
    runs = [workspace.run] * num_runs
    outcome = workspace.call("translate", *runs, "-i", source, "--device", device.type, *options)
    assert outcome.code == 0, outcome.err
    assert len(outcome.lines) == len(source.read_text().splitlines())


def test_a_trained_run_of_the_device_can_be_resumed_and_scored(
    device: torch.device, workspace: Workspace, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    train = ("train", "tiny.toml", "--run", run, "--device", device.type)
    assert workspace.call(*train, "--max-steps", 40).code == 0
    resumed = workspace.call(*train, "--max-steps", 80, "--resume")
    assert resumed.code == 0, resumed.err
    facts = json.loads((run / "env.json").read_text())
    assert facts["device"].startswith(device.type)
    assert ("gpu" in facts) == (device.type == "cuda")
    assert workspace.call("evaluate", run, "--device", device.type).code == 0


def test_two_devices_train_as_one(workspace: Workspace, tmp_path: Path) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two CUDA devices")
    changes = ("--set", "model.dropout=0", "--set", "training.log_every=1")
    options = ("--device", "cuda", "--max-steps", "20", "--precision", "fp32", *changes)
    launcher = ("torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "--")
    one, two = tmp_path / "one", tmp_path / "two"
    assert workspace.call("train", "tiny.toml", "--run", one, *options).code == 0
    train = ("mt_cli", "train", "tiny.toml", "--run", str(two), *options)
    command = [sys.executable, "-m", *launcher, *train]
    subprocess.run(command, cwd=workspace.folder, check=True, timeout=300)
    found, expected = ([step["loss"] for step in records(run, "step")] for run in (two, one))
    assert found == pytest.approx(expected, rel=1e-3)
