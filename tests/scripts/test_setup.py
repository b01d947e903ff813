"""`scripts/setup` with stand-ins for the installers: where PyTorch comes from, and who installs."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from trained import free_port

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has an NVIDIA GPU"),
]
ROOT = Path(__file__).resolve().parents[2]
PYTHON = f"""
case "$1 $2" in
    "-m pip" | "-m venv") echo "$@" >> calls ;;
    *) exec {sys.executable} "$@" ;;
esac
"""


class Silent(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def index(tmp_path: Path) -> Iterator[str]:
    """The address of an index that has a page of torch."""
    tmp_path.joinpath("www", "torch").mkdir(parents=True)
    handler = partial(Silent, directory=str(tmp_path / "www"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as http:
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}"
        http.shutdown()
        thread.join()


def write(path: Path, code: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/usr/bin/env bash\n{code}\n", encoding="utf-8")
    path.chmod(0o755)


def set_up(
    folder: Path, *args: str, cpu_index: str, uv: str = "exit 1", gpu: str = "exit 1", **env: str
) -> tuple[list[str], str]:
    """What the installers were asked for, and what the script said."""
    project = folder / "project"
    text = (ROOT / "scripts" / "setup").read_text(encoding="utf-8")
    assert "\nCPU_INDEX=" in text
    write(project / "scripts" / "setup", text.replace("\nCPU_INDEX=", "\nCPU_INDEX=$HERE #"))
    write(project / ".venv" / "bin" / "python", PYTHON)
    write(project / ".venv" / "bin" / "pip", 'echo "pip 1 from $PWD/.venv/lib"')
    write(folder / "bin" / "uv", uv)
    write(folder / "bin" / "nvidia-smi", gpu)
    for name in ("pyproject.toml", "constraints.txt"):
        (project / name).touch()
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    given = {"HERE": cpu_index, "PATH": path, "no_proxy": "127.0.0.1", "TORCH_INDEX": "", **env}
    done = subprocess.run(
        [project / "scripts" / "setup", *args],
        env={**os.environ, "PYTHON": str(project / ".venv" / "bin" / "python"), **given},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")
    return (project / "calls").read_text(encoding="utf-8").splitlines(), done.stderr


def test_without_a_gpu_pytorch_is_the_cpu_build_and_all_else_comes_from_elsewhere(
    tmp_path: Path, index: str
) -> None:
    (torch, rest), _ = set_up(tmp_path, cpu_index=index)
    assert torch.startswith("-m pip install ")
    assert torch.endswith(f" --no-deps --index-url {index} torch")
    assert "index" not in rest


def test_an_index_that_does_not_answer_is_told_and_done_without(tmp_path: Path) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    (torch, _), said = set_up(tmp_path, cpu_index=nobody)
    assert "index" not in torch
    assert nobody in said


@pytest.mark.parametrize("what", ["gpu", "flag"])
def test_with_a_gpu_or_if_asked_to_pytorch_comes_with_cuda(
    tmp_path: Path, index: str, what: str
) -> None:
    args = ["--cuda"] if what == "flag" else []
    calls, _ = set_up(tmp_path, *args, cpu_index=index, gpu=f"exit {int(what == 'flag')}")
    assert "index" not in "".join(calls)
    assert (calls[0] == "-m venv --clear .venv") == (what == "flag")


def test_an_index_that_is_named_is_taken(tmp_path: Path, index: str) -> None:
    (torch, _), _ = set_up(tmp_path, cpu_index=index, TORCH_INDEX="http://elsewhere")
    assert torch.endswith(" --no-deps --index-url http://elsewhere torch")


def test_uv_installs_where_there_is_one(tmp_path: Path, index: str) -> None:
    (torch, rest), _ = set_up(tmp_path, cpu_index=index, uv='echo "uv $@" >> calls')
    assert torch.startswith("uv pip install ")
    assert torch.endswith(f" --no-deps --index-url {index} torch")
    assert rest.startswith("uv pip install ")
