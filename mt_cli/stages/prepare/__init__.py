"""From a corpus to encoded splits, tokenizers and a report."""
