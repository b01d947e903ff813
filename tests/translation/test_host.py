"""A translator inside of somebody's program: forked, pickled, and leaving all as it was."""

import csv
import locale
import logging
import multiprocessing
import os
import pickle
import random
import signal
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from workspace import Workspace

from mt_cli import Sampling, Translator, compare, evaluate
from mt_cli.errors import UsageError

WAIT_S = 120


@pytest.fixture(scope="module")
def lines(workspace: Workspace) -> list[str]:
    return workspace.corpus("test.de").read_text(encoding="utf-8").splitlines()


@pytest.fixture(params=["run", "exported"])
def folder(request: pytest.FixtureRequest, workspace: Workspace) -> Path:
    if request.param == "exported":
        path: Path = request.getfixturevalue("exported")
        return path
    return workspace.run


def test_a_pickled_translator_loads_again_and_translates_alike(
    folder: Path, lines: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)
    translator = Translator.load(folder.name, beam_size=3, device="cpu", threads=1)
    pickled = pickle.dumps(translator)
    monkeypatch.chdir(tmp_path)
    again = pickle.loads(pickled)
    assert again.engine.config == translator.engine.config
    assert again.translate(lines) == translator.translate(lines)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_pool_of_processes_translates(folder: Path, lines: list[str], method: str) -> None:
    translator = Translator.load(folder, device="cpu", threads=2)
    expected = translator.translate(lines)  # PyTorch's threads have been started
    context = multiprocessing.get_context(method)
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        assert pool.submit(translator.translate, lines).result(WAIT_S) == expected


def test_what_was_loaded_before_a_fork_says_so(folder: Path, lines: list[str]) -> None:
    translator = Translator.load(folder, device="cpu", threads=2)
    translator.translate(lines)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            translator.translate(lines)
        except UsageError:
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0


def host() -> dict[str, object]:
    """What belongs to the program that calls us."""
    logger = logging.getLogger()
    numpy_state = np.random.get_state(legacy=False)
    assert isinstance(numpy_state, dict)
    return {
        "torch": torch.get_rng_state().tolist(),
        "random": random.getstate(),
        "numpy": numpy_state["state"]["key"].tolist(),
        "threads": torch.get_num_threads(),
        "precision": torch.get_float32_matmul_precision(),
        "dtype": torch.get_default_dtype(),
        "gradients": torch.is_grad_enabled(),
        "csv": csv.field_size_limit(),
        "signals": [signal.getsignal(number) for number in signal.valid_signals()],
        "log": [list(logger.handlers), logger.level],
        "our log": list(logging.getLogger("mt_cli").handlers),
        "environment": dict(os.environ),
        "folder": Path.cwd(),
        "locale": locale.getlocale(),
        "warnings": list(warnings.filters),
    }


def everything(run: Path, files: dict[str, Path]) -> None:
    translator = Translator.load(run, beam_size=2, threads=2, device="cpu")
    lines = files["src"].read_text(encoding="utf-8").splitlines()
    translator.translate_n_best(lines, n_best=2, with_alignment=True)
    translator.score(lines, lines)
    translator.attention(lines[0])
    Translator.load(run, sampling=Sampling(), device="cpu").translate(lines)
    src, ref = files["src"], files["ref"]
    evaluate(run, device="cpu", src=src, ref=ref)
    compare(run, ref, device="cpu", src=src, ref=ref)


def translate_exported(run: Path, files: dict[str, Path]) -> None:
    Translator.load(run, device="cpu", threads=2).translate(["Ein Hund."])


@pytest.mark.parametrize("call", [everything, translate_exported])
def test_a_library_call_leaves_its_host_as_it_was(
    workspace: Workspace,
    exported: Path,
    tmp_path: Path,
    call: Callable[[Path, dict[str, Path]], None],
) -> None:
    files = {"src": workspace.corpus("test.de"), "ref": workspace.corpus("test.en")}
    run = exported if call is translate_exported else workspace.copy_run(tmp_path / "run")
    before = host()
    call(run, files)
    after = host()
    assert {name: after[name] for name in before} == before
