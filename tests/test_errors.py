"""Errors as Python shows them, as the command line shows them, and as what they can be caught."""

import pickle

import pytest

from mt_cli.errors import ConfigError, MtCliError, Option, ResourceError, UsageError


def test_message_speaks_python_unless_the_command_line_asks() -> None:
    error = ResourceError("out of memory; lower ", Option("batch_size"), " (now 8)")
    assert str(error) == "out of memory; lower batch_size (now 8)"
    assert error.with_flags() == "out of memory; lower --batch-size (now 8)"


@pytest.mark.parametrize(
    ("error", "builtin"),
    [(UsageError, ValueError), (ConfigError, ValueError)],
)
def test_wrong_arguments_can_be_caught_as_pythons_own_errors(
    error: type[MtCliError], builtin: type[Exception]
) -> None:
    with pytest.raises(builtin, match=r"^why$") as caught:
        raise error("why")
    assert isinstance(caught.value, MtCliError)
    assert caught.value.exit_code == 2


def test_error_survives_the_way_from_another_process() -> None:
    error = UsageError("give ", Option("beam_size", 5))
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), copy.with_flags()) == (UsageError, "give --beam-size 5")
