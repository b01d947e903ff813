"""README.md: short enough to be read, and honest in its table."""

import re

from pages import README, pictures_in, read, tables_in

MOST_WORDS = 900
MOST_ROWS = 5


def results() -> list[str]:
    (table,) = [rows for rows in tables_in(read(README)) if any("configs/" in row for row in rows)]
    return table


def test_readme_is_short() -> None:
    assert len(read(README).split()) < MOST_WORDS


def test_readme_has_one_picture() -> None:
    assert len(pictures_in(read(README))) == 1


def test_results_are_few() -> None:
    assert 1 <= len(results()) <= MOST_ROWS


def test_each_score_has_its_interval_or_says_that_there_is_none() -> None:
    cells = [cell.strip() for row in results() for cell in row.strip("|").split("|")[-2:]]
    assert [cell for cell in cells if not re.fullmatch(r"\d+\.\d+ (± \d+\.\d+|\(–\))", cell)] == []
