"""From a corpus to batches of ids."""
