"""The pages that `scripts/write_docs` writes are as it would write them now."""

from pathlib import Path

import pytest
from write_docs import pages


@pytest.mark.parametrize(("path", "text"), pages().items(), ids=lambda each: Path(each).stem[:20])
def test_written_page_is_up_to_date(path: Path, text: str) -> None:
    assert path.read_text(encoding="utf-8") == text, "run scripts/write_docs"
