"""The `compare` command, and what it finds."""
