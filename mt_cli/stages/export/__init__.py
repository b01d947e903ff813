"""A trained model for another engine, and the proof that it is the same one."""
