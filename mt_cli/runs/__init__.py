"""Run folders and checkpoints."""
