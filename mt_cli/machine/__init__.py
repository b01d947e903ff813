"""What the machine offers and what it likes: nothing here knows models, data or text."""
