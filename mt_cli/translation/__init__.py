"""Lines in, lines out: text, model and search joined, and what becomes of the translations."""
