"""Data: from a corpus to batches of ids."""
