"""Keys that configs of earlier runs have, and today's have no more."""

RETIRED = {"training.ema_decay": 0.0, "training.subword_dropout": 0.0}
"""Keys that exist no more, with the value by which configs of earlier runs say that they do without."""
RENAMED = {"training.consistency": "r_drop"}
"""Path of a key in configs of earlier runs: what the key is called now."""
