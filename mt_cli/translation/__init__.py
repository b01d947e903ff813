"""Lines in, lines out: text, model and search joined."""
