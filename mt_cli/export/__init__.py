"""Models in the form of other programs, and small copies of runs."""
