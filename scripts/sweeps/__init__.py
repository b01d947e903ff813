"""Variants of a config, trained with several seeds and compared."""
