"""`NumpyEngine` finds what `TorchEngine` does, which takes over where more comes."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from workspace import Workspace

from mt_cli import Translator
from mt_cli.machine import process
from mt_cli.translation import numpy_engine
from mt_cli.translation.engine import Engine
from mt_cli.translation.numpy_engine import NumpyEngine
from mt_cli.translation.torch_engine import TorchEngine

SOURCES = [[7, 30, 12], [5], [9, 8, 40, 41, 6, 7], [100, 4]]
PREFIXES = [[], [20, 30], [9], []]


@pytest.fixture
def engine(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> NumpyEngine:
    """That of a process which has not imported torch."""
    monkeypatch.setattr(numpy_engine, "has_torch", lambda: False)
    loaded = load(workspace.run)
    assert isinstance(loaded, NumpyEngine)
    return loaded


def load(folder: Path, **options: Any) -> Engine:  # noqa: ANN401
    given: dict[str, Any] = {"device": "cpu"} | options
    return Translator.load(folder, **given).engine


@pytest.mark.parametrize("prefixes", [[], PREFIXES], ids=["free", "prefixes"])
@pytest.mark.parametrize("is_scored", [False, True])
def test_it_finds_what_a_searcher_finds(
    engine: NumpyEngine, prefixes: list[list[int]], is_scored: bool
) -> None:
    found = engine.search(SOURCES, prefixes=prefixes, is_scored=is_scored)
    assert "torch_engine" not in vars(engine)
    expected = engine.torch_engine.search(SOURCES, prefixes=prefixes, is_scored=is_scored)
    assert [hyp.ids for (hyp,) in found] == [hyp.ids for (hyp,) in expected]
    for (hyp,), (other,) in zip(found, expected, strict=True):
        assert hyp.score == pytest.approx(other.score, abs=1e-4)
        assert hyp.log_prob == pytest.approx(other.log_prob, abs=1e-4)


def test_it_says_which_source_is_done(engine: NumpyEngine) -> None:
    done: list[int] = []
    engine.search(SOURCES, on_done=done.extend)
    assert done == [0, 1, 2, 3]


def test_attention_and_probabilities_are_those_of_a_searcher(engine: NumpyEngine) -> None:
    hyps = [[5, 6], [], [7], [20, 21, 22]]
    for found, expected in zip(
        engine.cross_attention(SOURCES, hyps),
        engine.torch_engine.cross_attention(SOURCES, hyps),
        strict=True,
    ):
        np.testing.assert_allclose(found, expected, atol=1e-5)
    for log_probs, others in zip(
        engine.token_log_probs(SOURCES, hyps),
        engine.torch_engine.token_log_probs(SOURCES, hyps),
        strict=True,
    ):
        assert log_probs == pytest.approx(others, abs=1e-4)


def test_a_searcher_takes_over_when_enough_came_together(
    engine: NumpyEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        engine.search(SOURCES[:1])
    engine.search(SOURCES)
    monkeypatch.setattr(numpy_engine, "PRODUCTS_BEFORE_TORCH", 0)
    engine.search(SOURCES[:1])
    assert "torch_engine" not in vars(engine)
    engine.search(SOURCES)
    assert "torch_engine" in vars(engine)


def test_a_checkpoint_may_go_once_it_is_loaded(workspace: Workspace, tmp_path: Path) -> None:
    """Training removes those that are not the best any more, while a server runs."""
    run = workspace.copy_run(tmp_path / "run")
    loaded = load(run)
    shutil.rmtree(run / "checkpoints")
    assert loaded.models[0].longest_sentence == loaded.longest_sentence


@pytest.mark.parametrize(
    "options",
    [
        {"beam_size": 2}, {"temperature": 1.0}, {"no_repeat_ngram": 2}, {"backend": "torch"},
        {"precision": "bf16"},
    ],
    ids=str,
)  # fmt: skip
def test_what_numpy_cannot_do_is_left_to_torch(
    workspace: Workspace, options: dict[str, Any]
) -> None:
    assert isinstance(load(workspace.run, **options), TorchEngine)


def test_an_ensemble_is_left_to_torch(workspace: Workspace) -> None:
    translator = Translator.load([workspace.run, workspace.run], device="cpu")
    assert isinstance(translator.engine, TorchEngine)


def test_where_there_may_be_a_gpu_torch_is_asked(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(process, "GPU_DRIVERS", ())
    monkeypatch.setattr(process, "AMD_GPU", Path("/nowhere"))
    assert isinstance(load(workspace.run, device="auto"), NumpyEngine)
    monkeypatch.setattr(process, "GPU_DRIVERS", ("libc.so.6",))
    assert isinstance(load(workspace.run, device="auto"), TorchEngine)
    assert isinstance(load(workspace.run, device="cpu"), NumpyEngine)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert isinstance(load(workspace.run, device="auto"), NumpyEngine)
