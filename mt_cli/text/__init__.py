"""Text and ids: normalization, tokenizers, vocabularies, and the ids of special symbols."""

PAD_ID = 0
UNK_ID = 1
BOS_ID = 2
EOS_ID = 3
SPECIALS = ("<pad>", "<unk>", "<s>", "</s>")
INVISIBLE_IDS = frozenset((PAD_ID, BOS_ID, EOS_ID))
"""Ids without text."""
