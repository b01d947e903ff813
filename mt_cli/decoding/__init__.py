"""Search over next-token functions: on token ids, without text, vocabularies or modules."""
