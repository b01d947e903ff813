"""`SubwordTokenizer`: SentencePiece subwords, with byte fallback for unknown characters.

Encoding is lossless: SentencePiece's normalization is off, and its reserved character, U+2581 for
a space, is escaped.
"""

import io
import logging
import re
import tempfile
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Literal

import sentencepiece

from mt_cli.errors import ConfigError, DataError
from mt_cli.machine.failures import shortage
from mt_cli.text import BOS_ID, EOS_ID, INVISIBLE_IDS, PAD_ID, SPECIALS, UNK_ID
from mt_cli.text.normalize import JOINERS, LOST, normalize

log = logging.getLogger(__name__)
SubwordKind = Literal["bpe", "unigram"]
SPACE_MARK = "▁"
ESCAPE = "\ue000"
"""A private-use character; it is doubled if the text contains it, so that decoding is exact."""
ESCAPED_SPACE_MARK = ESCAPE + "\ue001"
MAX_TEXT = 1000
"""Maximum characters of a text to learn from; SentencePiece silently skips over 4,192 bytes."""
COVERAGE = 0.99999
"""Share of the characters that become pieces; the rarest ones, often noise, become bytes."""
CACHED_WORDS = 1 << 17
CACHED_LENGTH = 30
"""Maximum characters of a cached word: longer ones, such as lines without spaces, rarely recur."""
UNESCAPED = {ESCAPE * 2: ESCAPE, ESCAPED_SPACE_MARK: SPACE_MARK}
_ESCAPED = re.compile("|".join(UNESCAPED))


