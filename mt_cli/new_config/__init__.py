"""`config new` and `config check`."""
