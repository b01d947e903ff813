"""From lines of text to their translations: text processing, model and search together."""
