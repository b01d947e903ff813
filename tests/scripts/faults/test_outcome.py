"""The table of what was survived, and how what was not is told."""

from faults.outcome import Outcome, as_json, failures, table

OUTCOMES = [
    Outcome(1, "kills", "train, kill before call 7", tried=1, failed=(), seconds=1.0),
    Outcome(3, "flips", "status.json", tried=2000, failed=("byte 4, bit 1: accepted",), seconds=2.0),
    Outcome(1, "kills", "train, kill after call 7", tried=1, failed=("no run",), seconds=1.5),
    Outcome(1, "broken disks", "EIO, call 3", tried=1, failed=("lost",), seconds=0.5),
]


def test_table_has_a_row_for_each_promise_and_family() -> None:
    assert table(OUTCOMES).splitlines()[2:] == [
        "| 1. a kill loses no more than the steps since the last checkpoint | broken disks | 1 | 0 | 0 |",
        "| 1. a kill loses no more than the steps since the last checkpoint | kills | 2 | 1 | 2 |",
        "| 3. a changed bit is noticed before it is used | flips | 2,000 | 1,999 | 2 |",
    ]


def test_failure_is_told_with_the_command_that_makes_it_again() -> None:
    first, second, third = failures(OUTCOMES, seed=5, is_quick=False)
    assert first == (
        "promise 3, flips: status.json: byte 4, bit 1: accepted\n"
        "    again: scripts/torture --only flips --seed 5 --match status.json"
    )
    assert "no run" in second
    assert third.endswith("scripts/torture --only 'broken disks' --seed 5 --match 'EIO, call 3'")
    quick = failures(OUTCOMES, seed=5, is_quick=True)[0]
    assert quick.endswith("    again: scripts/torture --quick --only flips --seed 5 --match status.json")


def test_document_has_rows_and_failures() -> None:
    document = as_json(OUTCOMES, seed=5)
    assert document["seed"] == 5
    assert [(row["tried"], row["survived"]) for row in document["promises"]] == [(1, 0), (2, 1), (2000, 1999)]  # type: ignore[attr-defined]
    assert [each["fault"] for each in document["failures"]] == [each.fault for each in OUTCOMES[1:]]  # type: ignore[attr-defined]
