"""What `compare` prints, of results made by hand."""

from mt_cli.commands.comparison_text import comparison_as_text
from mt_cli.stages.compare.comparison import Comparison, Contrast
from mt_cli.translation.changes import Bucket, Change
from mt_cli.translation.significance import Estimate, MetricTest, Verdict


def change(line: int, gain: float) -> Change:
    return Change(line, f"Quelle {line}", f"ref {line}", f"old {line}", f"new {line}", 50.0, 50.0 + gain)


CONTRAST = Contrast(
    "runs/b",
    hyps=["new 1"],
    tests=(
        MetricTest("BLEU", Estimate(38.8, 38.7, 1.22), Estimate(39.42, 39.4, 1.2), 0.02, 0.012, "bs", "ar"),
        MetricTest("TER", Estimate(44.0, 44.0, 1.0), Estimate(44.0, 44.0, 1.0), None, None, "bs", "ar"),
    ),
    verdict=Verdict("better", "runs/b is better than runs/a: …"),
    changes=(change(3, -30), change(1, 20), change(7, 10), change(2, 5)),
    by_length=(Bucket("0-5", n=10, wins=3, losses=1, mean_difference=0.5),),
    by_unseen_words=None,
)
COMPARISON = Comparison(
    "test", "runs/a", ["Quelle"] * 10, ["ref"] * 10, ["old"] * 10, 1000, 10000, (CONTRAST,)
)


def test_columns_stand_in_line() -> None:
    lines = comparison_as_text(COMPARISON, examples=0).split("\n")
    heading = next(i for i, line in enumerate(lines) if "p (bootstrap)" in line)
    assert lines[heading : heading + 3] == [
        "         baseline       system  difference  p (bootstrap)  p (randomisation)",
        "BLEU  38.80 ±1.22  39.42 ±1.20       +0.62         0.0200             0.0120",
        "TER   44.00 ±1.00  44.00 ±1.00       +0.00              -                  -",
    ]
    assert "0-5                     10     3       1     6         +0.50" in lines


def test_examples_are_the_largest_gains_and_losses() -> None:
    text = comparison_as_text(COMPARISON, examples=2)
    shown = [line for line in text.split("\n") if line.startswith("line ")]
    assert shown == [
        "line 1, gained most: chrF2 50.0 -> 70.0",
        "line 7, gained most: chrF2 50.0 -> 60.0",
        "line 3, lost most: chrF2 50.0 -> 20.0",
    ]


def test_tables_fit_eighty_columns() -> None:
    lines = comparison_as_text(COMPARISON, examples=3).split("\n")
    assert max(map(len, lines)) <= 80
