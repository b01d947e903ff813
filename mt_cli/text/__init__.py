"""Text and ids: normalisation, tokenizers, vocabularies. Special symbols have the same ids
everywhere.
"""

PAD_ID = 0
UNK_ID = 1
BOS_ID = 2
EOS_ID = 3
SPECIALS = ("<pad>", "<unk>", "<s>", "</s>")
INVISIBLE_IDS = frozenset((PAD_ID, BOS_ID, EOS_ID))
"""Ids that stand for no text."""
