"""`config new`."""
