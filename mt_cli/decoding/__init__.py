"""Search over next-token functions."""
