"""Folders and configs that no program wrote: each is refused at once, and nothing of it is obeyed."""
