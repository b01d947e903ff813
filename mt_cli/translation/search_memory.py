"""How much memory a search takes, by a generous estimate.

Where a CPU's memory runs out, the system ends the program, and no exception says so: a search has
to be small enough from the start.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mt_cli.machine.memory import NUMBER_BYTES
from mt_cli.model.translation_model import TranslationModel

LOGITS_COPIES = 4
"""Arrays as large as the logits that a step of a search holds at most."""
BYTES_PER_CONTINUATION = 60
"""Of memory, for each continuation of each hypothesis; a beam looks at as many as it has
hypotheses.
"""
SLOT_COPIES = 3
"""Of the translation's keys and values: the old are still there while their room is doubled."""
ATTENTION_COPIES = 3
"""Of the attention of all beams to all slots: its mask, its scores and its weights."""
ENCODER_COPIES = 16
"""Arrays as large as the encoder's output that it holds at most."""


@dataclass(frozen=True)
class SearchSize:
    """What a search keeps of each source."""

    models: Sequence[TranslationModel]
    limit: Callable[[int], int]
    """The most tokens of a translation, by those of its source."""
    hyps_each: int
    """Hypotheses of each source: beams or samples."""
    is_sampling: bool = False

    @property
    def copies(self) -> int:
        """How often each source is read: once for all beams, and once for each sample."""
        return self.hyps_each if self.is_sampling else 1

    def memory_of_choices(self) -> int:
        """Bytes in which a step chooses the next tokens of a sentence's hypotheses."""
        vocab_size = len(self.models[0].output.weight)
        bytes_each = LOGITS_COPIES * NUMBER_BYTES * vocab_size
        if not self.is_sampling and self.hyps_each > 1:
            bytes_each += BYTES_PER_CONTINUATION * self.hyps_each
        return self.hyps_each * bytes_each

    def memory_of_sentence(self, longest: int) -> int:
        """Bytes that the search for a source of `longest` tokens takes."""
        slots = SLOT_COPIES * self.hyps_each * self.limit(longest)
        numbers = 0
        for model in self.models:
            keys_and_values = 2 * model.decoder_layers * (slots + self.copies * longest)
            encoder = ENCODER_COPIES * self.copies * longest
            numbers += (keys_and_values + encoder) * model.output.weight.shape[1]
            if not self.is_sampling:  # each beam may see the slots of all
                seen = self.hyps_each**2 * self.limit(longest)
                numbers += (1 + ATTENTION_COPIES * model.num_heads) * seen
        return NUMBER_BYTES * numbers + self.memory_of_choices()
