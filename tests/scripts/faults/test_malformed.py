"""Malformed things: enough of them, each with a name of its own, and every finding of issue 20 among them."""

import pytest
from faults.malformed.configs import malformed_configs
from faults.malformed.exports import malformed_exports
from faults.malformed.impostors import impostors
from faults.malformed.prepared import malformed_prepared
from faults.malformed.runs import malformed_runs
from faults.malformed.weights import malformed_weights

EVERYTHING = [
    *impostors(),
    *malformed_runs(),
    *malformed_weights(),
    *malformed_prepared(),
    *malformed_exports(has_export=True),
    *malformed_configs(),
]
NAMES = [each.name for each in EVERYTHING]


def test_names_tell_them_apart() -> None:
    assert len(set(NAMES)) == len(NAMES) >= 200


@pytest.mark.parametrize(
    "name",
    [
        "a link to somebody's folder for checkpoints",
        "prepared data with fewer pairs than there are",
        "a link outside for train.log",
        "weights with NaN",
        "weights with whole numbers",
        "a link to a device for eval/test-greedy/scores.json",
        "a pipe for manifest.json",
        "weights with many tensors",
        "a run's config with layers without end",
        "a run's config with sentences without end",
        "a pointer to too much",
        "a corpus that is a gigabyte in a gzip file",
        "a config with nested tables",
        "a config with a number of too many digits",
        "a state with step -5",
        "a status with escapes",
        "an evaluation whose name is an escape",
        "a run that is no UTF-8",
    ],
)
def test_what_was_once_found_is_tried(name: str) -> None:
    assert name in NAMES
