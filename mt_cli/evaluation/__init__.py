"""Evaluation: scores, significance tests, and model cards."""
