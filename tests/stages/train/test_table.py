"""The table of validations: aligned, and never wider than a terminal."""

from dataclasses import replace

import pytest

from mt_cli.stages.train.meter import Stretch
from mt_cli.stages.train.table import COLUMNS, HEADER, Row, clock, in_words

ROW = Row(
    step=147,
    stretch=Stretch(epoch=3, loss=2.3416, lr=3e-3, tgt_tokens_per_s=11_450.7),
    val_nll=1.2004,
    bleu=30.623,
    elapsed_s=27.4,
    left_s=62.0,
    is_best=True,
)


def test_row_stands_under_its_header() -> None:
    assert [HEADER, str(ROW)] == [
        "epoch    step train loss val nll   BLEU      lr   tok/s  elapsed     left  best",
        "    3     147      2.342   1.200  30.62 3.0e-03   11451     0:27     1:02  *",
    ]


def test_row_that_is_not_the_best_has_no_mark_and_may_not_know_the_end() -> None:
    assert str(replace(ROW, is_best=False, left_s=None)).endswith("0:27        -")


def test_validation_before_the_first_update_has_no_training_to_tell_of() -> None:
    row = str(replace(ROW, step=0, stretch=None))
    assert row.split() == ["0", "0", "-", "1.200", "30.62", "-", "-", "0:27", "1:02", "*"]
    assert len(row) == len(str(ROW))


def test_largest_values_keep_their_columns_and_80_in_all() -> None:
    row = replace(
        ROW,
        step=1_234_567,
        stretch=Stretch(epoch=10_000, loss=12.3456, lr=3e-3, tgt_tokens_per_s=1_234_567.8),
        val_nll=12.3456,
        bleu=100.0,
        elapsed_s=95 * 3600.0,
        left_s=400 * 86400.0,
    )
    assert max(len(HEADER), len(str(row))) <= COLUMNS
    assert str(row).split() == [
        *("10000", "1234567", "12.346", "12.346", "100.00", "3.0e-03", "1234568", "95:00:00"),
        *("400d", "00h", "*"),
    ]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0:00"), (59.6, "1:00"), (754, "12:34"), (3723, "1:02:03"), (4 * 86400 + 5 * 3600, "4d 05h")],
)
def test_clock_counts_minutes_hours_and_days(seconds: float, text: str) -> None:
    assert clock(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (89, "89 s"), (90, "1.5 min"), (599, "10.0 min"), (600, "10 min"), (9000, "2.5 h")],
)
def test_words_are_exact_to_a_few_percent(seconds: float, text: str) -> None:
    assert in_words(seconds) == text
