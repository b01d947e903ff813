"""Export: models for other programs, and small copies of runs."""
