"""docs/results.md with the tables that docs/records gives.

Knows where records, configs and the page lie in a repository.
"""

from functools import partial
from pathlib import Path

from generated_docs.marks import with_part

from records.record import read_records
from records.tables import results_tables
from records.taking import configs_in
from records.training_changes import missed_changes

PAGE = Path("docs", "results.md")
RECORDS = Path("docs", "records")
BEGIN = "<!-- figures of recorded trainings: made by scripts/results -->"
END = "<!-- end of the figures of recorded trainings -->"


def results_page(root: Path) -> str:
    """The whole page of the repository `root`, its marked part made anew."""
    records = read_records(root / RECORDS).values()
    part = results_tables(records, configs_in(root / "configs"), partial(missed_changes, root=root))
    return with_part((root / PAGE).read_text(encoding="utf-8"), part, begin=BEGIN, end=END)
