"""Looking at runs and models: facts, attention maps, curves."""
