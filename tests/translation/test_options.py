"""Wrong options of `Translator.load`: each is refused by its own name before anything is
translated.
"""

import re
from typing import Any

import pytest
from workspace import Workspace

from mt_cli.decoding import Sampling
from mt_cli.errors import UsageError
from mt_cli.translation.translator import Translator


def load(workspace: Workspace, **options: Any) -> Translator:  # noqa: ANN401
    return Translator.load(**{"run": workspace.run, "device": "cpu", "threads": 1, **options})


def pattern_of(complaint: str) -> str:
    """A regular expression for `complaint`, where … stands for the config's words of what it
    expects.
    """
    return f"^{re.escape(complaint).replace('…', '[^:]+')}$"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"beam_size": 0}, "decoding.beam_size: …, found 0"),
        ({"beam_size": "5"}, "decoding.beam_size: …, found '5'"),
        ({"beam_size": True}, "decoding.beam_size: …, found true"),
        ({"length_penalty": -3}, "decoding.length_penalty: …, found -3"),
        ({"length_penalty": float("nan")}, "decoding.length_penalty: …, found nan"),
        ({"batch_size": -1}, "decoding.batch_size: …, found -1"),
        ({"precision": "fp8"}, "decoding.precision: …, found 'fp8'"),
        ({"replace_unk": "no"}, "decoding.replace_unk: …, found 'no'"),
        ({"device": "gpu"}, "runtime.device: …, found 'gpu'"),
        ({"device": None}, "runtime.device: …, found null"),
        ({"backend": "tf"}, "model.backend: …, found 'tf'"),
        ({"threads": -1}, "runtime.threads: …, found -1"),
        ({"threads": 1.5}, "runtime.threads: …, found 1.5"),
        ({"seed": -1}, "runtime.seed: …, found -1"),
        (
            {"checkpoint": ["best", "last"]},
            "checkpoint: expected one name for each run, found 2 for 1",
        ),
        (
            {"sampling": Sampling(), "beam_size": 4},
            "sampling draws translations and beams search for them; give one of the two",
        ),
        ({"beam_sise": 3}, "decoding: unknown key 'beam_sise'; did you mean 'beam_size'?"),
    ],
    ids=str,
)
def test_wrong_option_is_refused(
    workspace: Workspace, options: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(UsageError, match=pattern_of(complaint)):
        load(workspace, **options)


def test_all_wrong_options_are_named_at_once(workspace: Workspace) -> None:
    with pytest.raises(UsageError) as caught:
        load(workspace, beam_size=0, precision=16, threads=-2)
    assert [line.partition(":")[0] for line in str(caught.value).split("\n")] == [
        "decoding.beam_size",
        "decoding.precision",
        "runtime.threads",
    ]
