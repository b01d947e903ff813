"""Wrong options of `Translator.load`: each is refused by its own name before anything is loaded."""

import re
from typing import Any

import pytest
from workspace import Workspace

from mt_cli.decoding.search import Sampling
from mt_cli.errors import UsageError
from mt_cli.translation.translator import Translator


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"beam_size": 0}, "decoding.beam_size: "),
        ({"beam_size": "5"}, "decoding.beam_size: "),
        ({"length_penalty": -3}, "decoding.length_penalty: "),
        ({"length_penalty": float("nan")}, "decoding.length_penalty: "),
        ({"precision": "fp8"}, "decoding.precision: "),
        ({"replace_unk": "no"}, "decoding.replace_unk: "),
        ({"device": "gpu"}, "runtime.device: "),
        ({"backend": "tf"}, "model.backend: "),
        ({"threads": -1}, "runtime.threads: "),
        ({"seed": -1}, "runtime.seed: "),
        ({"checkpoint": ["best", "last"]}, "checkpoint: "),
        ({"sampling": Sampling(), "beam_size": 4}, "sampling"),
        ({"beam_sise": 3}, "decoding: .*'beam_sise'.*'beam_size'"),
    ],
    ids=str,
)
def test_wrong_option_is_named(workspace: Workspace, options: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError, match=f"^{named}"):
        Translator.load(**{"run": workspace.run, "device": "cpu", **options})


def test_all_wrong_options_are_named_at_once(workspace: Workspace) -> None:
    with pytest.raises(UsageError) as caught:
        Translator.load(workspace.run, beam_size=0, precision="16", threads=-2)
    names = re.findall(r"^[\w.]+", str(caught.value), re.MULTILINE)
    assert names == ["decoding.beam_size", "decoding.precision", "runtime.threads"]
