"""What lies on disk: corpora, prepared data, run folders and checkpoints."""
