"""Text and ids: normalisation, tokenizers, encoded sentences and batches. Opens no files."""
