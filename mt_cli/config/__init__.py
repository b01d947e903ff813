"""The configuration: every key, and how files and overrides become one Config."""
