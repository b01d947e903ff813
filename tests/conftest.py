"""Settings that every test runs under."""

import os

# Before torch is imported: several test processes share few cores, and one thread sums in one
# order.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["MKL_NUM_THREADS"] = "1"

import gc
import signal
import sys
import warnings
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import settings
from started import Process, Start, started
from workspace import Workspace, shared_workspace

# The same tree gives the same answer, on a busy machine too.
settings.register_profile("mt_cli", deadline=None, derandomize=True, database=None)
settings.load_profile("mt_cli")
# Whatever starts the tests in the background of a script has had SIGINT ignored, and nohup SIGHUP.
# Children inherit that, but no handlers.
signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--gpu-device",
        choices=("cuda", "cpu"),
        help="for tests marked gpu, which are skipped without it where there is no GPU",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--gpu-device") is None:  # the tests are those of a CPU
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """Let go of what a failed test left open, or its warnings would turn the next test red."""
    result = yield
    if vars(sys).pop("last_value", None) is not None:
        vars(sys).pop("last_traceback", None)
        vars(sys).pop("last_exc", None)  # of Python 3.12 and later
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
    return result


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts processes that end with the test, passed or failed."""
    with ExitStack() as processes:

        def start_process(*command: object, **options: object) -> Process:
            return processes.enter_context(started(*command, **options))

        yield start_process


@pytest.fixture(scope="session")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return shared_workspace(tmp_path_factory.getbasetemp())


@pytest.fixture(scope="session")
def exported(workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The workspace's run as an exported model in float32, to be left as it is."""
    folder = tmp_path_factory.mktemp("exported") / "tiny"
    outcome = workspace.call("export", workspace.run, "--to", "ctranslate2", folder, "--quiet")
    assert outcome.code == 0, outcome.err
    return folder
