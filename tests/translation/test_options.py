"""Wrong options of `Translator.load`: each is refused by its own name before anything is translated."""

import re
from typing import Any

import pytest
from workspace import Workspace

from mt_cli.decoding import Sampling
from mt_cli.errors import UsageError, WrongTypeError
from mt_cli.translation.translator import Translator


def load(workspace: Workspace, **options: Any) -> Translator:  # noqa: ANN401
    return Translator.load(**{"run": workspace.run, "device": "cpu", "threads": 1, **options})


def pattern_of(complaint: str) -> str:
    """A regular expression for `complaint`, where … stands for the config's words of what it expects."""
    return f"^{re.escape(complaint).replace('…', '[^:]+')}$"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"beam_size": 0}, "beam_size: …, found 0"),
        ({"length_penalty": -3}, "length_penalty: …, found -3"),
        ({"length_penalty": float("nan")}, "length_penalty: …, found nan"),
        ({"batch_size": -1}, "batch_size: …, found -1"),
        ({"precision": "fp16"}, "precision: …, found 'fp16'"),
        ({"device": "gpu"}, "device: …, found 'gpu'"),
        ({"device": None}, "device: …, found None"),
        ({"backend": "tf"}, "backend: …, found 'tf'"),
        ({"threads": -1}, "threads: …, found -1"),
        ({"seed": -1}, "seed: …, found -1"),
        ({"checkpoint": ["best", "last"]}, "checkpoint: expected one name for each run, found 2 for 1"),
        (
            {"sampling": Sampling(), "beam_size": 4},
            "sampling draws translations and beam_size searches for them; give one",
        ),
    ],
    ids=str,
)
def test_value_out_of_range_is_refused(workspace: Workspace, options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UsageError, match=pattern_of(complaint)) as caught:
        load(workspace, **options)
    assert not isinstance(caught.value, TypeError)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"beam_size": "5"}, "beam_size: …, found '5'"),
        ({"beam_size": True}, "beam_size: …, found True"),
        ({"threads": 1.5}, "threads: …, found 1.5"),
        ({"threads": None}, "threads: …, found None"),
        ({"replace_unk": "no"}, "replace_unk: …, found 'no'"),
        ({"sampling": 0.7}, "sampling: expected a Sampling, found 0.7"),
        ({"checkpoint": None}, "checkpoint: expected a name or a list of names, found None"),
        ({"checkpoint": [3]}, "checkpoint: expected a name or a list of names, found [3]"),
        ({"run": None}, "run: expected a path or a list of paths, found None"),
        ({"run": ["runs/tiny", 2]}, "run: expected a path or a list of paths, found ['runs/tiny', 2]"),
        ({"beam_sise": 3}, "unknown option beam_sise; did you mean beam_size?"),
        ({"checkpoints": "last"}, "unknown option checkpoints; did you mean checkpoint?"),
    ],
    ids=str,
)
def test_wrong_type_is_refused(workspace: Workspace, options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(WrongTypeError, match=pattern_of(complaint)):
        load(workspace, **options)


def test_all_wrong_options_are_named_at_once(workspace: Workspace) -> None:
    with pytest.raises(UsageError) as caught:
        load(workspace, beam_size=0, precision=16, threads=-2)
    assert [line.partition(":")[0] for line in str(caught.value).split("\n")] == [
        "beam_size",
        "precision",
        "threads",
    ]
