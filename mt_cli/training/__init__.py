"""Training: objective, schedule, optimiser, trainer."""
