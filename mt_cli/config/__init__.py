"""The configuration: all keys, and how files and overrides become a `Config`."""
