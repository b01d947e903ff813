"""How weights are found: objective, schedule, optimiser, trainer."""
