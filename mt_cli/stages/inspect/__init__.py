"""What is in a run, and what happens to a sentence inside its model."""
