"""The pages that `scripts/write_docs` writes are as it would write them now."""

from write_docs import pages


def test_written_pages_are_up_to_date() -> None:
    stale = [path for path, text in pages().items() if path.read_text(encoding="utf-8") != text]
    assert stale == [], "run scripts/write_docs"
