"""The screen of a training: it fits the terminal, and keeps what matters on it."""

import io

import pytest
from rich.console import Console

from mt_cli.training.live import Screen, last_rows, open_screen

FACTS = dict.fromkeys(
    ("run", "config", "device", "precision", "threads", "pairs", "parameters"), "x" * 100
)
FACTS |= {"updates": "250", "batches": "2,048", "BLEU": "nrefs:1", "expected": "5 min"}
SAMPLES = [f"  source       Satz {i}" for i in range(6)]


def frame(*, height: int, num_rows: int, best: int | None, width: int = 80) -> list[str]:
    """What stands on a terminal of that size, line by line."""
    console = Console(
        file=io.StringIO(), force_terminal=True, width=width, height=height, color_system=None
    )
    screen = Screen(console, total_steps=250, head="epoch  step")
    screen.facts, screen.samples, screen.doing = dict(FACTS), SAMPLES, "step 3 of 250"
    screen.rows = [(f"row {i}", i == best) for i in range(num_rows)]
    with console.capture() as captured:
        console.print(screen._drawn())
    return captured.get().rstrip("\n").split("\n")


@pytest.mark.parametrize("num_rows", [0, 1, 5, 40])
@pytest.mark.parametrize(
    ("height", "width"), [(24, 80), (50, 140), (24, 60), (16, 80), (10, 40), (4, 20)]
)
def test_a_frame_fits_the_terminal(height: int, width: int, num_rows: int) -> None:
    lines = frame(height=height, width=width, num_rows=num_rows, best=num_rows - 1)
    assert len(lines) < height
    assert max(map(len, lines)) <= width
    assert "step 3" in lines[-1] or width < 40
    if height >= 10:
        assert len([line for line in lines if line.startswith("row")]) >= min(num_rows, 5)
    if height >= 24:
        assert lines[0].startswith("run ")
        assert [line for line in lines if "Satz" in line] == SAMPLES


def test_facts_that_matter_least_give_way_to_validations() -> None:
    names = [line.split()[0] for line in frame(height=24, num_rows=9, best=3)[:5]]
    assert names == ["run", "device", "pairs", "updates", "BLEU"]
    assert any(line.startswith("batches") for line in frame(height=50, num_rows=9, best=3))


def test_the_best_row_stays_and_is_the_only_one_marked() -> None:
    rows = [("a", True), ("b", True), ("c", False), ("d", False)]
    assert last_rows(rows, 4) == [("a", False), ("b", True), ("c", False), ("d", False)]
    assert last_rows(rows, 2) == [("b", True), ("d", False)]
    assert last_rows(rows, 1) == [("b", True)]
    assert last_rows(rows, 0) == []
    assert last_rows([("a", False)], 3) == [("a", False)]


def test_nobody_sees_a_screen_where_stderr_is_no_terminal() -> None:
    assert open_screen(total_steps=1, head="") is None
