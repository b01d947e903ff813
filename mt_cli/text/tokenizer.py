"""Tokenizers of both sides: their interface, and how they are stored.

Knows normalised text, ids and named bytes, never files.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal, Protocol

from pydantic import BaseModel, ConfigDict, ValidationError

from mt_cli.errors import DataError
from mt_cli.text.subwords import SubwordTokenizer
from mt_cli.text.words import WordTokenizer

Kind = Literal["spacy", "bpe", "unigram"]

DESCRIPTION = "tokenizer.json"
FORMAT: Literal[1] = 1


@dataclass(frozen=True)
class TextOptions:
    """What has to be known of the text before it is tokenised."""

    src_lang: str
    tgt_lang: str
    lowercase: bool


class Tokenizer(Protocol):
    """Converts one side's normalised text to ids, without `<s>` and `</s>`, and back."""

    @property
    def vocab_size(self) -> int:
        """Entries, special symbols included."""
        ...

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each normalised text."""
        ...

    def decode(self, sequences: Sequence[Sequence[int]]) -> list[str]:
        """Text of each sequence of ids, one line each; padding and sentence ends are skipped."""
        ...

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """The tokens that `ids` stand for, in readable form."""
        ...

    @property
    def entries(self) -> list[str]:
        """A string for each id, no two alike."""
        ...

    def to_bytes(self) -> bytes:
        """The tokenizer in serialised form."""
        ...


@dataclass(frozen=True)
class Tokenizers:
    """The tokenizers of both sides, and how their text was normalised."""

    src: Tokenizer
    tgt: Tokenizer
    """The same object as `src` for joint subwords."""
    kind: Kind
    joint: bool
    options: TextOptions

    def to_files(self) -> dict[str, bytes]:
        """Content by file name; `from_files` reads it again."""
        description = _Description(
            format=FORMAT,
            kind=self.kind,
            joint=self.joint,
            **asdict(self.options),
        )
        files = {DESCRIPTION: (description.model_dump_json(indent=2) + "\n").encode()}
        if self.joint:
            return files | {_file_name(self.kind, "joint"): self.src.to_bytes()}
        return files | {
            _file_name(self.kind, "src"): self.src.to_bytes(),
            _file_name(self.kind, "tgt"): self.tgt.to_bytes(),
        }

    @staticmethod
    def from_files(files: Mapping[str, bytes]) -> "Tokenizers":
        """The tokenizers from which `to_files` made `files`.

        Raises:
            DataError: a file is missing or malformed.
        """
        description = _read_description(files)
        sides = ("joint", "joint") if description.joint else ("src", "tgt")
        names = [_file_name(description.kind, side) for side in sides]
        for name in names:
            if name not in files:
                raise DataError(f"{name}: missing beside {DESCRIPTION}; found {', '.join(sorted(files))}")
        src = _read_tokenizer(description.kind, description.src_lang, names[0], files[names[0]])
        if description.joint and description.kind != "spacy":
            tgt = src
        else:
            tgt = _read_tokenizer(description.kind, description.tgt_lang, names[1], files[names[1]])
        return Tokenizers(
            src,
            tgt,
            kind=description.kind,
            joint=description.joint,
            options=TextOptions(description.src_lang, description.tgt_lang, description.lowercase),
        )


class _Description(BaseModel):
    """`tokenizer.json`."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    format: Literal[1]
    kind: Kind
    joint: bool
    src_lang: str
    tgt_lang: str
    lowercase: bool


def _file_name(kind: Kind, side: str) -> str:
    return f"vocab.{side}.json" if kind == "spacy" else f"{side}.model"


def _read_description(files: Mapping[str, bytes]) -> _Description:
    if DESCRIPTION not in files:
        raise DataError(f"{DESCRIPTION}: missing; found {', '.join(sorted(files)) or 'nothing'}")
    try:
        return _Description.model_validate_json(files[DESCRIPTION])
    except ValidationError as error:
        detail = error.errors()[0]
        place = ".".join(str(part) for part in detail["loc"])
        raise DataError(
            f"{DESCRIPTION}: {place}: {detail['msg']}; the file is damaged or of another version"
        ) from error


def _read_tokenizer(kind: Kind, lang: str, name: str, data: bytes) -> Tokenizer:
    try:
        return WordTokenizer.from_bytes(lang, data) if kind == "spacy" else SubwordTokenizer(data)
    except DataError as error:
        raise DataError(f"{name}: {error}") from error
