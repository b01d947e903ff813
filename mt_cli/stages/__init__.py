"""The commands' work: prepare, train, evaluate, translate."""
