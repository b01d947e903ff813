"""`SearchOptions`: what a command or a caller may say of a search, over what the run's own config says.

Knows names and types; `DecodingConfig` says what they mean and which values are allowed.
"""

from typing import TypedDict

from mt_cli.config import Precision


class SearchOptions(TypedDict, total=False):
    """Keys of `[decoding]`; one that is absent or None is the run's own."""

    beam_size: int | None
    length_penalty: float | None
    no_repeat_ngram: int | None
    min_len: int | None
    replace_unk: bool | None
    batch_size: int | None
    precision: Precision | None
