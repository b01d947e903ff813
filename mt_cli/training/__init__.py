"""From a config and prepared data to a trained run."""
