"""A sentence and a translation as the model is taught them.

Knows tokens and tensors, not how a translation is found.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from mt_cli.errors import Option, UsageError
from mt_cli.text.normalize import normalize
from mt_cli.text.symbols import BOS_ID, EOS_ID, SPECIALS
from mt_cli.text.tokenizer import Tokenizers
from mt_cli.translation.lines import Part


@dataclass(frozen=True, eq=False)
class TeacherForced:
    """A sentence and a translation, as the model is given them when it is taught: one row each."""

    source: str
    translation: str
    src_ids: Tensor = field(repr=False)
    """(1, S), ending in `</s>`."""
    tgt_in: Tensor = field(repr=False)
    """(1, T), beginning with `<s>`."""
    src_tokens: tuple[str, ...] = field(repr=False)
    """What stands at each of the S source positions."""
    tgt_tokens: tuple[str, ...] = field(repr=False)
    """What stands at each of the T target positions."""
    predicted_tokens: tuple[str, ...] = field(repr=False)
    """What is predicted at each of them: the next token."""

    @classmethod
    def of(
        cls,
        part: Part,
        hyp: list[int],
        translation: str,
        *,
        is_complete: bool,
        tokenizers: Tokenizers,
        device: torch.device,
    ) -> "TeacherForced":
        """`part` and its `translation` with the ids `hyp`, which `</s>` follows if it `is_complete`."""
        tokens = tokenizers.tgt.tokens(hyp)
        end = [SPECIALS[EOS_ID]] if is_complete else []
        tgt_in = [BOS_ID, *hyp] if is_complete else [BOS_ID, *hyp[:-1]]
        return cls(
            source=part.text,
            translation=translation,
            src_ids=torch.tensor([[*part.ids, EOS_ID]], device=device),
            tgt_in=torch.tensor([tgt_in], device=device),
            src_tokens=(*tokenizers.src.tokens(part.ids), SPECIALS[EOS_ID]),
            tgt_tokens=(SPECIALS[BOS_ID], *tokens)[: len(tgt_in)],
            predicted_tokens=(*tokens, *end),
        )


def encode_target(text: str, tokenizers: Tokenizers, *, longest: int) -> list[int]:
    """Ids of `text`, a translation by somebody else.

    Raises:
        UsageError: it is empty, or has more than `longest` tokens.
    """
    (ids,) = tokenizers.tgt.encode([normalize(text, lowercase=tokenizers.options.lowercase)])
    if not 0 < len(ids) <= longest:
        raise UsageError(Option("target"), f": expected 1 to {longest} tokens, found {len(ids)}")
    return ids
