"""Keys that configs of earlier runs have, and today's have no more."""

RETIRED = {"training.ema_decay": 0.0, "training.subword_dropout": 0.0}
"""Keys that exist no more, each with the value that meant off."""
RENAMED = {"training.consistency": "r_drop"}
"""Path of a key in configs of earlier runs: what the key is called now."""
