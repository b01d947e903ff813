"""A translator inside of somebody's program: forked, pickled, and leaving all as it was."""

import csv
import locale
import logging
import multiprocessing
import os
import random
import signal
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from workspace import Workspace

from mt_cli import Attention, Translator, compare, evaluate
from mt_cli.errors import UsageError

WAIT_S = 120


@pytest.fixture(scope="module")
def lines(workspace: Workspace) -> list[str]:
    return workspace.corpus("test.de").read_text(encoding="utf-8").splitlines()


@pytest.fixture(params=["run", "exported"])
def folder(request: pytest.FixtureRequest, workspace: Workspace, exported: Path) -> Path:
    return exported if request.param == "exported" else workspace.run


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_pool_of_processes_translates_wherever_it_works(
    folder: Path, lines: list[str], method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)
    translator = Translator.load(folder.name, beam_size=3, device="cpu", threads=2)
    expected = translator.translate(lines)  # PyTorch's threads have been started
    monkeypatch.chdir(tmp_path)
    context = multiprocessing.get_context(method)
    with context.Pool(1) as pool:  # which ends its process at the end of the block
        assert pool.apply_async(translator.translate, [lines]).get(WAIT_S) == expected


def test_what_was_loaded_before_a_fork_says_so(folder: Path, lines: list[str]) -> None:
    translator = Translator.load(folder, device="cpu", threads=2)
    translator.translate(lines)
    pid = os.fork()
    if pid == 0:
        signal.alarm(WAIT_S)
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
        "csv": csv.field_size_limit(),
        "signals": [signal.getsignal(number) for number in signal.valid_signals()],
        "log": [list(logger.handlers), logger.level],
        "our log": list(logging.getLogger("mt_cli").handlers),
        "environment": dict(os.environ),
        "folder": Path.cwd(),
        "locale": locale.getlocale(),
        "warnings": list(warnings.filters),
    }


def everything(run: Path, exported: Path, src: Path, ref: Path) -> None:
    Translator.load(exported, device="cpu", threads=2).translate(["Ein Hund."])
    translator = Translator.load(run, beam_size=2, threads=2, device="cpu")
    lines = src.read_text(encoding="utf-8").splitlines()
    translator.translate_n_best(lines, n_best=2, with_alignment=True)
    translator.score(lines, lines)
    Attention.of(translator, lines[0])
    Translator.load(run, temperature=1.0, device="cpu").translate(lines)
    evaluate(run, device="cpu", src=src, ref=ref)
    compare(run, ref, device="cpu", src=src, ref=ref)


def test_library_calls_leave_their_host_as_it_was(
    workspace: Workspace, exported: Path, tmp_path: Path
) -> None:
    run = workspace.copy_run(tmp_path / "run")
    torch.set_float32_matmul_precision("high")
    try:
        before = host()
        everything(run, exported, workspace.corpus("test.de"), workspace.corpus("test.en"))
        after = host()
    finally:
        torch.set_float32_matmul_precision("highest")
    assert {name: after[name] for name in before} == before
