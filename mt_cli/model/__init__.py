"""The Transformer: embeddings around a swappable backend, of nn.Transformer or from scratch."""