class SubwordTokenizer:
    """A learned SentencePiece model."""

    def __init__(self, model: bytes, kind: SubwordKind) -> None:
        """Load a serialized model of this `kind`.

        Raises:
            DataError: `model` is damaged, or has other special symbols.
        """
        self._model = model
        self._kind: SubwordKind = kind
        if not model:  # SentencePiece accepts this and expects a model later
            raise DataError("the SentencePiece model is empty")
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        except RuntimeError as error:
            if shortage(error):
                raise
            raise DataError("the SentencePiece model is damaged") from error
        p = self._processor
        special_ids = (p.pad_id(), p.unk_id(), p.bos_id(), p.eos_id())
        if special_ids != (PAD_ID, UNK_ID, BOS_ID, EOS_ID):
            raise DataError(
                f"SentencePiece's pad, unk, bos, eos are {special_ids}, expected (0, 1, 2, 3)"
            )
        self.vocab_size = int(p.vocab_size())
        """Number of pieces, bytes and special symbols."""
        self.unknown_ids = [UNK_ID, *filter(p.is_byte, range(self.vocab_size))]
        """Ids for text that no piece covers: bytes and `<unk>`."""
        self._ids_of_words: dict[str, tuple[int, ...]] = {}

    def __reduce__(self) -> tuple[type["SubwordTokenizer"], tuple[bytes, SubwordKind]]:
        """Pickle the serialized model, because the library's object cannot be pickled."""
        return SubwordTokenizer, (self._model, self._kind)

    def to_bytes(self) -> bytes:
        """The serialized model."""
        return self._model

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode normalized texts; the ids never include special symbols."""
        if self._kind == "bpe":
            return [self._encode_words(_escape(text).split(" ")) for text in texts]
        # A unigram model sums floats along the whole text, so that a word's ids may depend on it.
        escaped = [_escape(text) for text in texts]
        if len(escaped) == 1:  # for a list, SentencePiece starts a thread
            return [self._processor.encode(escaped[0])]
        return self._processor.encode(escaped, num_threads=1)

    def _encode_words(self, words: Sequence[str]) -> list[int]:
        """Ids of escaped `words`; BPE never merges across spaces, so words can be cached."""
        if len(self._ids_of_words) > CACHED_WORDS:
            self._ids_of_words = {}
        cache = self._ids_of_words
        ids: list[int] = []
        for word in words:
            if word in cache:
                ids += cache[word]
                continue
            ids_of_word = tuple(self._processor.encode(word))
            ids += ids_of_word
            if len(word) <= CACHED_LENGTH:
                cache[word] = ids_of_word
        return ids

    def decode(self, sequences: Sequence[Sequence[int]]) -> list[str]:
        """Decode sequences of ids; control characters spelled by byte pieces are dropped."""
        texts = []
        for ids in sequences:  # one by one: for a list, SentencePiece starts a thread
            escaped = self._spelt(ids)
            text = _ESCAPED.sub(lambda found: UNESCAPED[found[0]], escaped)
            texts.append(normalize(text))  # does not change text that was encoded
        return texts

    def _spelt(self, ids: Sequence[int]) -> str:
        return str(self._processor.decode([int(i) for i in ids if i not in INVISIBLE_IDS]))

    def is_broken(self, ids: Sequence[int]) -> bool:
        """Whether `ids` contain invalid bytes, which decoding drops."""
        return not set(self.unknown_ids).isdisjoint(ids) and LOST in self._spelt(ids)

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """The pieces of `ids`, without padding and sentence ends."""
        return [str(self._processor.id_to_piece(int(i))) for i in ids if i not in INVISIBLE_IDS]

    def begins_word(self, token_id: int) -> bool:
        """Whether there is a space before the piece."""
        return str(self._processor.id_to_piece(token_id)).startswith(SPACE_MARK)

    @cached_property
    def entries(self) -> list[str]:
        """The special symbols and the pieces."""
        return [*SPECIALS, *self.tokens(range(len(SPECIALS), self.vocab_size))]


def learn_subwords(
    texts: Iterable[str],
    *,
    kind: SubwordKind,
    vocab_size: int,
    split_digits: bool = False,
) -> SubwordTokenizer:
    """Learn `vocab_size` pieces from normalized `texts`, or fewer if there is too little text.

    With `split_digits`, every digit is a separate piece.

    Raises:
        ConfigError: `vocab_size` is too small for all bytes and letters.
        DataError: there is no text.
    """
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_escaped_parts(texts),
            model_writer=model,
            model_type=kind,
            vocab_size=vocab_size,
            hard_vocab_limit=False,  # a small corpus may yield fewer
            character_coverage=COVERAGE,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            byte_fallback=True,
            split_digits=split_digits,
            pad_id=PAD_ID,
            unk_id=UNK_ID,
            bos_id=BOS_ID,
            eos_id=EOS_ID,
            unk_surface=" <unk> ",
            num_threads=1,  # float sums depend on the number of threads
            minloglevel=2,
        )
    except RuntimeError as error:
        if shortage(error):
            raise
        smallest = re.search(r"required_chars\. \d+ vs (\d+)", str(error))
        if smallest is not None:
            raise ConfigError(
                f"tokenizer.vocab_size {vocab_size} is too small: letters alone need {smallest[1]}"
            ) from error
        if "sentences_.empty()" in str(error):
            raise DataError("there is no training text to learn subwords from") from error
        raise DataError(f"SentencePiece cannot learn from this text: {error}") from error
    tokenizer = SubwordTokenizer(model.getvalue(), kind)
    if tokenizer.vocab_size < vocab_size:
        log.warning(
            "the text yields only %d subwords, fewer than the requested %d",
            tokenizer.vocab_size,
            vocab_size,
        )
    return tokenizer


def normalizing_output(model: bytes) -> bytes:
    """A serialized model that decodes like `SubwordTokenizer.decode`, for use in other programs.

    When decoding, it drops invisible characters spelled by bytes and normalizes spaces.
    """
    rules = []
    for code in [*range(1, 0xD800), *range(0xE000, 0x10000)]:
        character = chr(code)
        match normalize(f"a{character}b"):
            case "ab" if not JOINERS.match(character):
                rules.append(f"{code:X}\t\n")
            case "a b" if character != " ":
                rules.append(f"{code:X}\t20\n")
    sentencepiece.set_min_log_level(2)
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as file:
        file.writelines(rules)
        file.flush()
        normalizer = sentencepiece.SentencePieceNormalizer(
            rule_tsv=file.name,
            add_dummy_prefix=False,
            escape_whitespaces=False,
            remove_extra_whitespaces=True,
        )
    # This is a protobuf message with one field, `normalizer_spec` (3). Appended to the model as
    # field 5, it becomes its `denormalizer_spec`.
    spec: bytes = normalizer.serialized_model_proto()
    return model + b"\x2a" + spec[1:]


def _escaped_parts(texts: Iterable[str]) -> Iterator[str]:
    """`texts`, escaped; long ones are split at spaces, long words anywhere."""
    for text in texts:
        parts = [text]
        if len(text) > MAX_TEXT:
            parts = textwrap.wrap(text, MAX_TEXT, break_on_hyphens=False)
        for part in parts:
            if part:
                yield _escape(part)


def _escape(text: str) -> str:
    return text.replace(ESCAPE, ESCAPE * 2).replace(SPACE_MARK, ESCAPED_SPACE_MARK)
