"""The Transformer: embeddings around a swappable backend (nn.Transformer, or from scratch)."""
