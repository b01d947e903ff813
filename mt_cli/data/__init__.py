"""Ids: encoded sentences and batches. Opens no files."""
