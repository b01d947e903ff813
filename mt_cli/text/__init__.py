"""Text and ids: normalisation, tokenizers, vocabularies. Special symbols have the same ids
everywhere.
"""

PAD_ID, UNK_ID, BOS_ID, EOS_ID = 0, 1, 2, 3
SPECIALS = ("<pad>", "<unk>", "<s>", "</s>")
INVISIBLE_IDS = frozenset((PAD_ID, BOS_ID, EOS_ID))
"""Ids that stand for no text."""
