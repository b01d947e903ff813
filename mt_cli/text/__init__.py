"""Text: normalisation, tokenizers and vocabularies; knows strings and ids, never files."""
