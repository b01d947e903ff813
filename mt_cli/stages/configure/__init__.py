"""Configs that suit a corpus, and what is wrong with one or different between two."""
