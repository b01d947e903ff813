"""How good a run is, and what is inside."""
